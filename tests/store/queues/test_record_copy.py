"""Records of this process: served only if the first and last ones are at their places.

Copied records are checked one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from rocketpy_broker.store.log.segment import Segment
from rocketpy_broker.store.queues.readers.record_copy import (
    Parts,
    gather,
    gather_few,
    gather_written,
)
from rocketpy_broker.store.queues.units import BLANK_SIZE, UNIT, Units
from rocketpy_proto.record import Record, encode_record
from rocketpy_proto.record.layout import FIXED_BYTES

SEGMENT_BYTES, BASE, COUNT = 1 << 16, 1 << 16, 80
# Positions in a record: its size, its magic, its physical offset.
TOTAL_SIZE_AT, MAGIC_AT, PLACE_AT = 3, 7, 35


Gather = Callable[[Segment, np.ndarray, np.ndarray], "Parts | None"]


def units_of(offsets: np.ndarray, sizes: np.ndarray) -> Units:
    """Returns units of these records."""
    units = np.zeros(len(sizes), UNIT)
    units["physical_offset"], units["size"] = offsets, sizes
    return units


def few(segment: Segment, offsets: np.ndarray, sizes: np.ndarray) -> Parts | None:
    """Returns all of the records, as a read of few records does."""
    gathered = gather_few(segment, units_of(offsets, sizes), 1 << 40)
    assert gathered is None or gathered[1] == len(sizes)
    return gathered and gathered[0]


@pytest.fixture(params=[gather_written, few])
def checked(request: pytest.FixtureRequest) -> Gather:
    """Returns a reader that checks records."""
    reader: Gather = request.param
    return reader


@pytest.fixture
def segment(tmp_path: Path) -> Iterator[Segment]:
    """Yields a file with COUNT adjacent records of several sizes."""
    made = Segment.create(tmp_path, BASE, SEGMENT_BYTES)
    position = 0
    for number in range(COUNT):
        body = bytes([number]) * (50 + number % 7)
        data = encode_record(Record("T", 0, body, physical_offset=BASE + position))
        made.write(position, memoryview(data))
        position += len(data)
    yield made
    made.close()


def places(segment: Segment) -> tuple[np.ndarray, np.ndarray]:
    """Returns the physical offsets and sizes of all records."""
    offsets, sizes, position = [], [], 0
    for _ in range(COUNT):
        size = int.from_bytes(segment.view[position : position + 4], "big")
        offsets.append(BASE + position)
        sizes.append(size)
        position += size
    return np.array(offsets, np.int64), np.array(sizes, np.int32)


ROWS = {
    "together": np.arange(COUNT),
    "one": np.array([7]),
    "runs": np.r_[0:30, 40:COUNT],
    "scattered": np.arange(0, COUNT, 2),
    # No broker writes these orders; a foreign store may be wrong.
    "backwards": np.arange(COUNT)[::-1],
    "again": np.array([9, 3, 3, 5]),
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_records_are_given_as_they_lie(segment: Segment, rows: np.ndarray, checked: Gather) -> None:
    """Asserts the order of the units, with and without a check of the records."""
    offsets, sizes = places(segment)
    wanted = b"".join(
        bytes(segment.view[begin : begin + size])
        for begin, size in zip(offsets[rows] - BASE, sizes[rows], strict=True)
    )
    parts = checked(segment, offsets[rows], sizes[rows])
    assert parts is not None
    assert b"".join(parts) == wanted
    assert b"".join(gather(segment, offsets[rows] - BASE, sizes[rows])) == wanted


@pytest.mark.parametrize("at", [TOTAL_SIZE_AT, MAGIC_AT, PLACE_AT])
@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("together", 0),
        ("together", -1),
        ("one", 0),
        ("runs", 0),
        ("runs", 29),
        ("runs", 30),
        ("runs", -1),
        ("scattered", 0),
        ("scattered", 11),
        ("scattered", -1),
    ],
)
def test_a_record_that_is_another_is_not_given(
    segment: Segment, name: str, row: int, at: int, checked: Gather
) -> None:
    """Covers both ends of a run, and any place among copies."""
    offsets, sizes = places(segment)
    rows = ROWS[name]
    position = int(offsets[rows[row]]) - BASE + at
    segment.write(position, memoryview(bytes([segment.view[position] ^ 0x55])))
    assert checked(segment, offsets[rows], sizes[rows]) is None


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize(
    "shift", [-BASE - 1, -SEGMENT_BYTES, SEGMENT_BYTES, (1 << 63) - 2 * BASE - 1, -(1 << 63)]
)
def test_what_lies_outside_is_not_looked_at(
    segment: Segment, name: str, shift: int, checked: Gather
) -> None:
    """Covers sums of garbage that overflow."""
    offsets, sizes = places(segment)
    rows = ROWS[name]
    with np.errstate(over="ignore"):
        moved = offsets[rows] + np.int64(shift)
        assert checked(segment, moved, sizes[rows]) is None


@pytest.mark.parametrize("name", ["together", "one", "runs", "scattered"])
def test_a_last_record_that_reaches_out_is_not_given(
    segment: Segment, name: str, checked: Gather
) -> None:
    """Covers a record that ends after its file."""
    offsets, sizes = places(segment)
    rows = ROWS[name]
    long = sizes[rows].copy()
    long[-1] = SEGMENT_BYTES
    assert checked(segment, offsets[rows], long) is None


@pytest.mark.parametrize("size", [-1, 0, FIXED_BYTES - 1])
def test_no_record_is_as_small_as_that(segment: Segment, size: int, checked: Gather) -> None:
    """Covers negative sizes, too."""
    offsets, sizes = places(segment)
    sizes[3] = size
    assert checked(segment, offsets, sizes) is None


def test_n12_a_wrong_unit_that_points_ahead_of_right_ones_ends_no_read(
    segment: Segment, checked: Gather
) -> None:
    """Asserts that the wrong unit is detected; the caller then checks records one by one."""
    offsets, sizes = places(segment)
    offsets[0] = BASE + SEGMENT_BYTES - 2 * FIXED_BYTES
    assert checked(segment, offsets[:4], sizes[:4]) is None


@pytest.mark.parametrize(("bytes_less", "count"), [(0, 5), (1, 4), (1 << 20, 1)])
def test_few_records_end_at_the_limit(segment: Segment, bytes_less: int, count: int) -> None:
    """Asserts that the first record is given whatever its size."""
    offsets, sizes = places(segment)
    rows = np.arange(0, COUNT, 2)
    bytes_max = int(sizes[rows[:5]].sum()) - bytes_less
    gathered = gather_few(segment, units_of(offsets[rows], sizes[rows]), bytes_max)
    assert gathered is not None
    assert gathered[1] == len(gathered[0]) == count


def test_few_records_end_before_a_blank_unit(segment: Segment) -> None:
    """Asserts that a blank unit, which has the largest size, is beyond any limit."""
    offsets, sizes = places(segment)
    sizes[3] = BLANK_SIZE
    gathered = gather_few(segment, units_of(offsets, sizes), BLANK_SIZE)
    assert gathered is not None
    assert gathered[1] == 3
