"""The consume queue: units that name the records of one queue.

Maps: queue offset to (physical offset, size, tags code). An entry is a unit of 20 bytes:

    +------------------------+-----------+--------------------+
    | physical offset  int64 | size int32| tags code  int64   |    big-endian
    +------------------------+-----------+--------------------+

Searched: by position, unit n is at byte 20 n. Checksummed: no; it is derived from the commit log. A
start checks it against the manifest or the log, and completes it from the log. After a crash its
tail may be missing or old; recovery dispatches the log again. Used by the dispatcher (writes) and
the reader.

Blank units (0, 0x7FFFFFFF, 0) fill a queue that does not begin at 0 from its file's start. They
also fill a gap between queue offsets; readers skip them.
Source: ConsumeQueue, docs/design/storage.md section 6.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import numpy as np

from rocketpy_broker.store.queues.errors import StoreReadError
from rocketpy_broker.store.queues.expiry import QueueExpiry
from rocketpy_broker.store.queues.files import QueueFiles, name_of
from rocketpy_broker.store.queues.open_files import OpenFiles
from rocketpy_broker.store.queues.prefixes import Prefixes
from rocketpy_broker.store.queues.units import (
    BLANK_SIZE,
    NO_UNITS,
    UNIT,
    UNIT_BYTES,
    UNIT_FIELDS,
    Units,
    blank_units,
    record_ends,
)
from rocketpy_broker.store.values import FilePrefix

# A search for a queue's end begins with one block of the file system and grows from there.
FIRST_UNITS = 4096 // UNIT_BYTES
PART_UNITS_MAX = 50_000


class ConsumeQueue:
    """One queue. Offsets count units, positions count bytes."""

    __slots__ = (
        "_files",
        "_first_place",
        "_prefixes",
        "max_offset",
        "min_offset",
        "physical_end",
        "units_read",
    )

    def __init__(
        self, folder: Path | str, file_bytes: int, open_files: OpenFiles | None = None
    ) -> None:
        assert file_bytes % UNIT_BYTES == 0
        self._files = QueueFiles(
            str(folder), file_bytes, OpenFiles() if open_files is None else open_files
        )
        self.min_offset = 0
        self.max_offset = 0
        # End in the log of the last record that has a unit here; -1 before the first.
        self.physical_end = -1
        # Number of units of the last read; only a guess for the next read.
        self.units_read = 0
        # Physical offset of the first unit's record; -1 if unknown.
        self._first_place = -1
        self._prefixes = Prefixes()

    @classmethod
    def open(
        cls,
        folder: Path | str,
        file_bytes: int,
        open_files: OpenFiles | None = None,
        known: Mapping[str, FilePrefix] | None = None,
        names: Collection[str] = (),
    ) -> ConsumeQueue:
        """Loads the files and finds the last valid unit. Raises StoreDirectoryError, OSError.

        If the files in the folder, by `names`, hold exactly what `known` says, no search is
        needed.
        """
        queue = cls(folder, file_bytes, open_files)
        if not (known and queue._adopt(known, names)):
            queue._files.load()
            queue._recover()
        return queue

    def _adopt(self, prefixes: Mapping[str, FilePrefix], names: Collection[str]) -> bool:
        """True if the files hold exactly what `prefixes` says, without later bytes."""
        adopted = self._prefixes.adopt(self._files, prefixes, names)
        if adopted is None or adopted[0] % UNIT_BYTES:
            return False
        end, crc, content = adopted
        self.max_offset = end // UNIT_BYTES
        if not (content and self._knows_ends(content)):
            self._set_physical_end()
            self._set_min_offset(self._first_offset_after(0))
        self._prefixes.end_at(end, self.physical_end, crc)
        return True

    def _knows_ends(self, content: bytes) -> bool:
        """Reads first and last unit from the queue's whole content; False if one is blank."""
        place, first_size, _ = UNIT_FIELDS.unpack_from(content)
        last_place, last_size, _ = UNIT_FIELDS.unpack_from(content, len(content) - UNIT_BYTES)
        self.min_offset, self._first_place = self._files.begin // UNIT_BYTES, place
        self.physical_end = last_place + last_size
        return BLANK_SIZE not in (first_size, last_size)

    def _recover(self) -> None:
        """Sets the range of valid units, searched from the last file backwards.

        See docs/design/storage.md sections 6.3 and 6.4.
        """
        self.max_offset = self._files.begin // UNIT_BYTES
        for base in reversed(self._files.bases):
            count = self._valid_count(base)
            if count > 0:
                self.max_offset = base // UNIT_BYTES + count
                break
        self._set_end(self.max_offset)
        self._set_min_offset(self._first_offset_after(0))

    def _valid_count(self, base: int) -> int:
        """Returns the number of valid units at the start of the file at `base`."""
        count = 0
        for units in self._parts(base // UNIT_BYTES, (base + self._files.file_bytes) // UNIT_BYTES):
            valid = (units["physical_offset"] >= 0) & (units["size"] > 0)
            if not valid.all():
                return count + int(np.argmin(valid))
            count += len(units)
        return count

    def _parts(self, offset: int, offset_end: int) -> Iterator[Units]:
        """Yields units of one file, few at first: most queues have no more."""
        count = FIRST_UNITS
        while offset < offset_end:
            units = self._read(offset, min(offset + count, offset_end))
            yield units
            offset += len(units)
            count = min(8 * count, PART_UNITS_MAX)

    def _set_end(self, max_offset: int) -> None:
        """Ends the queue at `max_offset` and clears all later units.

        The first file is kept, unless it begins at 0: only its name records the queue's position.
        """
        self.max_offset = max_offset
        self._prefixes.forget()
        self._first_place = -1
        end = max_offset * UNIT_BYTES
        begin = self._files.begin
        self._files.remove_from(max(end, begin + 1) if begin > 0 else end)
        self._files.clear_from(end)
        self._set_physical_end()

    def _set_physical_end(self) -> None:
        last = self.units(self.max_offset - 1, self.max_offset)
        has_record = len(last) > 0 and last["size"][0] != BLANK_SIZE
        self.physical_end = int(last["physical_offset"][0] + last["size"][0]) if has_record else -1

    def _set_min_offset(self, offset: int) -> None:
        self.min_offset = offset
        first = self.units(offset, offset + 1)
        is_there = len(first) > 0 and first["size"][0] != BLANK_SIZE
        self._first_place = int(first["physical_offset"][0]) if is_there else -1

    def _first_offset_after(self, log_begin: int) -> int:
        """Returns the first offset with a real unit of a record still in the log."""
        for base in self._files.bases:
            first = offset = base // UNIT_BYTES
            end = min((base + self._files.file_bytes) // UNIT_BYTES, self.max_offset)
            for units in self._parts(first, end):
                real = (units["size"] != BLANK_SIZE) & (units["physical_offset"] >= log_begin)
                if real.any():
                    return offset + int(np.argmax(real))
                offset += len(units)
        return self.max_offset

    def correct_min_offset(self, log_begin: int) -> None:
        """Moves the queue's start to the first record still in the log. Raises OSError."""
        expiry = self.expiry(log_begin)
        if expiry is not None:
            expiry.remove_files()
            self.expire(expiry)

    def expiry(self, log_begin: int) -> QueueExpiry | None:
        """Returns what expires if the log begins at `log_begin`; None for nothing. Any thread.

        These are the files that only have units of older records, without the last file. See
        docs/design/storage.md sections 6.3 and 10.5.
        """
        files = self._files
        is_first = files.begin == files.base_of(self.min_offset * UNIT_BYTES)
        if self._first_place >= log_begin and is_first:
            return None
        paths = []
        for base in files.bases[:-1]:
            end = (base + files.file_bytes) // UNIT_BYTES
            last = self.units(end - 1, end)
            # A file that is not full yet is the last one with units.
            if len(last) == 0:
                break
            if last["size"][0] != BLANK_SIZE and last["physical_offset"][0] >= log_begin:
                break
            paths.append(Path(files.path_of(base)))
        if self._first_place >= log_begin:
            return QueueExpiry(paths, self.min_offset)
        return QueueExpiry(paths, self._first_offset_after(log_begin))

    def expire(self, expiry: QueueExpiry) -> None:
        """Drops expired units after their files have been removed."""
        for _ in expiry.paths:
            self._files.drop_first()
        self._set_min_offset(max(self.min_offset, expiry.min_offset))

    def hide_below(self, physical_offset: int) -> None:
        """Moves the queue's start to its first record from `physical_offset` on."""
        if self._first_place < physical_offset:
            self.hide_until(self._first_offset_after(physical_offset))

    def show_from(self, physical_offset: int) -> None:
        """Moves the queue's start, also back, to its first record from `physical_offset` on."""
        self._set_min_offset(self._first_offset_after(physical_offset))

    def hide_until(self, offset: int) -> None:
        """Moves the queue's start to `offset`, up to its end."""
        if self.min_offset < offset:
            self._set_min_offset(offset)

    def reserve(self, max_offset: int) -> None:
        """Allocates space for all units up to `max_offset`. Raises OSError."""
        files = self._files
        if files.begin == files.end:
            files.begin_at(self.max_offset * UNIT_BYTES)
        files.reserve(max_offset * UNIT_BYTES)

    def append(self, queue_offset: int, units: Units) -> None:
        """Adds units for consecutive offsets from `queue_offset` on. Raises OSError.

        Units below the end are known and skipped, so a repeated dispatch changes nothing. See
        docs/design/storage.md section 6.2.
        """
        first = max(self.max_offset, queue_offset)
        units = units[first - queue_offset :]
        if len(units) == 0:
            return
        if first > self.max_offset:
            self._fill_blank(first)
        self._write(units)

    def reconcile(self, queue_offset: int, units: Units) -> None:
        """Adds units as `append` does, and rewrites and corrects the known ones. Raises OSError.

        After a failed flush the system treats pages as written that never reached the disk.
        """
        if queue_offset * UNIT_BYTES < self._files.begin:
            self._drop_all()
        offset, end = queue_offset, queue_offset + len(units)
        while offset < min(end, self.max_offset):
            known = self.units(offset, end)
            right = units[offset - queue_offset :][: len(known)]
            if known.tobytes() != right.tobytes():
                self._put_right(offset, right)
            else:
                self._files.overwrite(offset * UNIT_BYTES, known.tobytes())
            offset += len(known)
        self.append(queue_offset, units)

    def _drop_all(self) -> None:
        """Drops all files, because the first one is missing; the log restores their units.

        The log is being read in order and has a record older than all of theirs.
        """
        self._files.remove_from(0)
        self.min_offset = self.max_offset = 0
        self.physical_end = self._first_place = -1
        self._prefixes.restart(0)

    def _put_right(self, offset: int, units: Units) -> None:
        self._prefixes.forget()
        self._files.write(offset * UNIT_BYTES, units.tobytes())
        # The load of the files had skipped a damaged first unit.
        self._set_min_offset(min(self.min_offset, offset))

    def begin_at(self, offset: int) -> None:
        """Begins a queue without units at `offset`. Raises OSError."""
        if offset > 0:
            self._fill_blank(offset)

    def _fill_blank(self, offset: int) -> None:
        files, begin = self._files, self.max_offset
        if files.begin == files.end:
            files.begin_at(offset * UNIT_BYTES)
            begin = self.max_offset = files.begin // UNIT_BYTES
            self.min_offset, self._first_place = offset, -1
            self._prefixes.restart(files.begin)
        self._write(blank_units(offset - begin))

    def _write(self, units: Units) -> None:
        if self._files.begin == self._files.end:
            self._files.begin_at(self.max_offset * UNIT_BYTES)
        content, begin = units.tobytes(), 0
        while begin < len(content):
            position = self.max_offset * UNIT_BYTES
            end = begin + self._files.file_bytes - position % self._files.file_bytes
            data = content[begin:end]
            self._files.write(position, data)
            if self._first_place < 0 and self.max_offset == self.min_offset:
                place, size, _ = UNIT_FIELDS.unpack_from(data)
                self._first_place = place if size != BLANK_SIZE else -1
            physical_end = self.physical_end
            place, size, _ = UNIT_FIELDS.unpack_from(data, len(data) - UNIT_BYTES)
            if size != BLANK_SIZE:
                physical_end = place + size
            self._prefixes.extend(self._files, position, data, physical_end)
            self.physical_end = physical_end
            self.max_offset += len(data) // UNIT_BYTES
            begin = end

    def units(self, offset: int, offset_end: int) -> Units:
        """Returns units from `offset` up to `offset_end` or the end of their file; may be empty.

        Units of a file that was removed meanwhile are blank. Raises StoreReadError.
        """
        files, position = self._files, offset * UNIT_BYTES
        if not files.begin <= position < files.end:
            return NO_UNITS
        in_file = (files.file_bytes - position % files.file_bytes) // UNIT_BYTES
        return self._read(offset, min(offset_end, offset + in_file, self.max_offset))

    def _read(self, offset: int, offset_end: int) -> Units:
        """Returns units of one existing file."""
        if offset_end <= offset:
            return NO_UNITS
        count = offset_end - offset
        try:
            data = self._files.read(offset * UNIT_BYTES, count * UNIT_BYTES)
        except FileNotFoundError:
            return blank_units(count)
        except OSError as error:
            raise StoreReadError(self._files.folder, error) from error
        units = np.frombuffer(data, UNIT)
        lost = self._files.open_files.flush_error
        if lost is not None and not units["size"].all():
            # Every written unit has a size; the next start restores these units from the log.
            raise StoreReadError(self._files.folder, lost) from lost
        return units

    def truncate(self, physical_end: int) -> None:
        """Drops the first unit of a record that ends after `physical_end`, and all later units."""
        tail = self._prefixes.tail
        if tail is not None and tail.physical_end <= physical_end:
            return
        end = self._files.begin // UNIT_BYTES
        for base in reversed(self._files.bases):
            first = base // UNIT_BYTES
            units = self.units(first, self.max_offset)
            # After a power cut a file may be all zeros, though a later one has units.
            real = (units["size"] != BLANK_SIZE) & (units["size"] > 0)
            ends = np.where(real, record_ends(units), 0)
            beyond = ends > physical_end
            # A unit across two pages may be torn: it then seems to name a record before the last
            # one.
            real[1:] &= units["physical_offset"][1:] >= np.maximum.accumulate(ends)[:-1]
            # Blank units fill a gap before a real unit; without that unit there is no gap.
            kept = np.flatnonzero(real[: int(np.argmax(beyond))] if beyond.any() else real)
            if len(kept) > 0:
                end = first + int(kept[-1]) + 1
                break
        if end < self.max_offset:
            self._set_end(end)

    def truncate_from(self, offset: int) -> None:
        """Drops the units from `offset` on."""
        if offset < self.max_offset:
            self._set_end(offset)

    def prefix_crcs(self, physical_end: int) -> dict[str, FilePrefix]:
        """Returns each file's length and CRC-32 of the units of records below `physical_end`.

        Any thread may call it while units are added. Raises StoreReadError.
        """
        files, tail, prefixes = self._files, self._prefixes.tail, {}
        for base in files.bases:
            first = base // UNIT_BYTES
            end = min((base + files.file_bytes) // UNIT_BYTES, self.max_offset)
            if tail is not None and tail.end > base and tail.physical_end <= physical_end:
                end = min(end, tail.end // UNIT_BYTES)
            elif end > first:
                end = self._end_below(first, end, physical_end)
            if end <= first:
                break
            prefixes[name_of(base)] = self._prefixes.of(files, base, end * UNIT_BYTES, tail)
        return prefixes

    def _end_below(self, first: int, end: int, physical_end: int) -> int:
        """Returns the first offset of [first, end) with a record that ends after `physical_end`."""
        last = self.units(end - 1, end)
        if len(last) and last["size"][0] != BLANK_SIZE and record_ends(last)[0] <= physical_end:
            return end
        for units in self._parts(first, end):
            beyond = (units["size"] != BLANK_SIZE) & (record_ends(units) > physical_end)
            if beyond.any():
                return first + int(np.argmax(beyond))
            first += len(units)
        return first

    def has_prefixes(self, prefixes: Mapping[str, FilePrefix]) -> bool:
        """True if the files still have these prefixes, and none is missing."""
        return self._prefixes.has(self._files, prefixes)

    def close(self) -> None:
        """Closes the files."""
        self._files.close()
