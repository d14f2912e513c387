"""`rocketpy store check`, `export` and `import`, as a person uses them."""

from __future__ import annotations

import asyncio
import errno
import json
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from rocketpy_broker import LocalBroker
from rocketpy_broker.cli.commands import app
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.admin.files import store_export
from rocketpy_broker.services.admin.files.store_export import SCHEMA
from rocketpy_broker.services.topics.config import TopicConfig
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.config import FlushDiskType, StoreConfig
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.record import BlockColumns, Host, RecordBlock, encode_block

SEGMENT_BYTES, QUEUE_FILE_BYTES = 1 << 16, 2_000
SIZES = ["--commit-log-segment-bytes", str(SEGMENT_BYTES), "--consume-queue-file-bytes", "2000"]
STEP_MS = 60_000
ASSIGNED = ["queueOffset", "offsetMsgId", "storeTimestamp", "storeHost", "commitLogOffset"]


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
        "born_timestamp_ms": 1_600_000_000_123 + number,
        "born_host": Host.parse(f"10.0.0.{number}:80"),
        **more,
    }
    return BlockColumns(topic=topic, queue_id=0, **fields)  # type: ignore[arg-type]


def open_store(folder: Path, clock: ManualClock) -> MessageStore:
    config = StoreConfig(folder, SEGMENT_BYTES, QUEUE_FILE_BYTES, FlushDiskType.ASYNC_FLUSH)
    store = MessageStore(config, clock, Host.parse("10.0.0.2:10911"))
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


@pytest.mark.parametrize(
    "words", [["check"], ["export", "--topic", "A", "--out", "x.arrow"], ["import"]]
)
def test_a_store_in_use_is_left_alone(held: Path, tmp_path: Path, words: list[str]) -> None:
    source = tmp_path / "messages.arrow"
    write(source, pa.table({"topic": ["A"], "body": [b"x"]}))
    before = files_of(held)
    more = [str(source)] if words == ["import"] else []
    result = run(words[0], held, *more, *words[1:])
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


def test_a_folder_gets_a_file_of_each_topic(folder: Path, tmp_path: Path) -> None:
    words = ["--topic", "A", "--topic", "B", "--queue", "1", "--format", "parquet"]
    out = tmp_path / "out"
    out.mkdir()
    refused = run("export", folder, *words, "--out", out)
    assert refused.exit_code == 1
    assert "queue is 1, accepted is of topic B: 2" in refused.output
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
    assert "1 damaged messages were skipped" in result.output
    assert len(table(tmp_path / "out.arrow")) == 7


def test_an_export_that_fails_leaves_the_old_file(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    out = tmp_path / "out.arrow"
    out.write_bytes(b"old")
    monkeypatch.setattr(store_export, "to_record_batches", fail)
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


# --- import ---


def write(path: Path, messages: pa.Table) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(messages, path)
    else:
        with pa.ipc.new_file(path, messages.schema) as writer:
            writer.write_table(messages)
    return path


def topics_of(folder: Path) -> dict[str, int]:
    manager = TopicConfigManager(folder / "config", ManualClock(), "DefaultCluster", "broker-a")
    manager.load()
    return {config.topic: config.read_queue_nums for config in manager.list(include_system=False)}


def exported(folder: Path, out: Path, *topics: str) -> pa.Table:
    words = [word for topic in topics for word in ("--topic", topic)]
    result = run("export", folder, *words, "--out", out)
    assert result.exit_code == 0, result.output
    return table(out)


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
def test_a_round_trip_keeps_every_column_that_is_not_assigned(
    folder: Path, tmp_path: Path, suffix: str
) -> None:
    source = tmp_path / f"source.{suffix}"
    before = exported(folder, source, "A", "B")
    new = tmp_path / "new"
    result = run("import", new, source, *SIZES)
    assert result.exit_code == 0, result.output
    assert "imported 12 messages of A, B" in result.output
    after = exported(new, tmp_path / f"again.{suffix}", "A", "B")
    flags = before["sysFlag"].to_pylist()
    assert flags[-4:] == [24, 24, 1, 1]
    # Bodies are no longer compressed, and their flags say so.
    assert after["sysFlag"].to_pylist() == [*flags[:-2], 0, 0]
    # Without a unique key the id is the message's place, which has changed.
    keyed = [dict(row).get("UNIQ_KEY") for row in before["properties"].to_pylist()]
    ids = zip(keyed, before["msgId"].to_pylist(), after["msgId"].to_pylist(), strict=True)
    assert all(old == new for key, old, new in ids if key)
    for name in set(SCHEMA.names) - {*ASSIGNED, "sysFlag", "msgId"}:
        assert after[name].equals(before[name]), name
    assert run("check", new).exit_code == 0
    assert not (new / "abort").exists()
    assert topics_of(new) == {"A": 2, "B": 3}


def test_a_broker_serves_what_was_imported(tmp_path: Path) -> None:
    source = write(tmp_path / "m.arrow", pa.table({"topic": ["T"], "body": ["text"]}))
    assert run("import", tmp_path / "new", source, *SIZES[:2]).exit_code == 0
    with LocalBroker(tmp_path / "new", commit_log_segment_bytes=SEGMENT_BYTES) as broker:
        words = ["lag", "T", "--group", "g", "--endpoint", broker.endpoint]
        result = CliRunner().invoke(app, words)
    assert "none" in result.output
    assert result.exit_code == 0


def test_an_import_goes_on_behind_what_is_there_and_adds_queues(
    folder: Path, tmp_path: Path
) -> None:
    manager = TopicConfigManager(folder / "config", ManualClock(), "DefaultCluster", "broker-a")
    asyncio.run(manager.update(TopicConfig("A", 2, 2, perm=4), create_only=True))
    messages = pa.table(
        {
            "body": pa.array(["more", "other"], pa.large_string()),
            "queueId": [1, 5],
            "tags": ["x", None],
            "keys": ["k1 k2", None],
            "bornTimestamp": [None, 2],
        }
    )
    result = run("import", folder, write(tmp_path / "m.parquet", messages), "--topic", "A")
    assert result.exit_code == 0, result.output
    rows = exported(folder, tmp_path / "out.arrow", "A").to_pylist()
    more, other = rows[-2:]
    assert (more["queueId"], more["queueOffset"], more["body"]) == (1, 4, b"more")
    assert (more["tags"], more["keys"], more["bornHost"]) == ("x", ["k1", "k2"], "0.0.0.0:0")
    assert (other["queueId"], other["queueOffset"], other["tags"]) == (5, 0, None)
    assert other["bornTimestamp"] == datetime.fromtimestamp(0.002, timezone.utc)
    assert topics_of(folder) == {"A": 6}
    assert run("check", folder).exit_code == 0


def bad(**more: object) -> Callable[[Path], None]:
    """Writes a file with these columns in place of a good one's."""
    columns_of: dict[str, object] = {"topic": ["T", "T"], "body": [b"1", b"2"], **more}
    present = {name: column for name, column in columns_of.items() if column is not None}
    return lambda path: (write(path, pa.table(present)), None)[1]


BAD_FILES: dict[str, Callable[[Path], object]] = {
    "cannot be read": lambda path: None,
    "is neither an Arrow file nor a Parquet file": lambda path: path.write_bytes(b"x" * 100),
    "cannot be read (": lambda path: path.write_bytes(b"ARROW1\0\0"),
    "has no column 'body'": bad(body=None),
    "has no column 'topic'; name one with --topic": bad(topic=None),
    "column 'body' is int64, accepted is binary or a string": bad(body=[1, 2]),
    "column 'properties' is string, accepted is a map": bad(properties=["a", "b"]),
    "column 'keys' is list<item: int64>": bad(keys=[[1], [2]]),
    "column 'bornTimestamp' is string": bad(bornTimestamp=["now", "then"]),
    "column 'price' is unknown": bad(price=[1, 2]),
    "row 1: body None is null": bad(body=[b"1", None]),
    "row 1: topic None is null": bad(topic=["T", None]),
    "row 0: queueId -1 is not 0 or more": bad(queueId=[-1, 0]),
    "Integer value 2147483648 not in range": bad(queueId=[1 << 31, 0]),
    "row 1: bornHost 'home' is no host": bad(bornHost=["1.2.3.4:5", "home"]),
    "row 1: TAGS 'a\\x01b' contains a separator": bad(tags=["a", "a\x01b"]),
    "row 0: record 70092 bytes do not fit": bad(body=[b"x" * 70_000, b""]),
    "topic name 'bad name' is illegal": bad(topic=["bad name", "T"]),
    "[SCHEDULE_TOPIC_XXXX] is conflict with system topic.": bad(topic=["SCHEDULE_TOPIC_XXXX", "T"]),
    "accepted is 1 to 65536": bad(queueId=[65_536, 0]),
}


@pytest.mark.parametrize("said", BAD_FILES)
def test_a_bad_file_is_refused_before_anything_is_written(tmp_path: Path, said: str) -> None:
    good = write(tmp_path / "good.arrow", pa.table({"topic": ["T"], "body": [b"x"]}))
    BAD_FILES[said](tmp_path / "bad.arrow")
    result = run("import", tmp_path / "new", good, tmp_path / "bad.arrow", *SIZES)
    assert result.exit_code == 1
    assert said in result.output
    assert "Traceback" not in result.output
    assert not (tmp_path / "new").exists()


def test_an_import_into_a_broken_topic_table_stores_nothing(folder: Path, tmp_path: Path) -> None:
    for name in ("topics.json", "topics.json.bak"):
        (folder / "config" / name).write_text("{")
    source = write(tmp_path / "m.arrow", pa.table({"topic": ["A"], "body": [b"x"]}))
    result = run("import", folder, source)
    assert result.exit_code == 1
    assert "cannot be read" in result.output
    assert len(exported(folder, tmp_path / "out.arrow", "A")) == 8


@pytest.mark.parametrize("words", [[], ["check"], ["export"], ["import"]])
def test_every_command_has_help(words: list[str]) -> None:
    result = run(*words, "--help")
    assert result.exit_code == 0
    assert "Usage" in result.output
