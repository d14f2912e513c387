"""The consume queue: which records of the log make up one queue of one topic.

Maps: queue offset to (physical offset, size, tags code). An entry is a unit of 20 bytes:

    +------------------------+-----------+--------------------+
    | physical offset  int64 | size int32| tags code  int64   |    big-endian
    +------------------------+-----------+--------------------+

Searched: by position, unit n lies at byte 20 n. Checksummed: no; it is derived from the commit
log, checked against it at start and completed from it. After a crash its tail may be missing
or old; recovery cuts it behind the first invalid unit and dispatches the log again. Used by the
dispatcher (writes) and the reader.

A queue that does not begin at 0 is filled from its file's begin with blank units
(0, 0x7FFFFFFF, 0), and so is a gap between queue offsets; readers pass over them.
Source: ConsumeQueue, spec/storage.md section 6.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.store.segment_queue import SegmentQueue

UNIT = np.dtype(
    [
        ("physical_offset", ">i8"),  # where the record begins in the commit log
        ("size", ">i4"),  # bytes of the whole record
        ("tags_code", ">i8"),  # Java hash of the TAGS property
    ]
)
UNIT_BYTES = UNIT.itemsize
BLANK_SIZE = 0x7FFFFFFF
assert UNIT_BYTES == 20

Units = NDArray[np.void]


class ConsumeQueue:
    """One queue. Offsets count units, positions count bytes."""

    def __init__(self, folder: Path, file_bytes: int) -> None:
        assert file_bytes % UNIT_BYTES == 0
        self._files = SegmentQueue(folder, file_bytes)
        self.min_offset = 0
        self.max_offset = 0
        self.flushed_offset = 0
        # End in the log of the last record that has a unit here; -1 before the first.
        self.physical_end = -1

    @classmethod
    def open(cls, folder: Path, file_bytes: int) -> ConsumeQueue:
        """Load the files and find the last valid unit. Raises StoreDirectoryError."""
        queue = cls(folder, file_bytes)
        queue._files.load()
        queue._recover()
        return queue

    def _recover(self) -> None:
        """Set the range of valid units and remove files behind it (spec 6.3, 6.4)."""
        files = self._files
        self.max_offset = files.begin // UNIT_BYTES
        for segment in files.segments:
            units = np.frombuffer(segment.view, UNIT)
            valid = (units["physical_offset"] >= 0) & (units["size"] > 0)
            count = len(units) if valid.all() else int(np.argmin(valid))
            self.max_offset = segment.base // UNIT_BYTES + count
            if count < len(units):
                break
        self._set_end(self.max_offset)
        self.min_offset = self._first_real_offset()
        self.flushed_offset = self.max_offset

    def _set_end(self, max_offset: int) -> None:
        """Let the queue end at `max_offset`: no valid unit may stay behind it."""
        self.max_offset = max_offset
        end = max_offset * UNIT_BYTES
        self._files.remove_from(end)
        segment = self._files.find(end)
        if segment is not None:
            segment.clear_from(end - segment.base)
        last = self.units(max_offset - 1, max_offset)
        has_record = len(last) > 0 and last["size"][0] != BLANK_SIZE
        self.physical_end = int(last["physical_offset"][0] + last["size"][0]) if has_record else -1

    def _first_real_offset(self) -> int:
        """The first offset from the begin on whose unit is not blank."""
        offset = self._files.begin // UNIT_BYTES
        while offset < self.max_offset:
            units = self.units(offset, self.max_offset)
            real = units["size"] != BLANK_SIZE
            if real.any():
                return offset + int(np.argmax(real))
            offset += len(units)
        return self.max_offset

    def append(self, queue_offset: int, units: Units) -> None:
        """Add units for consecutive offsets from `queue_offset` on. Raises OSError.

        What lies below the end is known already and is passed over, so that dispatching the
        same records again changes nothing (spec 6.2).
        """
        known = min(max(self.max_offset - queue_offset, 0), len(units))
        units = units[known:]
        if len(units) == 0:
            return
        first = queue_offset + known
        if first > self.max_offset:
            self._fill_blank(first)
        self._write(units)

    def _fill_blank(self, offset: int) -> None:
        begin = self.max_offset
        if not self._files.segments:
            units_per_file = self._files.segment_bytes // UNIT_BYTES
            begin = self.max_offset = offset - offset % units_per_file
            self.min_offset = self.flushed_offset = offset
        blank = np.zeros(offset - begin, UNIT)
        blank["size"] = BLANK_SIZE
        self._write(blank)

    def _write(self, units: Units) -> None:
        while len(units) > 0:
            position = self.max_offset * UNIT_BYTES
            segment = self._files.grow(position)
            fitting = units[: (segment.end - position) // UNIT_BYTES]
            segment.write(position - segment.base, memoryview(fitting.tobytes()))
            self.max_offset += len(fitting)
            last = fitting[-1]
            if last["size"] != BLANK_SIZE:
                self.physical_end = int(last["physical_offset"] + last["size"])
            units = units[len(fitting) :]

    def units(self, offset: int, offset_end: int) -> Units:
        """Units from `offset` on, up to `offset_end` or the end of their file; may be empty."""
        position = offset * UNIT_BYTES
        segment = self._files.find(position)
        if segment is None or offset < 0:
            return np.empty(0, UNIT)
        end = min(offset_end * UNIT_BYTES, segment.end, self.max_offset * UNIT_BYTES)
        count = max(end - position, 0) // UNIT_BYTES
        return np.frombuffer(segment.view, UNIT, count, position - segment.base)

    def truncate(self, physical_end: int) -> None:
        """Drop every unit whose record reaches beyond `physical_end` (spec 6.5)."""
        low, high = self.min_offset, self.max_offset
        while low < high:
            middle = (low + high) // 2
            unit = self.units(middle, middle + 1)
            blank = unit["size"][0] == BLANK_SIZE
            if blank or unit["physical_offset"][0] + unit["size"][0] <= physical_end:
                low = middle + 1
            else:
                high = middle
        if low < self.max_offset:
            self._set_end(low)

    def flush(self) -> None:
        """Make all units durable. Blocks. Raises OSError."""
        end = self.max_offset
        dirty = self._files.dirty_segments(self.flushed_offset * UNIT_BYTES, end * UNIT_BYTES)
        for segment in dirty:
            segment.flush()
        self.flushed_offset = end

    def close(self) -> None:
        """Close the files."""
        self._files.close()
