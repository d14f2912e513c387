"""The consume queue: which records of the log make up one queue of one topic.

Maps: queue offset to (physical offset, size, tags code). An entry is a unit of 20 bytes:

    +------------------------+-----------+--------------------+
    | physical offset  int64 | size int32| tags code  int64   |    big-endian
    +------------------------+-----------+--------------------+

Searched: by position, unit n lies at byte 20 n. Checksummed: no; it is derived from the commit
log, checked at start by the manifest, or against the log, and completed from it. After a crash its
tail may be missing or old; recovery dispatches the log again. Used by the dispatcher (writes) and
the reader.

A queue that does not begin at 0 is filled from its file's begin with blank units
(0, 0x7FFFFFFF, 0), and so is a gap between queue offsets; readers pass over them.
Source: ConsumeQueue, spec/storage.md section 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.store.files import durable
from rocketpy_broker.store.log.segment import Segment
from rocketpy_broker.store.log.segment_queue import SegmentQueue
from rocketpy_broker.store.values import FilePrefix
from rocketpy_proto.record.crc import body_crc

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
        self._files = SegmentQueue(folder, file_bytes, derived=True)
        self.min_offset = 0
        self.max_offset = 0
        self.flushed_offset = 0
        self._full_crcs: dict[str, int] = {}
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
        """Set the range of valid units, looked for from the last file backwards (spec 6.3, 6.4)."""
        self.max_offset = self._files.begin // UNIT_BYTES
        for segment in reversed(self._files.segments):
            units = np.frombuffer(segment.view, UNIT)
            valid = (units["physical_offset"] >= 0) & (units["size"] > 0)
            count = len(units) if valid.all() else int(np.argmin(valid))
            if count > 0:
                self.max_offset = segment.base // UNIT_BYTES + count
                break
        self._set_end(self.max_offset)
        self.min_offset = self._first_offset_behind(0)
        self.flushed_offset = self.max_offset

    def _set_end(self, max_offset: int) -> None:
        """Let the queue end at `max_offset`: no valid unit may stay behind it.

        The first file stays, but for one that begins at 0: its name alone says where the queue is.
        """
        self.max_offset = max_offset
        self._full_crcs.clear()
        self.flushed_offset = min(self.flushed_offset, max_offset)
        end = max_offset * UNIT_BYTES
        begin = self._files.begin
        self._files.remove_from(max(end, begin + 1) if begin > 0 else end)
        segment = self._files.find(end)
        if segment is not None:
            segment.clear_from(end - segment.base)
        self._set_physical_end()

    def _set_physical_end(self) -> None:
        last = self.units(self.max_offset - 1, self.max_offset)
        has_record = len(last) > 0 and last["size"][0] != BLANK_SIZE
        self.physical_end = int(last["physical_offset"][0] + last["size"][0]) if has_record else -1

    def _first_offset_behind(self, log_begin: int) -> int:
        """The first offset whose unit is not blank and whose record lies in the log."""
        for segment in list(self._files.segments):
            first = segment.base // UNIT_BYTES
            units = self.units(first, self.max_offset)
            real = (units["size"] != BLANK_SIZE) & (units["physical_offset"] >= log_begin)
            if real.any():
                return first + int(np.argmax(real))
        return self.max_offset

    def correct_min_offset(self, log_begin: int) -> None:
        """Let the queue begin with the first record that the log still has. Raises OSError."""
        expiry = self.expiry(log_begin)
        expiry.remove_files()
        self.expire(expiry)

    def expiry(self, log_begin: int) -> QueueExpiry:
        """What goes when the log begins at `log_begin` (spec 6.3). Any thread may ask.

        Files with units of older records only go, but for the last one (spec 10.5).
        """
        paths = []
        for segment in self._files.segments[:-1]:
            last = np.frombuffer(segment.view, UNIT)[-1]
            if last["size"] != BLANK_SIZE and last["physical_offset"] >= log_begin:
                break
            paths.append(segment.path)
        first = self.units(self.min_offset, self.min_offset + 1)
        is_there = len(first) > 0 and first["size"][0] != BLANK_SIZE
        if is_there and first["physical_offset"][0] >= log_begin:
            return QueueExpiry(self, paths, self.min_offset)
        return QueueExpiry(self, paths, self._first_offset_behind(log_begin))

    def expire(self, expiry: QueueExpiry) -> None:
        """Forget what has gone, when its files have been removed."""
        for _ in expiry.paths:
            self._files.drop_first()
        self.min_offset = max(self.min_offset, expiry.min_offset)

    def append(self, queue_offset: int, units: Units) -> None:
        """Add units for consecutive offsets from `queue_offset` on. Raises OSError.

        What lies below the end is known already and is passed over, so that dispatching the
        same records again changes nothing (spec 6.2).
        """
        first = max(self.max_offset, queue_offset)
        units = units[first - queue_offset :]
        if len(units) == 0:
            return
        if first > self.max_offset:
            self._fill_blank(first)
        self._write(units)

    def reconcile(self, queue_offset: int, units: Units) -> None:
        """As `append`, but what is known already and differs is put right. Raises OSError."""
        if queue_offset * UNIT_BYTES < self._files.begin:
            self._drop_all()
        offset, end = queue_offset, queue_offset + len(units)
        while offset < min(end, self.max_offset):
            known = self.units(offset, end)
            right = units[offset - queue_offset :][: len(known)]
            if known.tobytes() != right.tobytes():
                self._put_right(offset, right)
            offset += len(known)
        self.append(queue_offset, units)

    def _drop_all(self) -> None:
        """The first file is missing: what the others hold will come from the log as well.

        For the log is being read in order, and has a record older than all of theirs.
        """
        self._files.remove_from(0)
        self.min_offset = self.max_offset = self.flushed_offset = 0
        self.physical_end = -1

    def _put_right(self, offset: int, units: Units) -> None:
        segment = self._files.find(offset * UNIT_BYTES)
        assert segment is not None
        self._full_crcs.clear()
        segment.write(offset * UNIT_BYTES - segment.base, memoryview(units.tobytes()))
        segment.flush()
        # A first unit that was garbage has been passed over when the files were loaded.
        self.min_offset = min(self.min_offset, offset)

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
        """Drop the first unit of a record that reaches beyond `physical_end`, and what follows."""
        end = self._files.begin // UNIT_BYTES
        for segment in reversed(self._files.segments):
            first = segment.base // UNIT_BYTES
            units = self.units(first, self.max_offset)
            # After a power cut a file may be all zeros, though a later one has units.
            real = (units["size"] != BLANK_SIZE) & (units["size"] > 0)
            ends = np.where(real, _record_ends(units), 0)
            beyond = ends > physical_end
            # A unit of two pages may be torn: it then seems to be of a record before the last one.
            real[1:] &= units["physical_offset"][1:] >= np.maximum.accumulate(ends)[:-1]
            # Blank units fill a gap before a real one; without that one there is no gap.
            kept = np.flatnonzero(real[: int(np.argmax(beyond))] if beyond.any() else real)
            if len(kept) > 0:
                end = first + int(kept[-1]) + 1
                break
        if end < self.max_offset:
            self._set_end(end)

    def truncate_from(self, offset: int) -> None:
        """Drop the units from `offset` on."""
        if offset < self.max_offset:
            self._set_end(offset)

    def prefix_crcs(self, physical_end: int) -> dict[str, FilePrefix]:
        """Per file the bytes that hold units of records below `physical_end`, and their CRC-32.

        Any thread may ask, while units are added behind them.
        """
        prefixes = {}
        for segment in list(self._files.segments):
            first = segment.base // UNIT_BYTES
            units = self.units(first, self.max_offset)
            beyond = (units["size"] != BLANK_SIZE) & (_record_ends(units) > physical_end)
            count = int(np.argmax(beyond)) if beyond.any() else len(units)
            prefixes[segment.path.name] = self._prefix(segment, count * UNIT_BYTES)
        return prefixes

    def _prefix(self, segment: Segment, length: int) -> FilePrefix:
        """Full files do not change any more, so their CRC is computed once."""
        name = segment.path.name
        if length == segment.size_bytes and name in self._full_crcs:
            return FilePrefix(length, self._full_crcs[name])
        crc = body_crc(segment.view[:length])
        if length == segment.size_bytes:
            self._full_crcs[name] = crc
        return FilePrefix(length, crc)

    def has_prefixes(self, prefixes: Mapping[str, FilePrefix]) -> bool:
        """Whether the files still begin as `prefixes` says, and none is missing."""
        by_name = {segment.path.name: segment for segment in self._files.segments}
        return all(
            name in by_name
            and prefix.length <= self._files.segment_bytes
            and body_crc(by_name[name].view[: prefix.length]) == prefix.crc
            for name, prefix in prefixes.items()
        )

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


@dataclass(frozen=True, slots=True)
class QueueExpiry:
    """What of a queue is about records that the log has no more: files, and offsets."""

    queue: ConsumeQueue
    paths: list[Path]
    min_offset: int

    def remove_files(self) -> None:
        """Remove the files, oldest first. Blocks. Raises OSError; may be called again."""
        for path in self.paths:
            durable.remove_file(path)


def _record_ends(units: Units) -> NDArray[np.int64]:
    """Where in the log the records of some units end."""
    ends: NDArray[np.int64] = units["physical_offset"] + units["size"].astype(np.int64)
    return ends


def blank_count(units: Units) -> int:
    """How many blank units there are before the first real one."""
    real = units["size"] != BLANK_SIZE
    return int(np.argmax(real)) if real.any() else len(units)
