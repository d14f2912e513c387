"""Checksums of whole records, in files beside the commit log.

Maps: physical offset to (size, CRC-32 of every byte of the record in the log). Each log segment has
one sparse file `rocketpy/checksums/<20 digits>` of 16-byte entries:

    +----------------+-----------+-----------+-----------+
    | position  int32| size int32| crc  int32| check int32|    big-endian
    +----------------+-----------+-----------+-----------+

`position` counts from the segment's start. `check` is a mix of the other three fields. It separates
a flipped bit in the entry from one in the record. Searched: by binary search, since entries are
ordered by position. An entry is written after its record and flushed with it. After a crash, a
record above the flushed mark without an entry is torn. A record below the mark without an entry has
lost it; RocketMQ's own check applies. Records of another broker have no entries until recovery has
read them. Used by the commit log.

RocketMQ's own check covers the body only. Its optional property makes each record longer and is
visible to consumers. See docs/decisions.md.
"""

from __future__ import annotations

import logging
import os
import struct
import threading
from bisect import bisect_left
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.store.files import durable
from rocketpy_broker.store.log.file_sequence import NAME_DIGITS
from rocketpy_broker.store.log.segment import Segment
from rocketpy_broker.store.values import FilePrefix
from rocketpy_proto.record.crc import body_crc, body_crcs
from rocketpy_proto.record.layout import FIXED_BYTES

logger = logging.getLogger(__name__)

ENTRY = np.dtype(
    [("position", ">i4"), ("size", ">i4"), ("crc", ">i4"), ("check", ">u4")],
)
ENTRY_BYTES = ENTRY.itemsize
_POSITION = struct.Struct(">i")
assert ENTRY_BYTES == 16
PAGE_BYTES = 4096
ALLOCATION_BYTES = 1 << 20
# Odd constants of 64 bits without pattern (fractions of the golden ratio and of the root of 3).
_MIX_PLACE, _MIX_CRC = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)

Entries = NDArray[np.void]
Positions = NDArray[np.int64]
Sizes = NDArray[np.int32]


def record_crcs(data: NDArray[np.uint8], starts: Positions, sizes: Sizes) -> NDArray[np.int32]:
    """Returns the CRC-32, without its top bit, of each record of `data`."""
    return body_crcs(data, starts, starts + sizes)


def _checks(
    positions: NDArray[np.integer], sizes: NDArray[np.integer], crcs: NDArray[np.integer]
) -> NDArray[np.uint32]:
    place = positions.astype(np.uint64) << np.uint64(32) | sizes.astype(np.uint64)
    mixed = place * _MIX_PLACE ^ crcs.astype(np.uint64) * _MIX_CRC
    checks: NDArray[np.uint32] = (mixed >> np.uint64(32)).astype(np.uint32) | np.uint32(1)
    return checks


def is_sound(entries: Entries) -> NDArray[np.bool_]:
    """Returns a mask of the entries that are intact."""
    sound: NDArray[np.bool_] = entries["check"] == _checks(
        entries["position"], entries["size"], entries["crc"]
    )
    return sound


def _entries_of(positions: Positions, sizes: Sizes, crcs: NDArray[np.int32]) -> Entries:
    entries = np.empty(len(positions), ENTRY)
    entries["position"], entries["size"], entries["crc"] = positions, sizes, crcs
    entries["check"] = _checks(positions, sizes, crcs)
    return entries


class SegmentChecksums:
    """The entries of one segment."""

    def __init__(
        self, path: Path, base: int, segment_bytes: int, *, read_only: bool = False
    ) -> None:
        self.path = path
        self.base = base
        size_bytes = checksums_file_bytes(segment_bytes)
        if read_only:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        elif path.exists():
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        else:
            first_bytes = min(ALLOCATION_BYTES, size_bytes)
            descriptor = durable.create_allocated(path, size_bytes, first_bytes)
        # A flush of the log flushes this file too.
        self.file = Segment(path, base, size_bytes, descriptor)
        self._entries = np.frombuffer(self.file.view, ENTRY)
        self._prefix = FilePrefix(0, 0)
        self.count = self._count()
        self._allocated_bytes = self.count * ENTRY_BYTES

    def _count(self) -> int:
        """Returns the number of entries up to the last that is not empty, searched in strides."""
        stride = ALLOCATION_BYTES // ENTRY_BYTES
        begin = 0
        while begin + stride < len(self._entries) and self._entries["size"][begin + stride] != 0:
            begin += stride
        used = np.flatnonzero(self._entries["size"][begin : begin + stride])
        return begin + (int(used[-1]) + 1 if len(used) else 0)

    def reserve(self, count: int) -> None:
        """Allocates disk blocks for `count` more entries. Raises OSError when the disk is full."""
        needed = (self.count + count) * ENTRY_BYTES
        if needed > self._allocated_bytes:
            steps = -(-needed // ALLOCATION_BYTES)
            self.file.allocate(min(steps * ALLOCATION_BYTES, self.file.size_bytes))
            self._allocated_bytes = steps * ALLOCATION_BYTES

    def append(self, positions: Positions, sizes: Sizes, crcs: NDArray[np.int32]) -> None:
        """Adds entries of records after the known ones. Raises OSError."""
        entries = _entries_of(positions, sizes, crcs)
        self.reserve(len(entries))
        self.file.write(self.count * ENTRY_BYTES, entries.view(np.uint8).data)
        self.count += len(entries)

    def insert(self, positions: Positions, sizes: Sizes, crcs: NDArray[np.int32]) -> None:
        """Adds entries of adjacent records; replaces known ones. Raises OSError."""
        later = self.entries_from(int(positions[-1] + sizes[-1])).copy()
        later = later[is_sound(later)]
        self.truncate(int(positions[0]))
        self.append(positions, sizes, crcs)
        self.append(later["position"], later["size"], later["crc"])

    def replace(self, position: int, size: int, crc: int) -> None:
        """Changes the entry of one record, or adds it. Raises OSError."""
        place = self._place(position)
        positions, sizes = np.array([position], np.int64), np.array([size], np.int32)
        entry = _entries_of(positions, sizes, np.array([crc], np.int32))
        known = self._entries[place : min(place + 1, self.count)]
        if (known["position"] == position).any() and (known["size"] == size).any():
            self._prefix = FilePrefix(0, 0)
            self.file.write(place * ENTRY_BYTES, entry.view(np.uint8).data)
        else:
            self.insert(positions, sizes, np.array([crc], np.int32))

    def entries_from(self, position: int) -> Entries:
        """Returns the entries of records at or after `position` of the segment."""
        return self._entries[self._place(position) : self.count]

    def _place(self, position: int) -> int:
        """Returns the number of the first entry at or after `position` of the segment.

        Reads one entry at a time: numpy would copy the whole column first.
        """
        return bisect_left(range(self.count), position, key=self._position_of)

    def _position_of(self, number: int) -> int:
        position: int = _POSITION.unpack_from(self.file.view, number * ENTRY_BYTES)[0]
        return position

    @property
    def last_position(self) -> int | None:
        """The position of the last record with an entry, or None."""
        return self._position_of(self.count - 1) if self.count else None

    def lookup(self, positions: Positions) -> Entries:
        """Returns an entry for each of ascending positions; an unsound one if none is known."""
        if len(positions) == 0:
            return np.zeros(0, ENTRY)
        between = self._entries[
            self._place(int(positions[0])) : self._place(int(positions[-1]) + 1)
        ]
        if len(between) == 0:
            return np.zeros(len(positions), ENTRY)
        places = np.searchsorted(between["position"].astype(np.int64), positions)
        found = between[np.minimum(places, len(between) - 1)]
        found["check"][found["position"] != positions] = 0
        return found

    def prefix(self, position: int) -> FilePrefix:
        """Returns the length and CRC-32 of the entries of records before `position`.

        Any thread may call it while entries are appended. The last result is cached, since the file
        of a full segment does not change any more.
        """
        length = self._place(position) * ENTRY_BYTES
        if length != self._prefix.length:
            self._prefix = FilePrefix(length, body_crc(self.file.view[:length]))
        return self._prefix

    def has_prefix(self, prefix: FilePrefix) -> bool:
        """True if the file still has this prefix."""
        length = min(prefix.length, self.file.size_bytes)
        return FilePrefix(length, body_crc(self.file.view[:length])) == prefix

    def drop_unsound(self) -> bool:
        """Drops entries that are damaged or out of order; returns True if there were any.

        A crash leaves holes where a page did not reach the disk; a search needs ordered entries.
        """
        known = self._entries[: self.count]
        good = np.flatnonzero(is_sound(known))
        positions = known["position"][good].astype(np.int64)
        rising = np.ones(len(good), np.bool_)
        rising[1:] = positions[1:] > np.maximum.accumulate(positions)[:-1]
        good = good[rising]
        if len(good) == self.count:
            return False
        kept = known[good].copy()
        first_bad = int(np.argmax(np.append(good, -1) != np.arange(len(good) + 1)))
        self._cut(first_bad)
        kept = kept[first_bad:]
        self.append(kept["position"], kept["size"], kept["crc"])
        return True

    def truncate(self, position: int) -> None:
        """Drops the entries at or after `position` of the segment. Raises OSError."""
        self._cut(self._place(position))

    def _cut(self, count: int) -> None:
        self._prefix = FilePrefix(0, 0)
        self.file.clear_from(count * ENTRY_BYTES)
        self.count = count

    def write_again(self, position: int) -> None:
        """Writes the entries from `position` of the segment on again, for a flush.

        Raises OSError.
        """
        first = self._place(position) * ENTRY_BYTES
        self.file.write(first, self.file.view[first : self.count * ENTRY_BYTES])

    def flush(self) -> None:
        """Makes the entries durable. Blocks. Raises OSError."""
        self.file.flush()

    def close(self) -> None:
        """Closes the file."""
        self.file.close()

    def remove(self) -> None:
        """Deletes the file."""
        self.file.remove()


def checksums_file_bytes(segment_bytes: int) -> int:
    """Returns the size of a file with room for a segment full of the smallest records."""
    entries = segment_bytes // FIXED_BYTES + 1
    return -(-entries * ENTRY_BYTES // PAGE_BYTES) * PAGE_BYTES


class Checksums:
    """The entries of all segments; a file is created ahead, or with its first entry."""

    def __init__(self, folder: Path, segment_bytes: int) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._segments: dict[int, SegmentChecksums] = {}
        self._making = threading.Lock()
        self._ahead: SegmentChecksums | None = None

    def load(self) -> None:
        """Opens the existing files. Raises OSError.

        A file of the wrong size is removed and rebuilt; a file with another name is kept. Both are
        logged.
        """
        durable.make_folder(self._folder)
        durable.unfinished_path(self._folder).unlink(missing_ok=True)
        file_bytes = checksums_file_bytes(self._segment_bytes)
        for path in sorted(self._folder.iterdir()):
            if not path.name.isdecimal():
                logger.warning("%s is none of the store's files and is ignored", path)
            elif (size_bytes := path.stat().st_size) != file_bytes:
                text = "%s has %d bytes instead of %d; its checksums are rebuilt"
                logger.warning(text, path, size_bytes, file_bytes)
                durable.remove_file(path)
            else:
                segment = SegmentChecksums(path, int(path.name), self._segment_bytes)
                self._segments[segment.base] = segment

    def add(self, segment: SegmentChecksums) -> None:
        """Adds a file that was opened separately."""
        self._segments[segment.base] = segment

    def of(self, segment: Segment) -> SegmentChecksums:
        """Returns the entries of `segment`, created if there are none. Raises OSError."""
        found = self._segments.get(segment.base)
        if found is None:
            with self._making:
                if self._ahead is not None and self._ahead.base == segment.base:
                    found, self._ahead = self._ahead, None
                else:
                    found = self._made(segment.base)
                self._segments[segment.base] = found
        return found

    def _made(self, base: int) -> SegmentChecksums:
        path = self._folder / f"{base:0{NAME_DIGITS}d}"
        return SegmentChecksums(path, base, self._segment_bytes)

    def make_ahead(self, base: int) -> None:
        """Creates the file of the next segment. Blocks. Any thread. Raises OSError."""
        with self._making:
            if self._ahead is None and base not in self._segments:
                self._ahead = self._made(base)

    def drop_ahead(self) -> None:
        """Removes the file that was created ahead, as a clean stop does."""
        with self._making:
            if self._ahead is not None:
                self._ahead.remove()
                self._ahead = None

    def find(self, segment: Segment) -> SegmentChecksums | None:
        """Returns the entries of `segment`, if it has any."""
        return self._segments.get(segment.base)

    def below(self, end: int) -> list[SegmentChecksums]:
        """Returns the files of segments that begin below physical offset `end`, in order."""
        return [segment for base, segment in sorted(self._segments.items()) if base < end]

    def verify_against(self, prefixes: Mapping[str, FilePrefix]) -> list[Path]:
        """Returns the files that differ from `prefixes`; drops entries that cannot be searched.

        Raises OSError.
        """
        by_name = {segment.path.name: segment for segment in self._segments.values()}
        doubted = []
        for name, prefix in prefixes.items():
            segment = by_name.get(name)
            if segment is None or not segment.has_prefix(prefix):
                doubted.append(self._folder / name)
        for segment in self._segments.values():
            prefix = prefixes.get(segment.path.name, FilePrefix(0, 0))
            is_verified = prefix.length == segment.count * ENTRY_BYTES
            if not is_verified or segment.path in doubted:
                segment.drop_unsound()
        return doubted

    def truncate(self, end: int) -> None:
        """Drops the entries of every record at or after physical offset `end`."""
        for base in [base for base in self._segments if base >= end]:
            self._segments.pop(base).remove()
        for base, segment in self._segments.items():
            if end < base + self._segment_bytes:
                segment.truncate(end - base)

    def drop_below(self, begin: int) -> None:
        """Closes the files of segments below physical offset `begin`, which have been removed."""
        for base in [base for base in self._segments if base < begin]:
            self._segments.pop(base).close()

    def flush(self) -> None:
        """Makes every entry durable. Blocks. Raises OSError."""
        for segment in list(self._segments.values()):
            segment.flush()

    def close(self) -> None:
        """Closes the files."""
        with self._making:
            if self._ahead is not None:
                self._ahead.close()
                self._ahead = None
        for segment in self._segments.values():
            segment.close()
        self._segments.clear()
