"""`StoreCheck`: each kind of fault is planted in a whole store and named by file and byte."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from rocketpy_broker.clock import ManualClock
from rocketpy_broker.errors import StoreDirectoryError, StoreLockedError
from rocketpy_broker.store.check import Fault, Finding, StoreCheck
from rocketpy_broker.store.flush import FlushDiskType
from rocketpy_broker.store.index_layout import IndexFormat
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.read_only import StoreSizes
from rocketpy_broker.store.store_config import StoreConfig
from rocketpy_proto.record import BlockColumns, RecordBlock, encode_block
from tests.store.conftest import QUEUE_FILE_BYTES, SEGMENT_BYTES, STORE_HOST, OpenStore, crash
from tests.store.messages import OTHER, QUEUE, numbered, put, put_all

GOLDEN = Path(__file__).parents[3] / "shared" / "golden"
FIRST = "0" * 20
INDEX_FORMAT = IndexFormat(slot_count=97, entry_count_max=5_000)
ENTRIES_BEGIN = INDEX_FORMAT.entries_begin
UNIT_BYTES, ENTRY_BYTES, CHECKSUM_BYTES = 20, 20, 16


@pytest.fixture
def new_store(tmp_path: Path, clock: ManualClock) -> OpenStore:
    """Makes stores with a small index over one directory."""

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
    """Messages with tags and a key each."""
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
    """Records of two queues over several segments and queue files, with keys in the first."""
    store.open()
    put_keyed(store, 10)
    put_all(store, numbered(50))
    put(store, numbered(3), OTHER)


@pytest.fixture
def folder(new_store: OpenStore, tmp_path: Path) -> Path:
    """A store after a clean stop."""
    store = new_store()
    fill(store)
    store.close()
    return tmp_path


def check(folder: Path, index_format: IndexFormat = INDEX_FORMAT) -> list[Finding]:
    return list(StoreCheck(folder, StoreSizes.of(folder), index_format).run())


def faults(folder: Path) -> list[tuple[str, int, str]]:
    """Path below the folder, offset and text."""
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


def write_at(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def flip(path: Path, position: int) -> None:
    """Flip the lowest bit of a byte."""
    write_at(path, position, bytes([path.read_bytes()[position] ^ 1]))


def unit_of(folder: Path, number: int) -> tuple[int, int]:
    """Log offset and size that the unit of the first queue file names."""
    data = (folder / f"consumequeue/TopicA/2/{FIRST}").read_bytes()
    offset, size = struct.unpack_from(">qi", data, number * UNIT_BYTES)
    return offset, size


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


@pytest.mark.parametrize("name", ["clean", "crashed"])
@pytest.mark.skipif(not GOLDEN.exists(), reason="the golden stores are not here")
def test_f14_a_store_of_rocketmq_has_no_faults(tmp_path: Path, name: str) -> None:
    archive = GOLDEN / f"rocketmq_store_{name}.tar.gz"
    subprocess.run(["tar", "-xSzf", archive, "-C", tmp_path], check=True)
    (folder,) = (path.parent for path in tmp_path.rglob("commitlog"))
    found = check(folder, IndexFormat())
    assert not [one for one in found if isinstance(one, Fault)]
    assert "body's CRC only" in found[-1].text


Plant = Callable[[Path], tuple[str, int, str]]


def bad_body(folder: Path) -> tuple[str, int, str]:
    offset, _ = unit_of(folder, 5)
    flip(folder / "commitlog" / FIRST, offset + 90)
    return f"commitlog/{FIRST}", offset, "body CRC"


def bad_header(folder: Path) -> tuple[str, int, str]:
    offset, _ = unit_of(folder, 5)
    flip(folder / "commitlog" / FIRST, offset + 19)
    return f"commitlog/{FIRST}", offset, "differs from its checksum"


def moved_record(folder: Path) -> tuple[str, int, str]:
    offset, _ = unit_of(folder, 5)
    flip(folder / "commitlog" / FIRST, offset + 35)
    return f"commitlog/{FIRST}", offset, "says that it lies at"


def lost_blank(folder: Path) -> tuple[str, int, str]:
    path = folder / "commitlog" / FIRST
    end = path.read_bytes().rindex(b"\xcb\xd4\x31\x94") - 4
    write_at(path, end, bytes(8))
    return f"commitlog/{FIRST}", end, "damaged"


def behind_the_end(folder: Path) -> tuple[str, int, str]:
    path = max((folder / "commitlog").iterdir())
    end = len(path.read_bytes().rstrip(b"\0"))
    mark = json.loads((folder / "rocketpy/manifest.json").read_bytes())["logEnd"]
    assert mark % SEGMENT_BYTES >= end
    write_at(path, mark % SEGMENT_BYTES + 10, b"x")
    return f"commitlog/{path.name}", mark % SEGMENT_BYTES, "behind the log's end"


def bad_checksum_entry(folder: Path) -> tuple[str, int, str]:
    flip(folder / "rocketpy/checksums" / FIRST, 3 * CHECKSUM_BYTES + 11)
    return f"rocketpy/checksums/{FIRST}", 3 * CHECKSUM_BYTES, "does not agree with its check"


def lost_checksums(folder: Path) -> tuple[str, int, str]:
    (folder / "rocketpy/checksums" / FIRST).unlink()
    return f"rocketpy/checksums/{FIRST}", 0, "is missing"


def edit_unit(number: int, layout: str, place: int, value: int, text: str) -> Plant:
    """Plants a value in a unit of the second queue file."""

    def plant(folder: Path) -> tuple[str, int, str]:
        path = folder / f"consumequeue/TopicA/2/{200:020d}"
        write_at(path, number * UNIT_BYTES + place, struct.pack(layout, value))
        return str(path.relative_to(folder)), number * UNIT_BYTES, text

    return plant


def missing_unit(folder: Path) -> tuple[str, int, str]:
    path = folder / f"consumequeue/TopicA/2/{200:020d}"
    write_at(path, 40, bytes(UNIT_BYTES))
    return str(path.relative_to(folder)), 40, "unit 12 missing"


def extra_unit(folder: Path) -> tuple[str, int, str]:
    path = folder / f"consumequeue/TopicB/0/{FIRST}"
    write_at(path, 60, struct.pack(">qiq", *unit_of(folder, 0), 0))
    return str(path.relative_to(folder)), 60, "unit 3: log offset 0, where the log has no record"


def unit_behind_log(folder: Path) -> tuple[str, int, str]:
    path = folder / f"consumequeue/TopicB/0/{FIRST}"
    write_at(path, 60, struct.pack(">qiq", 1 << 30, 100, 0))
    return str(path.relative_to(folder)), 60, "behind the log's end"


def index_file(folder: Path) -> Path:
    (path,) = (folder / "index").iterdir()
    return path


def edit_index(position: int, layout: str, value: int, offset: int, text: str) -> Plant:
    """Plants a value in the index file; `offset` is where the fault is told."""

    def plant(folder: Path) -> tuple[str, int, str]:
        path = index_file(folder)
        write_at(path, position, struct.pack(layout, value))
        return str(path.relative_to(folder)), offset, text

    return plant


def used_slot(folder: Path) -> tuple[str, int, str]:
    path = index_file(folder)
    with path.open("rb") as file:
        file.seek(ENTRIES_BEGIN + 4 * ENTRY_BYTES)
        slot = struct.unpack(">i", file.read(4))[0] % INDEX_FORMAT.slot_count
    write_at(path, 40 + 4 * slot, struct.pack(">i", 9))
    return str(path.relative_to(folder)), 40 + 4 * slot, f"slot {slot} names entry 9"


def edit_file(name: str, position: int, data: bytes, offset: int, text: str) -> Plant:
    """Plants bytes in a file of which there is one."""

    def plant(folder: Path) -> tuple[str, int, str]:
        write_at(folder / name, position, data)
        return name, offset, text

    return plant


def make_file(name: str, data: bytes, offset: int, text: str) -> Plant:
    """Plants a file."""

    def plant(folder: Path) -> tuple[str, int, str]:
        path = folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(data)
        return name, offset, text

    return plant


FAR = struct.pack(">q", 1 << 50)
ENTRY_5 = ENTRIES_BEGIN + 5 * ENTRY_BYTES
PLANTS: dict[str, Plant] = {
    "body": bad_body,
    "header": bad_header,
    "physical offset": moved_record,
    "blank record": lost_blank,
    "behind the end": behind_the_end,
    "checksum entry": bad_checksum_entry,
    "checksum file": lost_checksums,
    "checksum file's size": make_file(f"rocketpy/checksums/{FIRST}", b"x", 0, "has 1 bytes"),
    "unit's offset": edit_unit(1, ">q", 0, 7, "unit 11: log offset 7, but the record lies at"),
    "unit's size": edit_unit(1, ">i", 8, 7, "unit 11: size 7"),
    "unit's code": edit_unit(1, ">q", 12, 7, "unit 11: tags code 7"),
    "unit is blank": edit_unit(1, ">i", 8, 0x7FFFFFFF, "unit 11 blank, but a record"),
    "unit is missing": missing_unit,
    "unit too many": extra_unit,
    "unit behind the log": unit_behind_log,
    "behind the units": edit_unit(9, ">q", 0, 7, "unit 19"),
    "index hash": edit_index(ENTRY_5, ">i", 7, ENTRY_5, "entry 5 names log offset"),
    "index offset": edit_index(ENTRY_5 + 4, ">q", 7, ENTRY_5, "entry 5 names log offset 7"),
    "index seconds": edit_index(ENTRY_5 + 12, ">i", 7, ENTRY_5, "entry 5 is of second 7"),
    "index chain": edit_index(ENTRY_5 + 16, ">i", 5, ENTRY_5 + 16, "entry 5 names 5 as the one"),
    "index slot": used_slot,
    "index begin": edit_index(16, ">q", 7, 16, "begin_offset of the header is 7"),
    "index end": edit_index(24, ">q", 7, 24, "end_offset of the header is 7"),
    "index slots used": edit_index(32, ">i", 99, 32, "slots_used of the header is 99"),
    "index begin time": edit_index(7, ">B", 7, 0, "begin_timestamp of the header"),
    "index end time": edit_index(15, ">B", 7, 8, "end_timestamp of the header"),
    "index count": edit_index(36, ">i", 1 << 30, 36, "at most 4999 fit"),
    "index count short": edit_index(36, ">i", 8, ENTRIES_BEGIN + 8 * ENTRY_BYTES, "3 keys"),
    "index tail": edit_index(
        ENTRY_5 + 6000, ">i", 7, ENTRY_5 + 6003, "behind the last entry is something"
    ),
    "index file's name": make_file("index/notes.txt", b"", 0, "is no file named by 17 digits"),
    "checkpoint time": edit_file("checkpoint", 0, FAR, 0, "physicMsgTimestamp is"),
    "checkpoint logics": edit_file("checkpoint", 8, FAR, 8, "logicsMsgTimestamp is"),
    "checkpoint offset": edit_file("checkpoint", 32, FAR, 32, "confirmPhyOffset is"),
    "checkpoint rest": edit_file("checkpoint", 100, b"x", 100, "behind the fields"),
    "checkpoint size": make_file("checkpoint", b"x", 0, "has 1 bytes instead of 4096"),
    "mark": edit_file("rocketpy/flushed", 5, b"x", 0, "its CRC is wrong"),
    "manifest": make_file("rocketpy/manifest.json", b"{", 0, "cannot be read"),
    "json": make_file("config/topics.json", b'{\n"a":\n1 2}', 9, "is no JSON object"),
    "json backup": make_file("config/topics.json.bak", b"[]", 0, "it is of another type"),
    "json bytes": make_file("config/topics.json", b'{"a": "\xff"}', 7, "invalid start byte"),
    "deleted topics": make_file(
        "config/deletedTopics.json", b'{"T": "x"}', 0, "the mark of topic T is 'x'"
    ),
    "deleted later": make_file(
        "config/deletedTopics.json", b'{"T": 9999999}', 0, "deleted below 9999999, but"
    ),
    "name in the log": make_file("commitlog/notes.txt", b"x", 0, "is not named by 20 digits"),
    "gap in the log": make_file(
        f"commitlog/{90 * SEGMENT_BYTES:020d}", bytes(SEGMENT_BYTES), 0, "should begin at"
    ),
    "size in a queue": make_file(
        f"consumequeue/TopicA/2/{100_000:020d}", b"x", 0, "has 1 bytes instead of 200"
    ),
    "name of a queue": make_file("consumequeue/TopicA/two/x", b"", 0, "is no queue"),
}


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


def test_a_topic_that_was_deleted_and_made_again_is_fine(
    new_store: OpenStore, tmp_path: Path
) -> None:
    store = new_store()
    fill(store)
    store.delete_topic(QUEUE.topic)
    put(store, [b"new"])
    store.close()
    assert faults(tmp_path) == []


def test_removed_segments_are_fine(new_store: OpenStore, tmp_path: Path) -> None:
    store = new_store()
    fill(store)
    store.flushed(store.plan_flush())
    store.remove_oldest_segment()
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
