"""One consume queue: starts other than 0, gaps, truncation, restarts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rocketpy_broker.store.queues.consume_queue import ConsumeQueue
from rocketpy_broker.store.queues.units import BLANK_SIZE, UNIT, Units, blank_units

FILE_BYTES = 200
UNITS_PER_FILE = FILE_BYTES // UNIT.itemsize


def units(count: int, first: int = 0) -> Units:
    """Returns units of adjacent records of 100 bytes, from record `first` on."""
    made = np.zeros(count, UNIT)
    made["physical_offset"] = (np.arange(count) + first) * 100
    made["size"] = 100
    return made


def offsets(queue: ConsumeQueue) -> list[int]:
    """Returns the physical offsets of all units, blank ones as -1."""
    found: list[int] = []
    position = queue.min_offset
    while position < queue.max_offset:
        part = queue.units(position, queue.max_offset)
        found += np.where(part["size"] == BLANK_SIZE, -1, part["physical_offset"]).tolist()
        position += len(part)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "T" / "0"


def test_s04_units_fill_file_after_file(folder: Path) -> None:
    queue = ConsumeQueue(folder, FILE_BYTES)
    queue.append(0, units(25))
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["0".zfill(20), "200".zfill(20), "400".zfill(20)]
    assert offsets(queue) == [number * 100 for number in range(25)]


def test_s06_what_is_known_is_not_added_again(folder: Path) -> None:
    queue = ConsumeQueue(folder, FILE_BYTES)
    queue.append(0, units(5))
    queue.append(0, units(5))
    queue.append(3, units(4, 3))
    assert offsets(queue) == [number * 100 for number in range(7)]


def test_a_queue_that_does_not_begin_at_zero_is_filled_from_its_files_begin(folder: Path) -> None:
    queue = ConsumeQueue(folder, FILE_BYTES)
    queue.append(13, units(2))
    assert (queue.min_offset, queue.max_offset) == (13, 15)
    [path] = folder.iterdir()
    assert path.name == "200".zfill(20)
    blank = np.frombuffer(path.read_bytes(), UNIT)[: 13 - UNITS_PER_FILE]
    assert blank["size"].tolist() == [BLANK_SIZE] * 3
    assert blank["physical_offset"].tolist() == [0] * 3
    again = ConsumeQueue.open(folder, FILE_BYTES)
    assert (again.min_offset, again.max_offset) == (13, 15)


def test_a_gap_is_filled_so_that_later_offsets_stay_right(folder: Path) -> None:
    queue = ConsumeQueue(folder, FILE_BYTES)
    queue.append(0, units(2))
    queue.append(4, units(1, 2))
    assert offsets(queue) == [0, 100, -1, -1, 200]


@pytest.mark.parametrize("kept", [0, 1, 9, 10, 11, 20, 25])
def test_s09_units_of_records_behind_the_log_are_dropped(folder: Path, kept: int) -> None:
    queue = ConsumeQueue(folder, FILE_BYTES)
    queue.append(0, units(25))
    queue.truncate(kept * 100 + 50)
    for found in (queue, ConsumeQueue.open(folder, FILE_BYTES)):
        assert found.max_offset == kept
        assert found.physical_end == (kept * 100 if kept else -1)
        assert offsets(found) == [number * 100 for number in range(kept)]
    queue.append(kept, units(3, kept))
    assert queue.max_offset == kept + 3


def test_s09_a_restart_ends_at_the_first_unit_that_is_none(folder: Path) -> None:
    queue = ConsumeQueue(folder, FILE_BYTES)
    queue.append(0, units(25))
    queue.close()
    path = folder / "400".zfill(20)
    data = bytearray(path.read_bytes())
    data[60:80] = bytes(20)
    path.write_bytes(data)
    again = ConsumeQueue.open(folder, FILE_BYTES)
    assert again.max_offset == 23
    assert path.read_bytes()[60:] == bytes(FILE_BYTES - 60)


def test_f4_a_torn_unit_behind_the_last_record_is_cut(folder: Path) -> None:
    """Covers a unit on two pages of which a power cut keeps only the size."""
    queue = ConsumeQueue(folder, FILE_BYTES)
    queue.append(0, units(5))
    torn = units(1, 5)
    torn["physical_offset"] = 0
    queue.append(5, torn)
    queue.close()
    again = ConsumeQueue.open(folder, FILE_BYTES)
    again.truncate(500)
    assert offsets(again) == [0, 100, 200, 300, 400]


def test_a_file_that_has_room_alone_does_not_go(folder: Path) -> None:
    """Covers a file that was allocated ahead; the file before it is the last one with units."""
    queue = ConsumeQueue(folder, FILE_BYTES)
    queue.append(0, units(15))
    queue.reserve(35)
    assert len(list(folder.iterdir())) == 4
    expiry = queue.expiry(1 << 40)
    assert expiry is not None
    assert [path.name for path in expiry.paths] == ["0".zfill(20)]


def test_files_below_the_begin_of_a_queue_go_however_it_came_to_begin_there(folder: Path) -> None:
    """Covers a start that skipped garbage units."""
    queue = ConsumeQueue(folder, FILE_BYTES)
    queue.append(0, blank_units(UNITS_PER_FILE))
    queue.append(UNITS_PER_FILE, units(15, UNITS_PER_FILE))
    queue.close()
    again = ConsumeQueue.open(folder, FILE_BYTES)
    again.correct_min_offset(500)
    assert (again.min_offset, again.max_offset) == (UNITS_PER_FILE, UNITS_PER_FILE + 15)
    assert sorted(path.name for path in folder.iterdir()) == ["200".zfill(20), "400".zfill(20)]


def test_blank_units_at_the_end_belong_to_every_prefix(folder: Path) -> None:
    queue = ConsumeQueue(folder, FILE_BYTES)
    queue.append(0, units(3))
    queue.append(3, blank_units(2))
    queue.close()
    again = ConsumeQueue(folder, FILE_BYTES)
    again._files.load()
    again.max_offset = 5
    again._prefixes.forget()
    lengths = [prefix.length for prefix in again.prefix_crcs(300).values()]
    assert lengths == [5 * UNIT.itemsize]
