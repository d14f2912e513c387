"""Reads of the store that are filtered by tags codes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.consume_queue import ConsumeQueue
from rocketpy_broker.store.queues.readers.candidates import SCAN_UNITS_MAX, matching_units
from rocketpy_broker.store.queues.units import BLANK_SIZE, UNIT
from rocketpy_broker.store.values import GetMessageResult, GetMessageStatus, ReadLimits
from rocketpy_proto.record.java_hash import java_hash
from tests.support.blocks import bodies_of, wire_block
from tests.support.store.messages import NO_END, QUEUE, put
from tests.support.store.planted_faults import FIRST, flip, unit_of
from tests.support.store.stores import (
    OpenStore,
    crash,
    store_in,
)

TAGS = ["TagA", "TagB", None]


def put_tagged(store: MessageStore, tags: Sequence[str | None]) -> None:
    """Appends one message per tag; its body has its offset and tag."""
    for tag in tags:
        body = b"%d %s" % (store.range_of(QUEUE).max_offset, (tag or "none").encode())
        store.append(QUEUE, wire_block(QUEUE.topic, [body], tags=tag).parsed())


def read(
    store: MessageStore,
    offset: int,
    *tags: str | None,
    bytes_max: int = 1 << 20,
    offset_end: int = NO_END,
) -> GetMessageResult:
    codes = np.array([java_hash(tag) if tag else 0 for tag in tags], np.int64)
    limits = ReadLimits.of_bytes(bytes_max, codes)
    return store.get_message(QUEUE, offset, offset_end, limits)


def bodies(result: GetMessageResult) -> list[bytes]:
    if len(result.sizes) == 0:
        return []
    return bodies_of(b"".join(bytes(part) for part in result.parts), result.sizes)


def test_c03_only_records_with_a_wanted_code_are_given(open_store: OpenStore) -> None:
    store = open_store(segment_bytes=1 << 20, queue_file_bytes=2000)
    put_tagged(store, ["TagA", "TagB", None, "TagB", "TagC"])
    found = read(store, 0, "TagB")
    assert (found.status, bodies(found)) == (GetMessageStatus.FOUND, [b"1 TagB", b"3 TagB"])
    assert found.next_offset == 5
    assert bodies(read(store, 0, "TagC", None)) == [b"2 none", b"4 TagC"]
    assert bodies(read(store, 2, "TagB", offset_end=3)) == []


def test_c03_what_does_not_match_is_passed_over(open_store: OpenStore) -> None:
    store = open_store(segment_bytes=1 << 20, queue_file_bytes=2000)
    put_tagged(store, ["TagA"] * 7)
    missed = read(store, 0, "TagB", offset_end=5)
    assert (missed.status, missed.next_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 5)
    assert (missed.min_offset, missed.max_offset) == (0, 7)
    at_end = read(store, 7, "TagB")
    assert (at_end.status, at_end.next_offset) == (GetMessageStatus.OFFSET_OVERFLOW_ONE, 7)


def test_c03_a_full_response_goes_on_at_the_next_match(open_store: OpenStore) -> None:
    store = open_store(segment_bytes=1 << 20, queue_file_bytes=2000)
    put_tagged(store, ["TagB", "TagA", "TagA", "TagB", "TagA"])
    first = read(store, 0, "TagB", bytes_max=1)
    assert (bodies(first), first.next_offset) == ([b"0 TagB"], 3)
    second = read(store, 3, "TagB", bytes_max=1)
    assert (bodies(second), second.next_offset) == ([b"3 TagB"], 5)


def test_c03_one_read_looks_at_a_bounded_number_of_units(open_store: OpenStore) -> None:
    store = open_store(segment_bytes=16 << 20, queue_file_bytes=20 * 3 * SCAN_UNITS_MAX)
    put(store, [b""] * (2 * SCAN_UNITS_MAX + 1))
    put_tagged(store, ["TagB"])
    places = []
    offset = 0
    while not bodies(result := read(store, offset, "TagB")):
        assert result.status is GetMessageStatus.NO_MATCHED_MESSAGE
        places.append(offset := result.next_offset)
    assert places == [SCAN_UNITS_MAX, 2 * SCAN_UNITS_MAX]


@settings(max_examples=20)
@given(
    tags=st.lists(st.sampled_from(TAGS), min_size=1, max_size=60),
    wanted=st.sets(st.sampled_from(TAGS), min_size=1),
    bytes_max=st.sampled_from([1, 400, 1 << 20]),
)
def test_c03_a_filtered_read_gives_what_an_unfiltered_one_has_of_the_tags(
    tmp_path_factory: pytest.TempPathFactory,
    tags: list[str | None],
    wanted: set[str | None],
    bytes_max: int,
) -> None:
    store = store_in(tmp_path_factory.mktemp("store"))
    store.open()
    put_tagged(store, tags)
    offset, given_bodies = 0, []
    while offset < len(tags):
        result = read(store, offset, *wanted, bytes_max=bytes_max)
        assert result.next_offset > offset
        given_bodies += bodies(result)
        offset = result.next_offset
    store.close()
    expected = [
        b"%d %s" % (number, (tag or "none").encode())
        for number, tag in enumerate(tags)
        if tag in wanted
    ]
    assert given_bodies == expected


def test_c03_a_damaged_match_is_told_at_its_own_offset_and_a_damaged_other_is_not_read(
    open_store: OpenStore, tmp_path: Path
) -> None:
    store = open_store(segment_bytes=1 << 20, queue_file_bytes=2000)
    put_tagged(store, ["TagA", "TagB", "TagA", "TagB", "TagA", "TagB"])
    store.close()
    for number in (2, 3):
        flip(tmp_path / "commitlog" / FIRST, unit_of(tmp_path, number)[0] + 90)
    again = open_store(segment_bytes=1 << 20, queue_file_bytes=2000)
    first = read(again, 0, "TagB")
    assert (bodies(first), first.next_offset) == ([b"1 TagB"], 3)
    lost = read(again, 3, "TagB")
    assert (lost.status, lost.next_offset) == (GetMessageStatus.MESSAGE_WAS_REMOVING, 4)
    passed = read(again, 2, "TagB")
    assert (passed.status, passed.next_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 3)
    assert bodies(read(again, 4, "TagB")) == [b"5 TagB"]
    crash(again)


def test_c03_blank_units_end_a_scan_and_match_no_code(tmp_path: Path) -> None:
    queue = ConsumeQueue(tmp_path, 2000)
    units = np.zeros(3, UNIT)
    units["size"] = 100
    queue.append(0, units)
    queue.append(5, units)
    assert queue.units(3, 4)["size"][0] == BLANK_SIZE
    found = matching_units(queue, 0, NO_END, np.array([0]))
    assert (len(found), found.offset_after(3)) == (3, 3)
    queue.close()


def test_a_range_without_offsets_has_no_match_and_ends_where_it_begins(
    store: MessageStore,
) -> None:
    put_tagged(store, TAGS)
    result = read(store, 1, "TagB", offset_end=1)
    assert (result.status, result.next_offset, result.is_cold) == (
        GetMessageStatus.NO_MATCHED_MESSAGE,
        1,
        False,
    )
