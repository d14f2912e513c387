"""Start on a log that RocketMQ left: without our files, records are checked by themselves."""

from __future__ import annotations

import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker.store.log.scanner import SCAN_BYTES_MAX
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import GetMessageStatus, QueueBounds, ReadLimits
from rocketpy_proto.record.layout import MAGIC_V1
from tests.store.recovery.rocketmq_turn import RocketMQTurn
from tests.support.store.messages import NO_END, OTHER, QUEUE, numbered, put, put_all, read_all
from tests.support.store.planted_faults import FIRST, UNIT_BYTES, flip, unit_of, write_at
from tests.support.store.stores import SEGMENT_BYTES, OpenStore, crash

MAGIC = struct.pack(">I", MAGIC_V1)


def bodies_read(store_of: OpenStore) -> list[bytes]:
    """Returns all readable bodies and skips the rest."""
    store = store_of()
    store.open()
    found: list[bytes] = []
    bounds = store.range_of(QUEUE)
    for offset in range(bounds.min_offset, bounds.max_offset):
        result = store.get_message(QUEUE, offset, offset + 1, ReadLimits())
        if result.status is GetMessageStatus.FOUND:
            found += [bytes(part) for part in result.parts]
    store.close()
    return found


def left_by_rocketmq(
    new_store: OpenStore, folder: Path, bodies: list[bytes], **settings: Any
) -> None:
    store = new_store(**settings)
    store.open()
    put_all(store, bodies)
    store.close()
    shutil.rmtree(folder / "rocketpy")


def test_s09_a_long_log_without_checksums_is_walked_in_parts(
    new_store: OpenStore, tmp_path: Path
) -> None:
    large = {"segment_bytes": 2 * SCAN_BYTES_MAX}
    bodies = [b"%d" % number + bytes(SCAN_BYTES_MAX // 5) for number in range(8)]
    left_by_rocketmq(new_store, tmp_path, bodies, **large)
    store = new_store(**large)
    assert store.open().records_scanned == 8
    assert read_all(store) == bodies


@pytest.mark.parametrize("body", [b"plain", b"with " + MAGIC + b" inside, as if one began"])
def test_f05_damage_before_the_segment_where_rocketmq_would_begin_is_passed_over(
    new_store: OpenStore, tmp_path: Path, body: bytes
) -> None:
    left_by_rocketmq(new_store, tmp_path, [*numbered(5), body * 4, *numbered(50, 6)])
    offset, size = unit_of(tmp_path, 5)
    flip(tmp_path / "commitlog" / FIRST, offset + 90)
    store = new_store()
    (damage,) = store.open().damages
    assert (damage.offset, damage.length) == (offset, size)
    assert store.range_of(QUEUE) == QueueBounds(0, 56)
    store.close()
    assert len(bodies_read(new_store)) == 55


@pytest.mark.parametrize("place", [2, 90], ids=["size", "body"])
def test_f16_damage_where_rocketmq_would_find_it_ends_the_log(
    new_store: OpenStore, tmp_path: Path, place: int
) -> None:
    left_by_rocketmq(new_store, tmp_path, numbered(11))
    offset, _ = unit_of(tmp_path, 5)
    flip(tmp_path / "commitlog" / FIRST, offset + place)
    store = new_store()
    result = store.open()
    assert (result.end, result.damages) == (offset, [])
    assert read_all(store) == numbered(5)


def test_f16_what_rocketmqs_check_lets_pass_does_not_end_the_log(
    new_store: OpenStore, tmp_path: Path
) -> None:
    left_by_rocketmq(new_store, tmp_path, numbered(11))
    offset, size = unit_of(tmp_path, 5)
    flip(tmp_path / "commitlog" / FIRST, offset + 35)  # the place in the record
    store = new_store()
    (damage,) = store.open().damages
    assert (damage.offset, damage.length) == (offset, size)
    store.close()
    assert len(bodies_read(new_store)) == 10


def test_f05_damage_of_a_segments_last_record_does_not_end_the_log(
    new_store: OpenStore, tmp_path: Path
) -> None:
    left_by_rocketmq(new_store, tmp_path, numbered(100))
    first_segment = (tmp_path / "commitlog" / FIRST).read_bytes()
    last = max(first_segment.rindex(MAGIC) - 4, 0)
    flip(tmp_path / "commitlog" / FIRST, last + 90)
    store = new_store()
    (damage,) = store.open().damages
    assert damage.offset == last
    store.close()
    assert len(bodies_read(new_store)) == 99


def test_f05_damage_of_the_last_record_is_the_end_of_the_log(
    new_store: OpenStore, tmp_path: Path
) -> None:
    left_by_rocketmq(new_store, tmp_path, numbered(10))
    offset, _ = unit_of(tmp_path, 9)
    flip(tmp_path / "commitlog" / FIRST, offset + 90)
    store = new_store()
    result = store.open()
    assert (result.end, result.damages) == (offset, [])
    assert read_all(store) == numbered(9)


def test_s09_behind_a_record_that_leaves_no_room_for_a_blank_one_the_next_segment_begins(
    new_store: OpenStore, tmp_path: Path
) -> None:
    store = new_store(segment_bytes=2 * SEGMENT_BYTES)
    store.open()
    put(store, [b""])
    put(store, [bytes(SEGMENT_BYTES - 4 - 2 * unit_of(tmp_path, 0)[1])])
    assert store.positions().log_end == SEGMENT_BYTES - 4
    store.close()
    shutil.rmtree(tmp_path / "rocketpy")
    path = tmp_path / "commitlog" / FIRST
    path.write_bytes(path.read_bytes()[:SEGMENT_BYTES])
    again = new_store()
    assert again.open().end == SEGMENT_BYTES
    assert again.range_of(QUEUE) == QueueBounds(0, 2)
    assert put(again, [b"next"]) == SEGMENT_BYTES
    again.close()
    assert path.stat().st_size == SEGMENT_BYTES
    assert len(bodies_read(new_store)) == 3


def test_s09_units_of_no_record_behind_the_last_one_are_dropped(
    open_store: OpenStore, tmp_path: Path, store: MessageStore
) -> None:
    put(store, numbered(3))
    put(store, [b"other"], OTHER)
    crash(store)
    (tmp_path / "rocketpy" / "manifest.json").unlink()
    path = tmp_path / f"consumequeue/TopicA/2/{FIRST}"
    write_at(path, 3 * UNIT_BYTES, path.read_bytes()[:UNIT_BYTES])
    again = open_store()
    assert again.range_of(QUEUE) == QueueBounds(0, 3)
    put(again, numbered(1, 3))
    assert read_all(again) == numbered(4)
    assert again.get_message(QUEUE, 3, NO_END, ReadLimits()).next_offset == 4


def with_property_crc(folder: Path, turn: RocketMQTurn, number: int) -> int:
    """Stores a message with a CRC of the whole record, as RocketMQ; returns its position."""
    begin = turn.end
    key = "__CRC32#"
    turn.put(QUEUE, b"sealed %d" % number, 1_800_000_000_000, {"a": "b", key: "0" * 10})
    path = folder / "commitlog" / FIRST
    record = path.read_bytes()[begin : turn.end]
    digits = f"{zlib.crc32(record[:-20]) & 0x7FFFFFFF:010d}"[::-1]
    write_at(path, turn.end - 11, digits.encode())
    return begin


@pytest.mark.parametrize("place", [None, 16, 97, -3], ids=["none", "flag", "topic", "digit"])
def test_f16_rocketmqs_crc_of_the_whole_record_is_verified(
    new_store: OpenStore, tmp_path: Path, place: int | None
) -> None:
    left_by_rocketmq(new_store, tmp_path, numbered(3))
    turn = RocketMQTurn(tmp_path)
    turn.start(sum(unit_of(tmp_path, 2)))
    begins = [with_property_crc(tmp_path, turn, number) for number in range(3)]
    turn.leave(abort=None)
    if place is not None:
        flip(tmp_path / "commitlog" / FIRST, (begins[1] if place > 0 else begins[2]) + place)
    store = new_store()
    result = store.open()
    assert result.end == turn.end
    assert [damage.offset for damage in result.damages] == ([] if place is None else [begins[1]])
    store.close()
    assert len(bodies_read(new_store)) == (6 if place is None else 5)


@pytest.mark.parametrize("place", [3, 90], ids=["size", "body"])
def test_f05_the_offset_of_a_queues_damaged_last_record_is_not_given_again(
    new_store: OpenStore, tmp_path: Path, place: int, store: MessageStore
) -> None:
    put(store, numbered(3))
    for _ in range(2):
        put(store, [bytes(SEGMENT_BYTES // 2)], OTHER)
    store.close()
    shutil.rmtree(tmp_path / "rocketpy")
    flip(tmp_path / "commitlog" / FIRST, unit_of(tmp_path, 2)[0] + place)
    again = new_store()
    assert len(again.open().damages) == 1
    assert again.range_of(QUEUE) == QueueBounds(0, 3)
    put(again, [b"next"])
    result = again.get_message(QUEUE, 3, NO_END, ReadLimits())
    assert (len(result.sizes), result.next_offset) == (1, 4)
