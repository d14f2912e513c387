"""`StoreCheck` on a whole store: each kind of planted fault is reported by file and byte."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

from rocketpy_broker.errors import StoreDirectoryError, StoreLockedError
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.store.check.read_only import StoreSizes
from rocketpy_broker.store.check.whole_store import Fault, Finding, Note, StoreCheck
from rocketpy_broker.store.config import FlushDiskType, StoreConfig
from rocketpy_broker.store.index.layout import IndexFormat
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_proto.record import BlockColumns, RecordBlock, encode_block
from tests.support.golden import GOLDEN
from tests.support.store.messages import (
    OTHER,
    QUEUE,
    delete_topic,
    flush_log,
    numbered,
    put,
    put_all,
    read_all,
    remove_oldest_segment,
)
from tests.support.store.planted_faults import (
    CHECKSUM_BYTES,
    FIRST,
    INDEX_FORMAT,
    PLANTS,
    UNIT_BYTES,
    bad_body,
    flip,
    write_at,
)
from tests.support.store.stores import QUEUE_FILE_BYTES, SEGMENT_BYTES, STORE_HOST, OpenStore, crash


@pytest.fixture
def new_store(tmp_path: Path, clock: ManualClock) -> OpenStore:
    """Returns a factory of stores with a small index over one directory."""

    def build(flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH) -> MessageStore:
        config = StoreConfig(
            tmp_path,
            SEGMENT_BYTES,
            QUEUE_FILE_BYTES,
            flush_disk_type,
            index_slot_count=INDEX_FORMAT.slot_count,
            index_entry_count_max=INDEX_FORMAT.entry_count_max,
        )
        return MessageStore(config, clock, STORE_HOST)

    return build


def put_keyed(store: MessageStore, count: int) -> None:
    """Appends messages with tags and one key each."""
    encoded = encode_block(
        BlockColumns(
            body=pa.array(numbered(count), pa.binary()),
            topic=QUEUE.topic,
            queue_id=0,
            tags=pa.array(["TagA"] * count),
            keys=pa.array([f"k{number}" for number in range(count)]),
        )
    )
    store.append(QUEUE, RecordBlock.parse(bytearray(encoded.data), encoded.sizes))


def fill(store: MessageStore) -> None:
    """Appends records of two queues over several segments and queue files; the first has keys."""
    store.open()
    put_keyed(store, 10)
    put_all(store, numbered(50))
    put(store, numbered(3), OTHER)


@pytest.fixture
def folder(new_store: OpenStore, tmp_path: Path) -> Path:
    """Returns the folder of a store after a clean stop."""
    store = new_store()
    fill(store)
    store.close()
    return tmp_path


def check(folder: Path, index_format: IndexFormat = INDEX_FORMAT) -> list[Finding]:
    return list(StoreCheck(folder, StoreSizes.of(folder), index_format).run())


def faults(folder: Path) -> list[tuple[str, int, str]]:
    """Returns each fault as its path below the folder, offset and text."""
    return [
        (str(found.path.relative_to(folder)), found.offset, found.text)
        for found in check(folder)
        if isinstance(found, Fault)
    ]


def contents(folder: Path) -> dict[Path, tuple[int, bytes]]:
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_clean_store_has_no_faults_and_is_left_as_it_is(folder: Path) -> None:
    before = contents(folder)
    checking = StoreCheck(folder, StoreSizes.of(folder), INDEX_FORMAT)
    read: list[int] = []
    assert list(checking.run(read.append)) == []
    assert sum(read) == checking.total_bytes
    summary = checking.summary
    assert (summary.record_count, summary.queue_count, summary.topic_count) == (63, 2, 2)
    assert contents(folder) == before


@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_a_crashed_store_has_notes_only(
    new_store: OpenStore, tmp_path: Path, flush: FlushDiskType
) -> None:
    store = new_store(flush)
    fill(store)
    crash(store)
    (note, *_) = check(tmp_path)
    assert note.path.name == "abort"
    assert faults(tmp_path) == []


def test_a_torn_tail_is_a_note(new_store: OpenStore, tmp_path: Path) -> None:
    store = new_store()
    fill(store)
    end = put(store, [b"torn"])
    crash(store)
    place = end % SEGMENT_BYTES
    path = max((tmp_path / "commitlog").iterdir())
    flip(path, place + 90)
    before = contents(tmp_path)
    found = {(one.path, one.offset): one.text for one in check(tmp_path)}
    assert "a torn tail of" in found[path, place]
    assert faults(tmp_path) == []
    assert contents(tmp_path) == before


def test_marks_beyond_a_torn_tail_are_notes(new_store: OpenStore, tmp_path: Path) -> None:
    """Covers a power cut with ASYNC_FLUSH: marks are on disk at once, records are not."""
    store = new_store()
    fill(store)
    end = put(store, [b"torn"])
    emptying = store.plan_emptying(QUEUE.topic)
    emptying.run()
    emptying.finish()
    delete_topic(store, OTHER.topic)
    crash(store)
    flip(max((tmp_path / "commitlog").iterdir()), end % SEGMENT_BYTES + 90)
    found = {one.path.name: one.text for one in check(tmp_path)}
    assert f"TopicA is emptied below {store.positions().log_end}" in found["emptiedTopics.json"]
    assert f"the log ends at {end}" in found["deletedTopics.json"]
    assert faults(tmp_path) == []
    again = new_store()
    again.open()
    put(again, [b"new"])
    assert read_all(again) == [b"new"]
    crash(again)
    assert {one.path.name for one in check(tmp_path)} == {"abort"}


@pytest.mark.parametrize("name", ["clean", "crashed"])
@pytest.mark.skipif(not GOLDEN.exists(), reason="the golden stores are not here")
def test_f14_a_store_of_rocketmq_has_no_faults(tmp_path: Path, name: str) -> None:
    archive = GOLDEN / f"rocketmq_store_{name}.tar.gz"
    subprocess.run(["tar", "-xSzf", archive, "-C", tmp_path], check=True)
    (folder,) = (path.parent for path in tmp_path.rglob("commitlog"))
    found = check(folder, IndexFormat())
    assert not [one for one in found if isinstance(one, Fault)]
    assert "body's CRC only" in found[-1].text
    store = MessageStore(StoreConfig(folder, 65_536, 2_000), ManualClock(), STORE_HOST)
    store.open()
    store.close()
    assert check(folder, IndexFormat()) == []


@pytest.mark.parametrize("kind", PLANTS)
def test_a_planted_fault_is_named_with_file_and_byte(folder: Path, kind: str) -> None:
    path, offset, text = PLANTS[kind](folder)
    found = faults(folder)
    if kind == "name of a queue":
        path = "consumequeue/TopicA/two"
    assert [one for one in found if one[:2] == (path, offset) and text in one[2]], found


def test_a_lost_queue_is_told_record_by_run_not_by_record(folder: Path) -> None:
    shutil.rmtree(folder / "consumequeue/TopicA")
    found = [one for one in faults(folder) if "missing; the record" in one[2]]
    assert found[0][:2] == (f"consumequeue/TopicA/2/{FIRST}", 0)
    assert len(found) < 20


def test_units_of_any_content_after_the_last_one_are_one_fault(
    tmp_path: Path, clock: ManualClock
) -> None:
    store = MessageStore(StoreConfig(tmp_path, SEGMENT_BYTES, 2_000), clock, STORE_HOST)
    store.open()
    put(store, numbered(5), OTHER)
    store.close()
    [path] = (tmp_path / "consumequeue" / OTHER.topic / str(OTHER.queue_id)).iterdir()
    with path.open("r+b") as file:
        file.seek(5 * UNIT_BYTES)
        file.write(random.Random(1).randbytes(95 * UNIT_BYTES))
    found = [each for each in check(tmp_path, IndexFormat()) if isinstance(each, Fault)]
    assert [(each.path, each.offset) for each in found] == [(path, 5 * UNIT_BYTES)], found
    assert found[0].text.startswith("units 5 to 99: log offset ")


def test_a_crash_does_not_hide_damage_of_what_had_been_flushed(
    new_store: OpenStore, tmp_path: Path
) -> None:
    new = new_store()
    fill(new)
    new.close()
    store = new_store()
    store.open()
    put(store, numbered(2))
    crash(store)
    path, offset, _ = bad_body(tmp_path)
    assert (path, offset) in [one[:2] for one in faults(tmp_path)]


@pytest.mark.parametrize("number", [5, 30, 59])
def test_after_a_recovery_only_the_damage_itself_is_left(
    new_store: OpenStore, tmp_path: Path, number: int
) -> None:
    store = new_store()
    fill(store)
    flush_log(store)
    crash(store)
    offset = number % 10 * UNIT_BYTES
    queue_file = tmp_path / f"consumequeue/TopicA/2/{number // 10 * QUEUE_FILE_BYTES:020d}"
    (record,) = struct.unpack_from(">q", queue_file.read_bytes(), offset)
    log_file = tmp_path / f"commitlog/{record // SEGMENT_BYTES * SEGMENT_BYTES:020d}"
    flip(log_file, record % SEGMENT_BYTES + 90)
    again = new_store()
    (damage,) = again.open().damages
    again.close()
    assert damage.offset == record
    (found,) = check(tmp_path)
    assert (found.path, found.offset) == (log_file, record % SEGMENT_BYTES)
    assert isinstance(found, Note)
    assert "replace a damaged record" in found.text


def test_what_another_broker_added_after_a_clean_stop_is_a_note(
    new_store: OpenStore, folder: Path
) -> None:
    before = folder.parent / f"{folder.name}-before"
    shutil.copytree(folder / "rocketpy", before)
    store = new_store()
    store.open()
    put_all(store, numbered(20))
    store.close()
    shutil.rmtree(folder / "rocketpy")
    before.rename(folder / "rocketpy")
    found = check(folder)
    assert "another broker wrote them" in "".join(one.text for one in found)
    assert not [one for one in found if isinstance(one, Fault)], found


def test_a_backup_that_can_be_read_is_named(folder: Path) -> None:
    (folder / "config/topics.json").write_text("")
    (folder / "config/topics.json.bak").write_text('{"offsetTable":{1:5,2:7\n\t}}')
    ((path, _, text),) = faults(folder)
    assert path == "config/topics.json"
    assert "its backup can be read" in text


def test_leftovers_of_a_crash_and_strangers_do_no_harm(folder: Path) -> None:
    for name in ("config/x.json.tmp", "commitlog.new", "consumequeue/TopicA/2.new", "mine.txt"):
        (folder / name).write_bytes(b"")
    assert faults(folder) == []
    assert len(check(folder)) == 4


def test_folders_and_files_of_rocketmq_5_5_are_no_strangers(folder: Path) -> None:
    for name in ("rocksdbstore", "consumequeue_rocksdb", "compaction", "kvStore"):
        (folder / name).mkdir()
        (folder / name / "000004.log").write_bytes(b"x")
    (folder / "config").mkdir(exist_ok=True)
    (folder / "config/transactionMetrics").write_text('{"dataVersion":{"counter":0}}')
    (folder / "config/consumerOrderInfo.json").write_text('{\n\t"table":{}\n}')
    assert check(folder) == []


def test_a_topic_that_was_deleted_and_made_again_is_fine(
    new_store: OpenStore, tmp_path: Path
) -> None:
    store = new_store()
    fill(store)
    delete_topic(store, QUEUE.topic)
    put(store, [b"new"])
    store.close()
    assert faults(tmp_path) == []


def test_removed_segments_are_fine(new_store: OpenStore, tmp_path: Path) -> None:
    store = new_store()
    fill(store)
    store.flushed(store.plan_flush())
    remove_oldest_segment(store)
    store.close()
    assert faults(tmp_path) == []


def test_what_is_no_store_is_refused_and_left_empty(tmp_path: Path) -> None:
    with pytest.raises(StoreDirectoryError, match="is no store"):
        check(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_store_in_use_is_refused(folder: Path) -> None:
    code = "import fcntl,sys; f=open(sys.argv[1],'r+b'); fcntl.lockf(f,2,1,0); print(); input()"
    with subprocess.Popen(
        ["python3", "-c", code, folder / "lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(StoreLockedError):
            check(folder)
        holder.communicate(b"\n")
    assert check(folder) == []


def test_records_that_have_lost_their_checksums_are_named_from_the_first_on(folder: Path) -> None:
    path = folder / "rocketpy" / "checksums" / FIRST
    entries = path.read_bytes().rstrip(b"\0")
    count = -(-len(entries) // CHECKSUM_BYTES)
    write_at(path, (count - 2) * CHECKSUM_BYTES, bytes(2 * CHECKSUM_BYTES))
    [(name, offset, text)] = faults(folder)
    assert (name, offset) == (f"rocketpy/checksums/{FIRST}", (count - 2) * CHECKSUM_BYTES)
    assert text.startswith("no checksum of 2 records from byte ")


def test_a_segment_that_was_made_ahead_needs_no_checksums(folder: Path) -> None:
    last = max((folder / "commitlog").iterdir())
    ahead = last.with_name(f"{int(last.name) + SEGMENT_BYTES:020d}")
    ahead.write_bytes(bytes(SEGMENT_BYTES))
    assert check(folder) == []
