"""`rocketpy store export` and `import` with unexpected messages."""

from __future__ import annotations

import zlib
from pathlib import Path

import pyarrow as pa

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_proto.record.compression import INFLATED_BYTES_MAX
from tests.broker.cli.test_store_commands import SIZES, columns, exported, open_store, put, run


def test_s11_messages_that_cannot_be_taken_as_they_are_survive_a_round_trip(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "store"
    store = open_store(folder, ManualClock())
    put(store, "C", 0, columns("C", 1, sys_flag=0x201, born_timestamp_ms=1 << 62))
    bomb = zlib.compress(bytes(INFLATED_BYTES_MAX + 1))
    put(store, "C", 0, columns("C", 2, sys_flag=0x1, body=pa.array([bomb, b""])))
    store.close()
    before = exported(folder, tmp_path / "out.arrow", "C")
    assert before["bodyError"].to_pylist() == [
        *("is no whole ZSTD stream", None),
        *(f"inflates to more than {INFLATED_BYTES_MAX} bytes", None),
    ]
    assert before["body"].to_pylist() == [b"1 first", b"", bomb, b""]
    assert before["bornTimestamp"].to_pylist()[:2] == [None, None]
    assert run("import", tmp_path / "new", tmp_path / "out.arrow", *SIZES).exit_code == 0
    after = exported(tmp_path / "new", tmp_path / "again.arrow", "C")
    assert after["sysFlag"].to_pylist() == [0x201, 0, 0x1, 0]
    for name in ("body", "bodyError", "properties"):
        assert after[name].equals(before[name]), name
    assert None not in after["bornTimestamp"].to_pylist()
