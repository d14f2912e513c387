"""Scans of the commit log: whole records, damage, and the log's end.

A scan distinguishes three kinds of bytes. *Whole* records have the right form and their own
physical offset, and agree with their checksum. RocketMQ's own CRCs are used if no checksum is
known. *Damage* is what had been flushed but is not whole: it is skipped, and the records after it
are served. The *end* is the first place that is not whole and had not been flushed. It is the torn
tail of a crash, or the end of RocketMQ's log. A scan starts exactly at the requested offset, or
raises an error.

Adjacent damage is reported as one. A scan only reads, so a crash during it has no effect. Used by
recovery and by `rocketpy store check`.
Source: CommitLog#checkMessageAndReturnSize, docs/design/storage.md sections 2.6 and 10; the three
kinds are ours, RocketMQ ends its log at the first bad record.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.errors import LogOffsetError
from rocketpy_broker.store.log.checksums import Entries, SegmentChecksums, is_sound
from rocketpy_broker.store.log.commit_log import CommitLog
from rocketpy_broker.store.log.property_crc import wrong_property_crcs
from rocketpy_broker.store.log.segment import Segment
from rocketpy_broker.store.values import Damage
from rocketpy_proto.record import (
    END_OF_SEGMENT_MAGIC,
    RECORD_MAGICS,
    DecodedRecord,
    MalformedRecordError,
    RecordBlock,
    decode_record,
)
from rocketpy_proto.record.layout import FIXED_BYTES

SCAN_BYTES_MAX = 16 << 20
_SCAN_ROWS_MAX = 1 << 16
# Records checked after a damaged one, and the growth of that number while they are alike.
_ROWS_AFTER_DAMAGE, _ROWS_GROWTH = 16, 4
_SIZE_AND_MAGIC = struct.Struct(">iI")
_MAGIC_OFFSET = 4
_MAGICS = re.compile(
    b"|".join(re.escape(struct.pack(">I", m)) for m in (*RECORD_MAGICS, END_OF_SEGMENT_MAGIC))
)


class Checksummed(Enum):
    """The records that have a checksum of the written bytes."""

    ALL = "all"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Trust:
    """Knowledge about the log before the scan.

    Everything below physical offset `flushed` has been on disk, so the log does not end below it.
    Without checksums a record is whole if it passes RocketMQ's own check.
    """

    flushed: int
    checksums: Checksummed


@dataclass(frozen=True, slots=True)
class LogSpan:
    """Adjacent whole records from physical offset `offset` on."""

    offset: int
    block: RecordBlock


class LogScanner:
    """One scan; after its last item, `end` is the physical offset of the log's end.

    Yields records that begin within `bytes_max` of each other as one log span.
    """

    def __init__(self, log: CommitLog, trust: Trust, bytes_max: int = SCAN_BYTES_MAX) -> None:
        self._log = log
        self._trust = trust
        self._bytes_max = bytes_max
        self._rows_max = self._rows = min(bytes_max // FIXED_BYTES + 1, _SCAN_ROWS_MAX)
        self.end = 0

    def scan(self, begin: int) -> Iterator[LogSpan | Damage]:
        """Yields the log spans and damage from physical offset `begin` on, in order.

        Raises LogOffsetError if the log does not hold `begin`, or if later segments have been
        removed during the scan: nothing is ever skipped.
        """
        files, self.end = self._log.files, begin
        while self.end != files.end:
            segment = files.find(self.end)
            if segment is None:
                raise LogOffsetError(self.end, files.begin, files.end)
            yield from self._scan_segment(segment, self.end - segment.base)
            if self.end < segment.end:
                return

    def _scan_segment(self, segment: Segment, position: int) -> Iterator[LogSpan | Damage]:
        """Yields the items of one segment; sets `end` to the segment's end if the log continues."""
        damage: Damage | None = None
        end = segment.size_bytes
        while position < segment.size_bytes:
            sizes = self._sizes(segment, position)
            block, reason = self._whole(segment, position, sizes)
            if len(block) > 0:
                if damage is not None:
                    yield damage
                    damage = None
                yield LogSpan(segment.base + position, block)
                position += len(block.data)
                self._rows = min(self._rows * _ROWS_GROWTH, self._rows_max)
            if len(block) < len(sizes) or len(sizes) == 0:
                if is_blank(segment, position):
                    break
                behind = self._after_damage(segment, position)
                if behind is None:
                    end = position
                    break
                found = Damage(segment.path, segment.base + position, behind - position, reason)
                damage = found if damage is None else _joined(damage, found)
                position = behind
                self._rows = min(_ROWS_AFTER_DAMAGE, self._rows_max)
        if damage is not None:
            yield damage
        self.end = segment.base + end

    def _sizes(self, segment: Segment, position: int) -> NDArray[np.int32]:
        """Returns the sizes of the next records, from their checksum entries or by walking them."""
        checksums = self._checksums(segment)
        if checksums is not None:
            entries = checksums.entries_from(position)[: self._rows]
            sizes = entries["size"].astype(np.int64)
            expected = position + np.cumsum(sizes) - sizes
            good = is_sound(entries) & (entries["position"] == expected)
            good &= (sizes > 0) & (expected + sizes <= segment.size_bytes)
            good &= expected - position < self._bytes_max
            count = len(good) if good.all() else int(np.argmin(good))
            if count > 0:
                return sizes[:count].astype(np.int32)
        return walk(segment, position, self._bytes_max, self._rows)

    def _checksums(self, segment: Segment) -> SegmentChecksums | None:
        if self._trust.checksums is Checksummed.NONE:
            return None
        return self._log.checksums.find(segment)

    def _whole(
        self, segment: Segment, position: int, sizes: NDArray[np.int32]
    ) -> tuple[RecordBlock, str]:
        """Returns the leading records that are whole, and the fault of the next one."""
        reason = "no record starts here"
        while True:
            view = segment.view[position : position + int(sizes.sum())]
            try:
                block = RecordBlock.parse(view, sizes)
                index = self._first_bad(segment, position, block)
                if index is None:
                    return block, reason
                reason = "the record differs from its checksum"
            except MalformedRecordError as error:
                # Sizes and lengths fit by construction, so a fault always has its record.
                index, reason = error.index or 0, error.reason
            sizes = sizes[:index]

    def _first_bad(self, segment: Segment, position: int, block: RecordBlock) -> int | None:
        """Returns the index of the first record that differs from the one written here."""
        positions = block.positions + position
        bad = block.header["physical_offset"] != positions + segment.base
        known = np.zeros(len(block), np.bool_)
        if self._trust.checksums is not Checksummed.NONE:
            compared = self._log.compare(segment, positions, block.sizes)
            known = compared.known
            bad |= compared.damaged
        if self._trust.checksums is Checksummed.ALL:
            # A record reaches the disk together with its checksum, or it is torn.
            bad |= ~known & (positions + segment.base >= self._trust.flushed)
        if bad.any():
            return int(np.argmax(bad))
        if not known.all():
            block.verify_body_crc()
            wrong = wrong_property_crcs(block) & ~known
            return int(np.argmax(wrong)) if wrong.any() else None
        return None

    def _after_damage(self, segment: Segment, position: int) -> int | None:
        """Returns the next position after damage; None if the log ends before it."""
        offset = segment.base + position
        if offset < self._trust.flushed:
            stop = min(self._trust.flushed, segment.end) - segment.base
            found = self._next_record(segment, position, stop)
            return stop if found is None else found
        if self._trust.checksums is Checksummed.NONE:
            # RocketMQ does not end its log at bytes that pass its check, even if they are no record
            # here.
            return _end_of_form(segment, position)
        return None

    def _next_record(self, segment: Segment, position: int, stop: int) -> int | None:
        """Returns the position of the first record, or blank one, within (position, stop)."""
        checksums, position = self._checksums(segment), position + 1
        if checksums is not None:
            entries = checksums.entries_from(position)
            found, position = self._next_as_written(segment, entries, position)
            if found is not None or position >= stop:
                return found if found is not None and found < stop else None
        for match in _MAGICS.finditer(segment.view, position + _MAGIC_OFFSET, stop):
            candidate = match.start() - _MAGIC_OFFSET
            if is_blank(segment, candidate) or _record_at(segment, candidate) is not None:
                return candidate
        return None

    def _next_as_written(
        self, segment: Segment, entries: Entries, position: int
    ) -> tuple[int | None, int]:
        """Returns the position of the first record that agrees with its entry, or None.

        Also returns the position after all records that differ from their entries, at least
        `position`.
        """
        begin, count = 0, _ROWS_AFTER_DAMAGE
        while begin < len(entries):
            part = entries[begin : begin + count]
            positions, sizes = part["position"].astype(np.int64), part["size"].astype(np.int32)
            fits = is_sound(part) & (sizes > 0) & (positions + sizes <= segment.size_bytes)
            positions, sizes = positions[fits], sizes[fits]
            same = ~self._log.compare(segment, positions, sizes).damaged
            if same.any():
                return int(positions[int(np.argmax(same))]), position
            if len(positions) > 0:
                position = int(positions[-1] + sizes[-1])
            begin += count
            count = min(count * _ROWS_GROWTH, _SCAN_ROWS_MAX)
        return None, position


def _joined(damage: Damage, following: Damage) -> Damage:
    """Returns both as one; keeps the first reason."""
    return replace(damage, length=damage.length + following.length)


def walk(
    segment: Segment,
    position: int,
    bytes_max: int,
    rows_max: int = _SCAN_ROWS_MAX,
    stop: int | None = None,
) -> NDArray[np.int32]:
    """Returns the sizes of consecutive records that begin within `bytes_max` bytes.

    They end at `stop`, or at the segment's end. Costs 0.2 microseconds a record; needed only
    without checksum entries.
    """
    sizes: list[int] = []
    view, start = segment.view, position
    limit = segment.size_bytes if stop is None else stop
    while position - start < bytes_max and len(sizes) < rows_max:
        if limit - position < _SIZE_AND_MAGIC.size:
            break
        size, magic = _SIZE_AND_MAGIC.unpack_from(view, position)
        if magic not in RECORD_MAGICS or not 0 < size <= limit - position:
            break
        sizes.append(size)
        position += size
    return np.array(sizes, np.int32)


def is_blank(segment: Segment, position: int) -> bool:
    """True if a blank record fills the rest of the segment, or the rest is too small for one."""
    left = segment.size_bytes - position
    if left < _SIZE_AND_MAGIC.size:
        return True
    fields: tuple[int, int] = _SIZE_AND_MAGIC.unpack_from(segment.view, position)
    return fields == (left, END_OF_SEGMENT_MAGIC)


def _end_of_form(segment: Segment, position: int) -> int | None:
    """Returns the position after a record that passes RocketMQ's check, at any physical offset."""
    try:
        return position + decode_record(segment.view, position).size
    except MalformedRecordError:
        return None


def _record_at(segment: Segment, position: int) -> DecodedRecord | None:
    """Returns the record that begins here and has this physical offset."""
    try:
        decoded = decode_record(segment.view, position)
    except MalformedRecordError:
        return None
    return decoded if decoded.record.physical_offset == segment.base + position else None
