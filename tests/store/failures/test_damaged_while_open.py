"""Reads of data that was damaged while the store is open: queue files, log and checksums."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.units import BLANK_SIZE
from rocketpy_broker.store.values import GetMessageStatus, QueueKey, ReadLimits
from tests.support.blocks import bodies_of
from tests.support.store.messages import NO_END, QUEUE, numbered, put, read_all
from tests.support.store.planted_faults import (
    CHECKSUM_BYTES,
    FIRST,
    UNIT_BYTES,
    flip,
    unit_of,
    write_at,
)
from tests.support.store.stores import OpenStore


@pytest.fixture
def store(open_store: OpenStore) -> MessageStore:
    """Returns a store after a clean restart; it has not read its ten records yet."""
    first = open_store()
    put(first, numbered(10))
    first.close()
    return open_store()


def write_unit(folder: Path, number: int, place: int, value: bytes) -> None:
    write_at(folder / f"consumequeue/TopicA/2/{FIRST}", number * UNIT_BYTES + place, value)


def forget_checksums(folder: Path) -> None:
    write_at(folder / f"rocketpy/checksums/{FIRST}", 0, bytes(10 * CHECKSUM_BYTES))


def passed_over(store: MessageStore, offset: int, next_offset: int) -> None:
    """Asserts that a read at `offset` finds nothing and returns `next_offset`."""
    result = store.get_message(QUEUE, offset, NO_END, ReadLimits())
    assert (result.status, result.next_offset) == (
        GetMessageStatus.MESSAGE_WAS_REMOVING,
        next_offset,
    )
    assert len(result.sizes) == 0


def test_s11_blank_units_are_passed_over_up_to_the_next_record(
    store: MessageStore, tmp_path: Path
) -> None:
    for number in (3, 4, 5):
        write_unit(tmp_path, number, 8, struct.pack(">i", BLANK_SIZE))
    passed_over(store, 3, 6)
    for number in range(6, 10):
        write_unit(tmp_path, number, 8, struct.pack(">i", BLANK_SIZE))
    passed_over(store, 3, 10)


def test_s11_a_unit_of_a_record_that_the_log_has_not_is_passed_over(
    store: MessageStore, tmp_path: Path
) -> None:
    write_unit(tmp_path, 3, 0, struct.pack(">q", 1 << 40))
    passed_over(store, 3, 4)
    after = store.get_message(QUEUE, 4, NO_END, ReadLimits())
    assert len(after.sizes) == 6


@pytest.mark.parametrize("size", [0, -5, 1 << 20])
def test_f05_a_unit_with_an_impossible_size_costs_its_record_only(
    store: MessageStore, tmp_path: Path, size: int
) -> None:
    write_unit(tmp_path, 3, 8, struct.pack(">i", size))
    before = store.get_message(QUEUE, 0, NO_END, ReadLimits())
    assert len(before.sizes) == 3
    passed_over(store, 3, 4)
    assert store.statistics.corrupt_record_count == 1
    assert len(store.get_message(QUEUE, 4, NO_END, ReadLimits()).sizes) == 6


def test_f05_records_without_a_checksum_are_known_by_their_body(
    store: MessageStore, tmp_path: Path
) -> None:
    forget_checksums(tmp_path)
    assert read_all(store) == numbered(10)


@pytest.mark.parametrize("place", [3, 35, 90], ids=["size", "physical offset", "body"])
def test_f05_damage_is_found_without_a_checksum_too_and_told_once(
    store: MessageStore, tmp_path: Path, place: int
) -> None:
    forget_checksums(tmp_path)
    offset, _ = unit_of(tmp_path, 4)
    flip(tmp_path / "commitlog" / FIRST, offset + place)
    assert len(store.get_message(QUEUE, 0, NO_END, ReadLimits()).sizes) == 4
    passed_over(store, 4, 5)
    passed_over(store, 4, 5)
    assert store.statistics.corrupt_record_count == 1
    (copy,) = (tmp_path / "rocketpy" / "quarantine").iterdir()
    assert copy.name.startswith(f"{offset:020d}.damaged")


def test_f05_the_first_of_two_damaged_records_ends_a_read_whichever_has_a_checksum(
    store: MessageStore, tmp_path: Path
) -> None:
    path = tmp_path / f"rocketpy/checksums/{FIRST}"
    write_at(path, 6 * CHECKSUM_BYTES, bytes(CHECKSUM_BYTES))
    for number in (6, 8):
        flip(tmp_path / "commitlog" / FIRST, unit_of(tmp_path, number)[0] + 90)
    assert len(store.get_message(QUEUE, 0, NO_END, ReadLimits()).sizes) == 6
    assert len(store.get_message(QUEUE, 7, NO_END, ReadLimits()).sizes) == 1


@pytest.mark.parametrize("neighbours", [[QUEUE], [QUEUE, QueueKey("TopicA", 3)]])
@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize(("place", "difference"), [(0, 4), (0, -4), (8, 4), (8, -4)])
def test_f16_a_wrong_unit_of_a_record_that_this_process_wrote_costs_its_record_only(
    open_store: OpenStore,
    tmp_path: Path,
    neighbours: list[QueueKey],
    number: int,
    place: int,
    difference: int,
) -> None:
    store = open_store()
    right = numbered(10)
    for body in right:
        for queue in neighbours:
            put(store, [body], queue)
    form = ">q" if place == 0 else ">i"
    value = unit_of(tmp_path, number)[0 if place == 0 else 1] + difference
    write_unit(tmp_path, number, place, struct.pack(form, value))
    assert bodies_one_by_one(store, 10) == right[:number] + right[number + 1 :]


@pytest.mark.parametrize("number", [0, 4, 9])
@pytest.mark.parametrize("unit", [(0, ">q", (1 << 63) - 1), (8, ">i", -(1 << 31))])
def test_f16_a_unit_that_no_number_is_too_large_for_costs_its_record_only(
    open_store: OpenStore, tmp_path: Path, number: int, unit: tuple[int, str, int]
) -> None:
    store = open_store()
    right = numbered(10)
    put(store, right)
    place, form, value = unit
    write_unit(tmp_path, number, place, struct.pack(form, value))
    assert bodies_one_by_one(store, 10) == right[:number] + right[number + 1 :]


def bodies_one_by_one(store: MessageStore, offset_end: int) -> list[bytes]:
    """Returns the bodies of consecutive reads, each at the next offset of the one before."""
    bodies, offset = [], 0
    while offset < offset_end:
        result = store.get_message(QUEUE, offset, NO_END, ReadLimits())
        bodies += bodies_of(b"".join(map(bytes, result.parts)), result.sizes)
        offset = result.next_offset
    return bodies
