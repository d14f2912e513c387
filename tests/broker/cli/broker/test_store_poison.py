"""`rocketpy store export` with unexpected messages."""

from __future__ import annotations

import zlib
from pathlib import Path

import pyarrow as pa

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_proto.record.compression import INFLATED_BYTES_MAX
from tests.broker.cli.broker.test_store_commands import columns, exported, open_store, put


def test_s11_messages_that_cannot_be_taken_as_they_are_are_exported_as_stored(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "store"
    store = open_store(folder, ManualClock())
    put(store, "C", 0, columns("C", 1, sys_flag=0x201, born_timestamp_ms=1 << 62))
    bomb = zlib.compress(bytes(INFLATED_BYTES_MAX + 1))
    put(store, "C", 0, columns("C", 2, sys_flag=0x1, body=pa.array([bomb, b""])))
    store.close()
    found = exported(folder, tmp_path / "out.arrow", "C")
    assert found["bodyError"].to_pylist() == [
        *("is no whole ZSTD stream", None),
        *(f"inflates to more than {INFLATED_BYTES_MAX} bytes", None),
    ]
    assert found["body"].to_pylist() == [b"1 first", b"", bomb, b""]
    assert found["bornTimestamp"].to_pylist()[:2] == [None, None]
    assert found["sysFlag"].to_pylist() == [0x201, 0x201, 0x1, 0x1]
    assert (
        found["properties"].to_pylist()
        == [
            [("__SHARDINGKEY", "group"), ("b", "2"), ("KEYS", "k1 k2  k3"), ("TAGS", "t")],
            [("__SHARDINGKEY", "group"), ("UNIQ_KEY", "u"), ("a", "1")],
        ]
        * 2
    )
