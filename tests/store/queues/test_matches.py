"""Reads of the store that are filtered by a function over records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import GetMessageResult, GetMessageStatus, ReadLimits
from rocketpy_proto.record import RecordBlock
from tests.support.blocks import bodies_of, wire_block
from tests.support.store.messages import NO_END, QUEUE
from tests.support.store.planted_faults import BODY_LENGTH_OFFSET, FIRST, flip, unit_of
from tests.support.store.stores import OpenStore, crash


def put(store: MessageStore, *bodies: bytes) -> None:
    store.append(QUEUE, wire_block(QUEUE.topic, bodies).parsed())


def has_a(block: RecordBlock) -> NDArray[np.bool_]:
    """Returns a mask of the records with the letter a as body."""
    return np.asarray(block.data[block.body_start] == ord("a"), np.bool_)


def read(
    store: MessageStore, offset: int, offset_end: int = NO_END, count_max: int = 100
) -> GetMessageResult:
    limits = ReadLimits(count_max, 1 << 20, count_max, 1 << 20, matches=has_a)
    return store.get_message(QUEUE, offset, offset_end, limits)


def bodies(result: GetMessageResult) -> list[bytes]:
    if len(result.sizes) == 0:
        return []
    return bodies_of(b"".join(bytes(part) for part in result.parts), result.sizes)


def test_c04_the_limits_bound_what_is_looked_at(open_store: OpenStore) -> None:
    store = open_store(segment_bytes=1 << 20, queue_file_bytes=2000)
    put(store, b"a", b"b", b"a", b"b", b"b", b"b", b"a")
    first = read(store, 0, count_max=4)
    assert (bodies(first), first.next_offset) == ([b"a", b"a"], 4)
    second = read(store, 4, count_max=2)
    assert (second.status, second.next_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 6)
    assert (second.min_offset, second.max_offset) == (0, 7)
    third = read(store, 6)
    assert (bodies(third), third.next_offset) == ([b"a"], 7)
    assert read(store, 7).status is GetMessageStatus.OFFSET_OVERFLOW_ONE
    assert store.statistics.get_message_count == 3


def test_c04_records_of_several_queues_in_turns_are_gathered(open_store: OpenStore) -> None:
    store = open_store(segment_bytes=1 << 20, queue_file_bytes=2000)
    other = QUEUE._replace(queue_id=QUEUE.queue_id + 1)
    for body in (b"a", b"b", b"a"):
        put(store, body)
        store.append(other, wire_block(QUEUE.topic, [b"a"]).parsed())
    assert bodies(read(store, 0)) == [b"a", b"a"]


def test_c04_a_damaged_record_is_told_at_its_own_offset(
    open_store: OpenStore, tmp_path: Path
) -> None:
    store = open_store(segment_bytes=1 << 20, queue_file_bytes=2000)
    put(store, b"a", b"b", b"b", b"a")
    store.close()
    flip(tmp_path / "commitlog" / FIRST, unit_of(tmp_path, 2)[0] + 90)
    again = open_store(segment_bytes=1 << 20, queue_file_bytes=2000)
    first = read(again, 0)
    assert (bodies(first), first.next_offset) == ([b"a"], 2)
    lost = read(again, 2)
    assert (lost.status, lost.next_offset) == (GetMessageStatus.MESSAGE_WAS_REMOVING, 3)
    assert bodies(read(again, 3)) == [b"a"]
    crash(again)


def test_c04_what_went_bad_in_memory_is_left_to_its_reader(
    open_store: OpenStore, tmp_path: Path
) -> None:
    store = open_store(segment_bytes=1 << 20, queue_file_bytes=2000)
    put(store, b"a", b"b", b"b", b"a")
    flip(tmp_path / "commitlog" / FIRST, unit_of(tmp_path, 2)[0] + BODY_LENGTH_OFFSET)
    first = read(store, 0)
    assert (bodies(first), first.next_offset) == ([b"a"], 2)
    bad = read(store, 2)
    assert (bad.status, len(bad.sizes), bad.next_offset) == (GetMessageStatus.FOUND, 1, 3)
    assert bodies(read(store, 3)) == [b"a"]
