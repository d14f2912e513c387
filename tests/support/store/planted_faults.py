"""Faults to plant in a whole store; each changes bytes and returns its expected report."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

from rocketpy_broker.store.index.layout import IndexFormat
from rocketpy_broker.store.log.checksums import checksums_file_bytes
from rocketpy_proto.record.crc import body_crc
from tests.support.store.stores import SEGMENT_BYTES

FIRST = "0" * 20
INDEX_FORMAT = IndexFormat(slot_count=97, entry_count_max=5_000)
ENTRIES_BEGIN = INDEX_FORMAT.entries_begin
UNIT_BYTES, ENTRY_BYTES, CHECKSUM_BYTES = 20, 20, 16


def write_at(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def flip(path: Path, position: int) -> None:
    """Flips the lowest bit of a byte."""
    write_at(path, position, bytes([path.read_bytes()[position] ^ 1]))


def unit_of(folder: Path, number: int) -> tuple[int, int]:
    """Returns the log offset and size in a unit of the first queue file."""
    data = (folder / f"consumequeue/TopicA/2/{FIRST}").read_bytes()
    offset, size = struct.unpack_from(">qi", data, number * UNIT_BYTES)
    return offset, size


BODY_LENGTH_OFFSET = 84


# The path below the folder, the byte, and a part of the text.
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
    return f"commitlog/{FIRST}", offset, "names its own offset as"


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
    return f"commitlog/{path.name}", mark % SEGMENT_BYTES, "after the log's end"


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
    return str(path.relative_to(folder)), 60, "after the log's end"


def index_file(folder: Path) -> Path:
    (path,) = (folder / "index").iterdir()
    return path


def edit_index(position: int, layout: str, value: int, offset: int, text: str) -> Plant:
    """Plants a value in the index file; the fault is reported at `offset`."""

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
    """Plants bytes in the only file of that name."""

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


_MARKS = {"T": 9_999_999}
MARK_BEYOND = json.dumps(
    {"topics": _MARKS, "crc": body_crc(json.dumps(_MARKS, sort_keys=True).encode())}
).encode()
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
    "unit's offset": edit_unit(1, ">q", 0, 7, "unit 11: log offset 7, but the record is at"),
    "unit's size": edit_unit(1, ">i", 8, 7, "unit 11: size 7"),
    "unit's code": edit_unit(1, ">q", 12, 7, "unit 11: tags code 7"),
    "unit is blank": edit_unit(1, ">i", 8, 0x7FFFFFFF, "unit 11 blank, but a record"),
    "unit is missing": missing_unit,
    "unit too many": extra_unit,
    "unit behind the log": unit_behind_log,
    "behind the units": edit_unit(9, ">q", 0, 7, "unit 19"),
    "index hash": edit_index(ENTRY_5, ">i", 7, ENTRY_5, "entry 5 names log offset"),
    "index offset": edit_index(ENTRY_5 + 4, ">q", 7, ENTRY_5, "entry 5 names log offset 7"),
    "index offset far": edit_index(
        ENTRY_5 + 4, ">q", 1 << 50, ENTRY_5, f"entry 5 names log offset {1 << 50}, where no"
    ),
    "index seconds": edit_index(ENTRY_5 + 12, ">i", 7, ENTRY_5, "entry 5 has second 7"),
    "index chain": edit_index(
        ENTRY_5 + 16, ">i", 5, ENTRY_5 + 16, "entry 5 names entry 5 as the previous"
    ),
    "index slot": used_slot,
    "index begin": edit_index(16, ">q", 7, 16, "begin_offset of the header is 7, but "),
    "index end": edit_index(24, ">q", 7, 24, "end_offset of the header is 7"),
    "index slots used": edit_index(32, ">i", 99, 32, "slots_used of the header is 99"),
    "index begin time": edit_index(7, ">B", 7, 0, "begin_timestamp of the header"),
    "index end time": edit_index(15, ">B", 7, 8, "end_timestamp of the header"),
    "index count": edit_index(36, ">i", 1 << 30, 36, "at most 4999 fit"),
    "index count short": edit_index(36, ">i", 8, ENTRIES_BEGIN + 8 * ENTRY_BYTES, "6 keys"),
    "index tail": edit_index(
        ENTRY_5 + 6000, ">i", 7, ENTRY_5 + 6003, "the bytes after the last entry are not zero"
    ),
    "index file's name": make_file(
        "index/notes.txt", b"", 0, "is no file with a name of 17 digits"
    ),
    "index file's size": make_file(f"index/{10**16}", b"x", 0, "has 1 bytes, but an index file"),
    "checkpoint time": edit_file("checkpoint", 0, FAR, 0, "physicMsgTimestamp is"),
    "checkpoint logics": edit_file("checkpoint", 8, FAR, 8, "logicsMsgTimestamp is"),
    "checkpoint offset": edit_file("checkpoint", 32, FAR, 32, "confirmPhyOffset is"),
    "checkpoint queues": edit_file("checkpoint", 40, FAR, 40, "logicsPhysicalOffset is"),
    "checkpoint rest": edit_file("checkpoint", 100, b"x", 100, "the bytes after the fields"),
    "checkpoint size": make_file("checkpoint", b"x", 0, "has 1 bytes instead of 4096"),
    "mark": edit_file("rocketpy/flushed", 5, b"x", 0, "its CRC is wrong"),
    "manifest": make_file("rocketpy/manifest.json", b"{", 0, "cannot be read"),
    "checkpoint negative": edit_file(
        "checkpoint", 16, struct.pack(">q", -5), 16, "indexMsgTimestamp is -5"
    ),
    "deep json": make_file("config/deep.json", b'{"a":' * 50_000, 0, "nested too deeply"),
    "json": make_file("config/topics.json", b'{\n"a":\n1 2}', 9, "is no JSON object"),
    "json backup": make_file("config/topics.json.bak", b"[]", 0, "it is of another type"),
    "json bytes": make_file("config/topics.json", b'{"a": "\xff"}', 7, "invalid start byte"),
    "deleted topics": make_file(
        "config/deletedTopics.json", b'{"T": "x"}', 0, "cannot be read (KeyError: 'topics')"
    ),
    "deleted later": make_file(
        "config/deletedTopics.json", MARK_BEYOND, 0, "deleted below 9999999, but"
    ),
    "emptied topics": make_file(
        "config/emptiedTopics.json", b"{}", 0, "cannot be read (KeyError: 'topics')"
    ),
    "emptied later": make_file(
        "config/emptiedTopics.json", MARK_BEYOND, 0, "emptied below 9999999, but"
    ),
    "name in the log": make_file("commitlog/notes.txt", b"x", 0, "is not named by 20 digits"),
    "gap in the log": make_file(
        f"commitlog/{90 * SEGMENT_BYTES:020d}", bytes(SEGMENT_BYTES), 0, "should start at"
    ),
    "size in a queue": make_file(
        f"consumequeue/TopicA/2/{100_000:020d}", b"x", 0, "has 1 bytes instead of 200"
    ),
    "multiple in the log": make_file(
        f"commitlog/{7:020d}", bytes(SEGMENT_BYTES), 0, "is not named by a multiple of 4096"
    ),
    "name of checksums": make_file(
        "rocketpy/checksums/notes.txt", b"x", 0, "is no file with a name of 20 digits"
    ),
    "checksums of no segment": make_file(
        f"rocketpy/checksums/{90 * SEGMENT_BYTES:020d}",
        bytes(checksums_file_bytes(SEGMENT_BYTES)),
        0,
        "belongs to no file of the log",
    ),
    "last bytes of a queue": edit_file(
        f"consumequeue/TopicB/0/{FIRST}", 115, b"x", 60, "56 bytes after the last unit"
    ),
    "file among topics": make_file("consumequeue/notes.txt", b"x", 0, "is no queue"),
    "file like a queue": make_file("consumequeue/TopicA/7", b"x", 0, "is no queue"),
    "name of a queue": make_file("consumequeue/TopicA/two/x", b"", 0, "is no queue"),
}
