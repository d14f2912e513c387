"""`rocketpy store check` and `export`, as a person uses them."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import zlib
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from rocketpy_broker.cli.commands import app
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.admin.files.store_export import SCHEMA
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.record import BlockColumns, Host, RecordBlock, encode_block
from tests.support.store.disk_calls import before_call, failing
from tests.support.store.stores import store_in

SEGMENT_BYTES, QUEUE_FILE_BYTES = 1 << 16, 2_000
STEP_MS = 60_000
START_MS = 1_600_000_000_123
# Log offsets of the first message of each block, in the order of queues.
FIRST_OFFSETS = [0, 544, 272, 816, 1_088, 1_384]
T = TypeVar("T")


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["store", *map(str, words)])


def put(store: MessageStore, topic: str, queue_id: int, columns: BlockColumns) -> None:
    encoded = encode_block(columns)
    block = RecordBlock.parse(bytearray(encoded.data), encoded.sizes)
    block.header["reconsume_times"] = 3
    store.append(QueueKey(topic, queue_id), block)


def columns(topic: str, number: int, **more: object) -> BlockColumns:
    """Returns the columns of two messages with every possible field."""
    properties = [
        [("b", "2"), ("KEYS", "k1 k2  k3"), ("TAGS", "t")],
        [("UNIQ_KEY", "u"), ("a", "1")],
    ]
    fields: dict[str, object] = {
        "body": pa.array([b"%d first" % number, b""]),
        "properties": pa.array(properties, pa.map_(pa.string(), pa.string())),
        "extra": {"__SHARDINGKEY": "group"},
        "born_timestamp_ms": START_MS + number,
        "born_host": Host.parse(f"10.0.0.{number}:80"),
        **more,
    }
    return BlockColumns(topic=topic, queue_id=0, **fields)  # type: ignore[arg-type]


def open_store(folder: Path, clock: ManualClock) -> MessageStore:
    store = store_in(folder, clock, segment_bytes=SEGMENT_BYTES, queue_file_bytes=QUEUE_FILE_BYTES)
    store.open()
    return store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Returns a store with two topics; its messages come in steps of a minute."""
    clock = ManualClock()
    store = open_store(tmp_path / "store", clock)
    for number in range(4):
        put(store, "A", number % 2, columns("A", number))
        clock.advance(STEP_MS)
    put(store, "B", 2, columns("B", 9, born_host=Host.parse("[::1]:9"), sys_flag=8))
    packed = pa.array([zlib.compress(b"packed"), zlib.compress(b"packed too")])
    put(store, "B", 2, columns("B", 8, body=packed, sys_flag=1))
    store.close()
    return tmp_path / "store"


@pytest.fixture
def held(folder: Path) -> Iterator[Path]:
    """Yields the store while another process has its lock."""
    code = "import fcntl,sys; f=open(sys.argv[1],'r+b'); fcntl.lockf(f,2,1,0); print(); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code, folder / "lock"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield folder
        holder.communicate(b"\n")


def files_of(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def table(path: Path) -> pa.Table:
    found = pq.read_table(path) if path.suffix == ".parquet" else pa.ipc.open_file(path).read_all()
    assert found.schema.equals(SCHEMA)
    return found


def twice(values: Iterable[T]) -> list[T]:
    return [value for value in values for _ in range(2)]


def exported(folder: Path, out: Path, *topics: str) -> pa.Table:
    words = [word for topic in topics for word in ("--topic", topic)]
    result = run("export", folder, *words, "--out", out)
    assert result.exit_code == 0, result.output
    return table(out)


# --- check ---


def test_a_whole_store_is_told_in_a_table(folder: Path) -> None:
    before = files_of(folder)
    result = run("check", folder)
    assert result.exit_code == 0
    assert "12" in result.output
    assert "fault:" not in result.output
    assert files_of(folder) == before


def test_faults_are_told_with_file_and_byte_and_by_the_exit_code(folder: Path) -> None:
    path = folder / "consumequeue/A/0" / ("0" * 20)
    path.write_bytes(b"\0\1" + path.read_bytes()[2:])
    result = run("check", folder)
    assert result.exit_code == 1
    assert f"fault: {path} at byte 0: unit 0: log offset 281474976710656" in result.output


def test_a_program_gets_one_json_object(folder: Path) -> None:
    (folder / "config" / "topics.json").write_text("{")
    result = run("check", folder, "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert (found["records"], found["queues"], found["topics"], found["notes"]) == (12, 3, 2, [])
    (fault,) = found["faults"]
    assert fault["path"] == str(folder / "config" / "topics.json")
    assert fault["offset"] == 1


def test_given_sizes_win_over_those_of_the_store(folder: Path) -> None:
    result = run("check", folder, "--commit-log-segment-bytes", "8192")
    assert result.exit_code == 1
    assert "has 65536 bytes instead of 8192" in result.output


@pytest.mark.parametrize("words", [["check"], ["export", "--topic", "A", "--out", "x.arrow"]])
def test_a_store_in_use_is_left_alone(held: Path, words: list[str]) -> None:
    before = files_of(held)
    result = run(words[0], held, *words[1:])
    assert result.exit_code == 2
    assert "is in use by another broker" in result.output
    assert files_of(held) == before
    assert not Path("x.arrow").exists()


@pytest.mark.parametrize("words", [["check"], ["export", "--topic", "A", "--out", "x.arrow"]])
def test_what_is_no_store_is_refused(tmp_path: Path, words: list[str]) -> None:
    result = run(words[0], tmp_path, *words[1:])
    assert result.exit_code == 2
    assert "is no store" in result.output
    assert list(tmp_path.iterdir()) == []


# --- export ---


@pytest.mark.parametrize("name", ["out.arrow", "out.parquet"])
def test_all_columns_of_a_topic_are_exported(folder: Path, tmp_path: Path, name: str) -> None:
    before = files_of(folder)
    result = run("export", folder, "--topic", "A", "--out", tmp_path / name)
    assert result.exit_code == 0, result.output
    assert "exported 8 messages" in result.output
    rows = table(tmp_path / name).to_pylist()
    assert [(row["queueId"], row["queueOffset"]) for row in rows] == [
        (queue_id, offset) for queue_id in (0, 1) for offset in range(4)
    ]
    assert rows[0]["keys"] == ["k1", "k2", "k3"]
    assert rows[0]["bornTimestamp"] == datetime.fromtimestamp(1_600_000_000.123, timezone.utc)
    assert files_of(folder) == before
    assert [path.name for path in tmp_path.iterdir() if path != folder] == [name]


@pytest.mark.parametrize("name", ["out.arrow", "out.parquet"])
def test_every_column_is_exported_as_it_is_stored(folder: Path, tmp_path: Path, name: str) -> None:
    found = exported(folder, tmp_path / name, "A", "B").to_pydict()
    numbers = [0, 2, 1, 3, 9, 8]
    hosts = [*(f"10.0.0.{number}:80" for number in numbers[:4]), "[::1]:9", "10.0.0.8:80"]
    properties = [
        [("__SHARDINGKEY", "group"), ("b", "2"), ("KEYS", "k1 k2  k3"), ("TAGS", "t")],
        [("__SHARDINGKEY", "group"), ("UNIQ_KEY", "u"), ("a", "1")],
    ]
    born = [datetime.fromtimestamp((START_MS + n) / 1000, timezone.utc) for n in numbers]
    first_ids = found["offsetMsgId"][::2]
    assert all(int(text[16:], 16) == at for text, at in zip(first_ids, FIRST_OFFSETS, strict=True))
    expected = {
        "topic": ["A"] * 8 + ["B"] * 4,
        "queueId": [0] * 4 + [1] * 4 + [2] * 4,
        "queueOffset": [0, 1, 2, 3] * 3,
        "body": [
            *(b"0 first", b"", b"2 first", b"", b"1 first", b"", b"3 first", b"", b"9 first", b""),
            *(b"packed", b"packed too"),
        ],
        "tags": ["t", None] * 6,
        "keys": [["k1", "k2", "k3"], None] * 6,
        "properties": properties * 6,
        # Without a unique key the id is the place.
        "msgId": [msg_id for first in first_ids for msg_id in (first, "u")],
        "bornTimestamp": twice(born),
        "bornHost": twice(hosts),
        "reconsumeTimes": [3] * 12,
        "storeHost": ["10.0.0.2:10911"] * 12,
        "sysFlag": [0] * 8 + [24, 24, 1, 1],
        "messageGroup": ["group"] * 12,
        "bodyError": [None] * 12,
    }
    assert {name: found[name] for name in expected} == expected
    assert set(found) - set(expected) == {"offsetMsgId", "storeTimestamp", "commitLogOffset"}
    assert found["commitLogOffset"][::2] == FIRST_OFFSETS
    minutes = [(time.timestamp() - 1_700_000_000) / 60 for time in found["storeTimestamp"]]
    assert minutes == twice([0, 2, 1, 3, 4, 4])


def test_a_folder_gets_a_file_of_each_topic(folder: Path, tmp_path: Path) -> None:
    words = ["--topic", "A", "--topic", "B", "--queue", "1", "--format", "parquet"]
    out = tmp_path / "out"
    out.mkdir()
    refused = run("export", folder, *words, "--out", out)
    assert refused.exit_code == 1
    assert "queue is 1, accepted is one of topic B: 2" in refused.output
    assert list(out.iterdir()) == []
    assert run("export", folder, *words[:4], "--format", "parquet", "--out", out).exit_code == 0
    assert {path.name: len(table(path)) for path in out.iterdir()} == {
        "A.parquet": 8,
        "B.parquet": 4,
    }


def test_one_queue_and_a_span_of_time(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "some.arrow"
    begin = datetime.fromtimestamp(1_700_000_000 + 2 * STEP_MS / 1000, timezone.utc)
    words: list[str | Path] = ["export", folder, "--topic", "A", "--out", out]
    run(*words, "--queue", "0", "--begin-time", begin.isoformat())
    assert [row["body"] for row in table(out).to_pylist()] == [b"2 first", b""]
    run(*words, "--end-time", begin.strftime("%Y-%m-%dT%H:%M:%SZ"))
    assert {row["body"] for row in table(out).to_pylist()} == {b"0 first", b"1 first", b""}
    run(*words, "--end-time", begin.strftime("%Y-%m-%dT%H:%M:%S.000001z"))
    assert b"2 first" in {row["body"] for row in table(out).to_pylist()}


def test_a_damaged_message_is_passed_over_and_told(folder: Path, tmp_path: Path) -> None:
    path = folder / "commitlog" / ("0" * 20)
    path.write_bytes(path.read_bytes().replace(b"2 first", b"2 First"))
    result = run("export", folder, "--topic", "A", "--out", tmp_path / "out.arrow")
    assert result.exit_code == 1
    assert "skipped 1 damaged message" in result.output
    assert len(table(tmp_path / "out.arrow")) == 7


def test_an_export_that_fails_leaves_the_old_file(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.arrow"
    out.write_bytes(b"old")
    before_call(monkeypatch, "fsync", "*/out.arrow.tmp", failing(errno.ENOSPC))
    result = run("export", folder, "--topic", "A", "--out", out)
    assert result.exit_code != 0
    assert out.read_bytes() == b"old"
    assert not (tmp_path / "out.arrow.tmp").exists()


def test_a_crashed_store_is_exported_as_far_as_it_shows(folder: Path, tmp_path: Path) -> None:
    store = open_store(folder, ManualClock())
    store._release()
    result = run("export", folder, "--topic", "A", "--out", tmp_path / "out.arrow")
    assert result.exit_code == 0
    assert "was not cleanly stopped" in result.output
    assert len(table(tmp_path / "out.arrow")) == 8


@pytest.mark.parametrize("words", [[], ["check"], ["export"]])
def test_every_command_has_help(words: list[str]) -> None:
    result = run(*words, "--help")
    assert result.exit_code == 0
    assert "Usage" in result.output
