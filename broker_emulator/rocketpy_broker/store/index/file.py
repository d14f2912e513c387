"""One file of the index: hashes of keys to physical offsets.

Maps: the hash of `topic#key` to physical offsets. A file is a header, slots, and entries:

    +--------------+----------------------------+------------------------------------------+
    | header 40 B  | slots, 4 B each            | entries, 20 B each; number 0 is not used |
    +--------------+----------------------------+------------------------------------------+
                     number of the newest entry   +-----------+------------------------+---
                     of the slot, 0 for none      | hash int32| physical offset  int64 |
                                                  +-----------+------------------------+---
       big-endian                                 | seconds since begin int32          |
                                                  | number of previous entry  int32    |
                                                  +------------------------------------+

Searched: from slot `hash mod slots` back along the chain of previous entries. Checksummed: no; it
is derived from the commit log and can be rebuilt from it. Used by `IndexService` only.

Entries are in log order. They are written first, then slots, then the header, its count last. So
after a crash of the process the entries below the header's count are right. Slots may name entries
beyond it, and other header fields may be ahead of it: `truncate` repairs both. `truncate` drops
entries in the opposite order, header first, so that it may itself be interrupted.

The file has its full length from the start, but gets disk blocks as it fills. Slots get theirs at
creation, entries in steps before they are written. So a full disk is an error and never a signal.
Source: IndexFile, docs/design/storage.md sections 7.1 to 7.5.
"""

from __future__ import annotations

import bisect
import mmap
import os
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.store.files import durable
from rocketpy_broker.store.index.head import IndexHead
from rocketpy_broker.store.index.layout import ENTRY, HEADER, IndexFormat
from rocketpy_broker.store.values import FilePrefix
from rocketpy_proto.record.crc import body_crc

# Disk blocks for entries are allocated in steps of this number of bytes.
ALLOCATION_STEP_BYTES = 4 << 20
# Slots are rebuilt from this number of entries at a time.
REBUILD_ENTRIES = 1 << 20
# Entries of other keys and times that a walk passes in one step: about a millisecond.
STEP_ENTRIES = 2_000
_ENTRY = struct.Struct(">iqii")
assert _ENTRY.size == ENTRY.itemsize

# More than any physical offset.
LOG_END_MAX = (1 << 63) - 1

StoreTimeOf = Callable[[int], int]


class _Entry(NamedTuple):
    """An entry; `seconds` count from the file's first time, `previous` is the next older entry."""

    key_hash: int
    offset: int
    seconds: int
    previous: int


class IndexFile:
    """A mapped file. Times are milliseconds, offsets are positions in the commit log."""

    def __init__(
        self,
        path: Path,
        index_format: IndexFormat,
        descriptor: int,
        access: int = mmap.ACCESS_WRITE,
    ) -> None:
        self.path = path
        self._access = access
        self.dirty = False
        self.new_folders: list[Path] = []
        self._is_closed = False
        # As in `Segment`: a flush on another thread must not use a closed descriptor.
        self._in_use = threading.Lock()
        self._format = index_format
        self._descriptor = descriptor
        self._map()

    @classmethod
    def create(
        cls, path: Path, index_format: IndexFormat, previous: IndexFile | None = None
    ) -> IndexFile:
        """Creates an empty file that continues the end values of `previous`. Raises OSError.

        Its name is durable after `sync_new` has been called with `new_folders`.
        """
        descriptor, new_folders = durable.create_unflushed(
            path, index_format.file_bytes, index_format.entries_begin
        )
        file = cls(path, index_format, descriptor)
        file.new_folders = new_folders
        if previous is not None:
            header = file.head.header
            header["begin_timestamp"] = header["end_timestamp"] = previous.end_timestamp_ms
            header["begin_offset"] = header["end_offset"] = previous.end_offset
        return file

    @classmethod
    def open(cls, path: Path, index_format: IndexFormat) -> IndexFile:
        """Opens a file; extends a shorter one. Raises StoreDirectoryError, OSError."""
        length = path.stat().st_size
        if length > index_format.file_bytes:
            raise StoreDirectoryError(
                path,
                f"has {length} bytes, but an index file has {index_format.file_bytes}",
                "start with this store's slot and entry counts. Or remove the index folder and "
                "the store's checkpoint; the broker rebuilds the index from the log",
            )
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.ftruncate(descriptor, index_format.file_bytes)
            os.posix_fallocate(descriptor, 0, index_format.entries_begin)
            return cls(path, index_format, descriptor)
        except OSError:
            os.close(descriptor)
            raise

    @classmethod
    def open_read_only(cls, path: Path, index_format: IndexFormat) -> IndexFile:
        """Opens a file as it is; a shorter one has fewer `entries`. Raises OSError."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        return cls(path, index_format, descriptor, mmap.ACCESS_READ)

    def _map(self) -> None:
        self._allocated = begin = self._format.entries_begin
        self._mapping = mmap.mmap(self._descriptor, 0, access=self._access)
        header = np.frombuffer(self._mapping, HEADER, 1).reshape(())
        slots = np.frombuffer(self._mapping, ">i4", self._format.slot_count, HEADER.itemsize)
        self.head = IndexHead(header, slots)
        fitting = (len(self._mapping) - begin) // ENTRY.itemsize
        self.entries = np.frombuffer(self._mapping, ENTRY, fitting, begin)

    @property
    def count(self) -> int:
        """Number of the next entry."""
        return self.head.count

    @property
    def begin_timestamp_ms(self) -> int:
        """Store time of the first entry."""
        return int(self.head.header["begin_timestamp"])

    @property
    def end_timestamp_ms(self) -> int:
        """Store time of the last entry."""
        return int(self.head.header["end_timestamp"])

    @property
    def begin_offset(self) -> int:
        """Physical offset of the first entry."""
        return int(self.head.header["begin_offset"])

    @property
    def end_offset(self) -> int:
        """Physical offset of the last entry."""
        return int(self.head.header["end_offset"])

    @property
    def is_full(self) -> bool:
        """True if no further entry fits."""
        return self.count >= self._format.entry_count_max

    def fault(self) -> str | None:
        """Returns a fault of the header that no crash explains; None if it is sound."""
        if self.count == 1:
            return None
        if self.count > self._format.entry_count_max:
            return f"counts {self.count} entries, at most {self._format.entry_count_max} fit"
        first, last = self._offset_of(1), self._offset_of(self.count - 1)
        begin, end = self.begin_offset, self.end_offset
        if first != begin or not begin <= last <= end:
            return f"has entries from {first} to {last}, its header says {begin} to {end}"
        return None

    def put(
        self,
        hashes: NDArray[np.int32],
        physical_offsets: NDArray[np.int64],
        store_timestamps_ms: NDArray[np.int64],
    ) -> int:
        """Enters the keys that fit, in order; returns their number.

        Raises OSError, then no key is entered.
        """
        fitting = min(len(hashes), self._format.entry_count_max - self.count)
        if fitting <= 0:
            return 0
        self._allocate(self.count + fitting)
        times = store_timestamps_ms[:fitting]
        new = self.head.entries_of(hashes[:fitting], physical_offsets[:fitting], times)
        durable.write_whole(self._descriptor, memoryview(new.entries.tobytes()), self._end)
        self.dirty = True
        self.head.enter(new)
        return fitting

    @property
    def _end(self) -> int:
        """Position of the next entry."""
        return self._format.entries_begin + self.count * ENTRY.itemsize

    def _allocate(self, count: int) -> None:
        """Allocates disk blocks for `count` entries. Raises OSError."""
        end = self._format.entries_begin + count * ENTRY.itemsize
        if end > self._allocated:
            end = min(end + ALLOCATION_STEP_BYTES, self._format.file_bytes)
            os.posix_fallocate(self._descriptor, self._allocated, end - self._allocated)
            self._allocated = end

    def walk(
        self, key_hash: int, begin_ms: int, end_ms: int, before: int = LOG_END_MAX
    ) -> Iterator[int | None]:
        """Yields the offsets below `before` of the entries with this hash, newest first.

        Yields None after each STEP_ENTRIES other entries, so that a caller may let other tasks
        run. Entries have their time in seconds, rounded down, from the file's start. See
        docs/design/storage.md section 7.5.
        """
        begin_of_file = self.begin_timestamp_ms
        end, number = self._start_of_walk(key_hash, before)
        newer, others = self.count, 0
        # Chains lead to ever older entries; a chain that does not is broken and could be endless.
        while 0 < number < newer:
            entry_hash, offset, seconds, previous = self._entry(number)
            time_ms = begin_of_file + seconds * 1000
            if seconds < 0:
                break
            if number < end and entry_hash == key_hash and begin_ms <= time_ms <= end_ms:
                yield offset
            elif (others := others + 1) % STEP_ENTRIES == 0:
                yield None
            if time_ms < begin_ms:
                break
            newer, number = number, previous

    def _start_of_walk(self, key_hash: int, before: int) -> tuple[int, int]:
        """Returns the first entry that a walk leaves out, and the entry at which it starts.

        A walk that continues before one of its own entries starts there. So a page of a long chain
        costs as much as the first one.
        """
        head = int(self.head.slots[key_hash % self._format.slot_count])
        if before > self.end_offset:
            return self.count, head
        end = 1 + bisect.bisect_left(range(1, self.count), before, key=self._offset_of)
        for number in range(end, self.count):
            entry_hash, offset, _, previous = self._entry(number)
            if offset != before:
                break
            if entry_hash == key_hash:
                return end, previous
        return end, head

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """True if a message of this time span may be in the file."""
        return self.begin_timestamp_ms <= end_ms and begin_ms <= self.end_timestamp_ms

    def has_entry_below(self, physical_end: int) -> bool:
        """True if the file has an entry of a record before `physical_end`."""
        return self.count > 1 and self.begin_offset < physical_end

    def truncate(self, physical_end: int, store_time_of: StoreTimeOf | None) -> None:
        """Drops the entries of records from `physical_end` on and repairs damage of a crash.

        At least one entry must remain. `store_time_of` returns the store time of a record by its
        offset. Without it the file's end time is that of its last entry, exact to a second. Raises
        OSError; may then be called again.
        """
        kept = 1 + bisect.bisect_left(range(1, self.count), physical_end, key=self._offset_of)
        assert kept > 1
        if kept == self.count and not self._is_torn():
            return
        self.dirty = True
        is_end_known = self._offset_of(kept - 1) == self.end_offset
        self.head.header["count"] = self.head.count = kept
        self._rebuild_slots()
        if not is_end_known:
            self._set_end(store_time_of)
        self._clear_tail()

    def _is_torn(self) -> bool:
        """True if a crash interrupted `put` or `truncate`."""
        leftover = os.pread(self._descriptor, ENTRY.itemsize, self._end)
        # A maximum needs no temporary array; a comparison of each slot would take 5 MB.
        return any(leftover) or bool(self.head.slots.max() >= self.count)

    def leftover(self) -> int | None:
        """Returns the position of the first nonzero byte after the last entry; None for none."""
        for begin, end in durable.written_ranges(self._descriptor, self._end):
            for start in range(begin, end, ALLOCATION_STEP_BYTES):
                part = self._mapping[start : min(start + ALLOCATION_STEP_BYTES, end)]
                rest = part.lstrip(b"\0")
                if rest:
                    return start + len(part) - len(rest)
        return None

    def _entry(self, number: int) -> _Entry:
        """Returns an entry by its number."""
        position = self._format.entries_begin + number * ENTRY.itemsize
        return _Entry(*_ENTRY.unpack_from(self._mapping, position))

    def _offset_of(self, number: int) -> int:
        """Returns the physical offset of an entry."""
        position = self._format.entries_begin + number * ENTRY.itemsize
        _, offset, _, _ = _ENTRY.unpack(os.pread(self._descriptor, ENTRY.itemsize, position))
        return int(offset)

    def _rebuild_slots(self) -> None:
        """Sets the slots and their number as if only the present entries had been entered.

        Correct slots are not touched, so that a second call can find the wrong ones.
        """
        slots = np.zeros(self._format.slot_count, np.int32)
        used = 0
        for begin in range(1, self.count, REBUILD_ENTRIES):
            entries = self.entries[begin : min(begin + REBUILD_ENTRIES, self.count)]
            used += np.count_nonzero(entries["previous"] == 0)
            hashes = entries["hash"].astype(np.int32)
            slots[hashes % np.int32(self._format.slot_count)] = np.arange(
                begin, begin + len(entries)
            )
        self.head.header["slots_used"] = used
        wrong = np.flatnonzero(self.head.slots != slots)
        self.head.slots[wrong] = slots[wrong]

    def _set_end(self, store_time_of: StoreTimeOf | None) -> None:
        """Sets the header's end to the last entry."""
        last = self.entries[self.count - 1]
        offset = int(last["physical_offset"])
        seconds = int(last["seconds"]) if offset != self.begin_offset else 0
        rounded_ms = self.begin_timestamp_ms + seconds * 1000
        self.head.header["end_timestamp"] = store_time_of(offset) if store_time_of else rounded_ms
        # Written last, since a later call reads from the offset whether the time is right.
        self.head.header["end_offset"] = offset

    def _clear_tail(self) -> None:
        """Zeroes the bytes after the last entry, by cutting the file there and extending it.

        A mapped file is never cut, so the mapping is closed before.
        """
        end = self._end
        del self.head, self.entries
        self._mapping.close()
        try:
            os.ftruncate(self._descriptor, end)
            os.ftruncate(self._descriptor, self._format.file_bytes)
        finally:
            self._map()

    def prefix(self, physical_end: int) -> IndexPrefix:
        """Returns the length and CRC-32 of the entries of records below `physical_end`.

        Any thread may call it while keys are entered.
        """
        count = self.count
        kept = bisect.bisect_left(range(1, count), physical_end, key=self._offset_of)
        begin = self._format.entries_begin
        length = (1 + kept) * ENTRY.itemsize
        with memoryview(self._mapping) as view:
            entries = FilePrefix(length, body_crc(view[begin : begin + length]))
            is_all = kept == count - 1
            head = FilePrefix(begin, body_crc(view[:begin])) if is_all else None
        # Header and slots are of no use once they include later entries.
        return IndexPrefix(entries, head if self.count == count else None)

    def trailing(self, physical_offset: int) -> int:
        """Returns the number of last entries that belong to the record at this offset."""
        number = self.count
        while number > 1 and self._offset_of(number - 1) == physical_offset:
            number -= 1
        return self.count - number

    def flush(self) -> None:
        """Makes everything entered so far durable. Blocks. Raises OSError."""
        with self._in_use:
            if self._is_closed:
                return
            self.dirty = False
            try:
                os.fdatasync(self._descriptor)
                durable.sync_new(self.new_folders)
            except OSError:
                self.dirty = True
                raise

    def close(self) -> None:
        """Closes the descriptor. The mapping is closed with this object."""
        with self._in_use:
            self._is_closed = True
            os.close(self._descriptor)

    def remove(self) -> None:
        """Closes and deletes the file."""
        self.close()
        durable.remove_file(self.path)


@dataclass(frozen=True, slots=True)
class IndexPrefix:
    """The entries of a file up to some record; with header and slots, if no later entries exist."""

    entries: FilePrefix
    head: FilePrefix | None
