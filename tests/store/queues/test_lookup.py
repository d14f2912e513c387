"""Offsets by store time, and the sizes of a queue's records."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.readers.lookup import RANGE_UNITS_MAX, QueueLookup, StoredAt
from rocketpy_broker.store.queues.readers.messages import (
    MessageLookup,
    MessagePosition,
    WalkPosition,
)
from rocketpy_broker.store.queues.units import BLANK_SIZE
from rocketpy_broker.store.values import QueueKey
from tests.store.test_cleaner import aged, clean
from tests.support.blocks import wire_block
from tests.support.store.messages import (
    OTHER,
    QUEUE,
    flush_log,
    numbered,
    put,
    remove_oldest_segment,
)
from tests.support.store.planted_faults import FIRST, UNIT_BYTES, flip, unit_of, write_at
from tests.support.store.stores import (
    OpenStore,
    store_in,
)


def put_over_time(store: MessageStore, clock: ManualClock, gaps_ms: list[int]) -> list[int]:
    """Appends one message after each gap; returns their store times."""
    times = []
    for gap_ms in gaps_ms:
        clock.advance(gap_ms)
        put(store, [b"x"])
        put(store, [b"other"], OTHER)
        times.append(clock.now_ms())
    return times


def lower_boundary(times: list[int], timestamp_ms: int, begin: int = 0) -> int | None:
    """Returns the expected result of a search, by a scan of all messages."""
    later = (offset for offset in range(begin, len(times)) if times[offset] >= timestamp_ms)
    return next(later, None)


def offset_since(store: MessageStore, timestamp_ms: int) -> int | None:
    found = store.queue_lookup.first_since(QUEUE, timestamp_ms)
    return None if found is None else found.offset


def searched(store: MessageStore, times: list[int], begin: int = 0) -> None:
    """Asserts that each time and its neighbours are found as by a scan of all messages."""
    for time_ms in {time_ms + delta for time_ms in times for delta in (-1, 0, 1)}:
        found = store.queue_lookup.first_since(QUEUE, time_ms)
        expected = lower_boundary(times, time_ms, begin)
        assert found == (None if expected is None else StoredAt(expected, times[expected]))


@settings(max_examples=20)
@given(gaps_ms=st.lists(st.integers(0, 3), max_size=40))
def test_k05_the_first_of_the_messages_stored_since_a_time_is_found(
    tmp_path_factory: pytest.TempPathFactory, gaps_ms: list[int]
) -> None:
    clock = ManualClock()
    store = store_in(tmp_path_factory.mktemp("store"), clock)
    store.open()
    searched(store, put_over_time(store, clock, gaps_ms))
    store.close()


def test_k05_a_queue_without_messages_has_none_since_any_time(store: MessageStore) -> None:
    assert store.queue_lookup.first_since(QUEUE, 0) is None


class NotedReads:
    """Look-ups of messages that note the records that they read."""

    def __init__(self, messages: MessageLookup) -> None:
        self._messages = messages
        self.offsets: list[int] = []

    def store_timestamp_ms(self, physical_offset: int) -> int | None:
        self.offsets.append(physical_offset)
        return self._messages.store_timestamp_ms(physical_offset)


def test_k05_a_search_reads_few_records(open_store: OpenStore) -> None:
    store = open_store(segment_bytes=1 << 20, queue_file_bytes=20_000)
    put(store, numbered(1000))
    reads, built = NotedReads(store.messages), store.queue_lookup
    lookup = QueueLookup(built._queues, cast("MessageLookup", reads), built._times)
    found = lookup.first_since(QUEUE, 1)
    assert found is not None
    assert found.offset == 0
    assert 0 < len(reads.offsets) <= 10


def test_k05_nothing_is_found_before_the_queues_minimum(
    clock: ManualClock, store: MessageStore
) -> None:
    times = put_over_time(store, clock, [1] * 120)
    plan = store.plan_flush()
    plan.run()
    store.flushed(plan)
    aged(store, clock, 3)
    assert clean(store, clock) == 3
    begin = store.range_of(QUEUE).min_offset
    assert begin > 0
    searched(store, times, begin)
    units = store.queue_lookup.unit_range(QUEUE, 0, 120)
    assert units is not None
    assert units.begin == begin


def test_k05_blank_units_are_no_messages(
    open_store: OpenStore, clock: ManualClock, tmp_path: Path
) -> None:
    store = open_store(queue_file_bytes=2000)
    times = put_over_time(store, clock, [1] * 20)
    file = tmp_path / "consumequeue" / "TopicA" / "2" / FIRST
    for number in (9, 10, 11, 12, 18, 19):
        write_at(file, number * UNIT_BYTES + 8, struct.pack(">i", BLANK_SIZE))
    assert [offset_since(store, times[number]) for number in (8, 9, 12, 13)] == [8, 13, 13, 13]
    assert [offset_since(store, times[number]) for number in (17, 18)] == [17, None]


def test_k05_damaged_records_are_passed_over(
    open_store: OpenStore, clock: ManualClock, tmp_path: Path
) -> None:
    store = open_store(segment_bytes=1 << 20, queue_file_bytes=2000)
    times = put_over_time(store, clock, [1] * 20)
    for number in (9, 10):
        # The highest byte of the store time.
        flip(tmp_path / "commitlog" / FIRST, unit_of(tmp_path, number)[0] + 56)
    assert [offset_since(store, times[number]) for number in (8, 9, 10, 11)] == [8, 11, 11, 11]


def test_k05_sizes_come_in_unit_ranges_of_one_file(open_store: OpenStore) -> None:
    most, end = RANGE_UNITS_MAX, RANGE_UNITS_MAX * 5 // 2 + 10
    store = open_store(segment_bytes=16 << 20, queue_file_bytes=most * 3 // 2 * UNIT_BYTES)
    bodies = numbered(end + 1)
    put(store, bodies)
    offset, ends, sizes = 0, [], []
    while units := store.queue_lookup.unit_range(QUEUE, offset, end):
        assert units.begin == offset
        ends.append(offset := units.end)
        sizes += units.sizes.tolist()
    assert ends == [most, most * 3 // 2, most * 5 // 2, end]
    fixed = len(wire_block(QUEUE.topic, [b""]).records)
    assert sizes == [fixed + len(body) for body in bodies[:end]]


def test_a_key_of_the_same_hash_in_another_topic_is_no_place_of_this_one(
    store: MessageStore,
) -> None:
    # Both names have the same Java hash.
    for topic in ("TAa", "TBB"):
        store.append(QueueKey(topic, 0), wire_block(topic, [b"a"], keys=["k"]).parsed())
    store.dispatch()
    for topic in ("TAa", "TBB"):
        offsets = store.messages.offsets_by_key(topic, "k", 9)
        assert offsets is not None
        assert len(offsets) == 2
        assert store.messages.places(topic, offsets) == [MessagePosition(0, 0)]


def test_a_walk_ends_at_the_start_of_the_log(store: MessageStore) -> None:
    """Covers entries of removed segments, a few of which each page of a query would pass."""
    position = WalkPosition()
    while store.positions().log_begin == 0:
        block = wire_block(QUEUE.topic, [b"x"] * 9, keys=["k"] * 9).parsed()
        store.append(QUEUE, block)
        flush_log(store)
        if store._log.files.segments[1:]:
            remove_oldest_segment(store)
    walk = store.messages.walk_key(QUEUE.topic, "k", 0, 1 << 50, 64, position)
    assert [None if each is None else len(each) for each in walk] == [len(block.data) // 9] * 9
    assert position.before is None


def test_s5_the_first_message_behind_an_end_of_the_log_is_found(store: MessageStore) -> None:
    ends = []
    for count in (3, 1, 40):
        put(store, [b"x"] * count)
        put(store, [b"other"] * 2, OTHER)
        ends.append(store.positions().log_end)
    first_after = store.queue_lookup.first_after
    assert [first_after(QUEUE, end) for end in (0, *ends, 1 << 40)] == [0, 3, 4, 44, 44]
    assert [first_after(OTHER, end) for end in (0, *ends)] == [0, 2, 4, 6]
    assert first_after(QueueKey("none", 0), 0) == 0


def test_s5_units_of_no_message_are_behind_no_end(open_store: OpenStore, tmp_path: Path) -> None:
    """Asserts that a reader of the blank units is not reported as past the log's end."""
    store = open_store(queue_file_bytes=2000)
    put(store, [b"x"] * 10)
    end = store.positions().log_end
    put(store, [b"y"] * 5)
    file = tmp_path / "consumequeue" / "TopicA" / "2" / FIRST
    for number in range(7, 12):
        write_at(file, number * UNIT_BYTES + 8, struct.pack(">i", BLANK_SIZE))
    assert store.queue_lookup.first_after(QUEUE, end) == 12


def test_the_last_message_is_the_last_that_can_be_read(
    open_store: OpenStore, clock: ManualClock, tmp_path: Path
) -> None:
    store = open_store(segment_bytes=1 << 20, queue_file_bytes=2000)
    times = put_over_time(store, clock, [1] * 5)
    assert store.queue_lookup.last(QUEUE) == StoredAt(4, times[4])
    file = tmp_path / "consumequeue" / "TopicA" / "2" / FIRST
    write_at(file, 4 * UNIT_BYTES + 8, struct.pack(">i", BLANK_SIZE))
    assert store.queue_lookup.last(QUEUE) == StoredAt(3, times[3])
    flip(tmp_path / "commitlog" / FIRST, unit_of(tmp_path, 3)[0] + 56)
    assert store.queue_lookup.last(QUEUE) == StoredAt(2, times[2])
    for number in range(3):
        write_at(file, number * UNIT_BYTES + 8, struct.pack(">i", BLANK_SIZE))
    assert store.queue_lookup.last(QUEUE) is None
    assert store.queue_lookup.last(QueueKey("none", 0)) is None
