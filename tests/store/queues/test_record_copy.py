"""What this process has written is given out only where its first and last records lie.

Copies are looked at record by record. Rows C03, S11.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rocketpy_broker.store.log.segment import Segment
from rocketpy_broker.store.queues.readers.record_copy import gather, gather_written
from rocketpy_proto.record import Record, encode_record
from rocketpy_proto.record.layout import FIXED_BYTES

SEGMENT_BYTES, BASE, COUNT = 1 << 16, 1 << 16, 80
# Of a record: its size, its magic, its physical offset.
TOTAL_SIZE_AT, MAGIC_AT, PLACE_AT = 3, 7, 35


@pytest.fixture
def segment(tmp_path: Path) -> Iterator[Segment]:
    """A file with COUNT records of several sizes, one behind the other."""
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
    """Physical offsets and sizes of all records."""
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
    # As no broker writes them; a store from elsewhere may be wrong.
    "backwards": np.arange(COUNT)[::-1],
    "again": np.array([9, 3, 3, 5]),
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_records_are_given_as_they_lie(segment: Segment, rows: np.ndarray) -> None:
    """In the order of their units, with and without a look at them."""
    offsets, sizes = places(segment)
    wanted = b"".join(
        bytes(segment.view[begin : begin + size])
        for begin, size in zip(offsets[rows] - BASE, sizes[rows], strict=True)
    )
    parts = gather_written(segment, offsets[rows], sizes[rows])
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
    segment: Segment, name: str, row: int, at: int
) -> None:
    """At either end of a run, and anywhere among copies."""
    offsets, sizes = places(segment)
    rows = ROWS[name]
    position = int(offsets[rows[row]]) - BASE + at
    segment.write(position, memoryview(bytes([segment.view[position] ^ 0x55])))
    assert gather_written(segment, offsets[rows], sizes[rows]) is None


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize(
    "shift", [-BASE - 1, -SEGMENT_BYTES, SEGMENT_BYTES, (1 << 63) - 2 * BASE - 1, -(1 << 63)]
)
def test_what_lies_outside_is_not_looked_at(segment: Segment, name: str, shift: int) -> None:
    """Also where sums of garbage overflow."""
    offsets, sizes = places(segment)
    rows = ROWS[name]
    with np.errstate(over="ignore"):
        moved = offsets[rows] + np.int64(shift)
        assert gather_written(segment, moved, sizes[rows]) is None


@pytest.mark.parametrize("name", ["together", "one", "runs", "scattered"])
def test_a_last_record_that_reaches_out_is_not_given(segment: Segment, name: str) -> None:
    """The file ends before it does."""
    offsets, sizes = places(segment)
    rows = ROWS[name]
    long = sizes[rows].copy()
    long[-1] = SEGMENT_BYTES
    assert gather_written(segment, offsets[rows], long) is None


@pytest.mark.parametrize("size", [-1, 0, FIXED_BYTES - 1])
def test_no_record_is_as_small_as_that(segment: Segment, size: int) -> None:
    """Nor negative."""
    offsets, sizes = places(segment)
    sizes[3] = size
    assert gather_written(segment, offsets, sizes) is None


def test_n12_a_wrong_unit_that_points_ahead_of_right_ones_ends_no_read(segment: Segment) -> None:
    """It is found out, and whoever asked looks at the records one by one."""
    offsets, sizes = places(segment)
    offsets[0] = BASE + SEGMENT_BYTES - 2 * FIXED_BYTES
    assert gather_written(segment, offsets[:4], sizes[:4]) is None
