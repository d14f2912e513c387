"""Check of the commit log and its checksums.

`LogScanner` separates records from damage and finds the log's end, as in recovery. In addition,
bodies are compared with their CRC even if a checksum covers the whole record. The checksum entries
are checked, too. The log spans found here drive the checks of queues and index. The check only
reads.
Source: docs/design/storage.md sections 2 and 10.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.store.check.faults import Advance, CheckContext, Fault, Finding, finding, runs
from rocketpy_broker.store.log.checksums import ENTRY_BYTES, SegmentChecksums, is_sound
from rocketpy_broker.store.log.filler import fillers_of
from rocketpy_broker.store.log.scanner import LogScanner, LogSpan
from rocketpy_broker.store.log.segment import Segment
from rocketpy_broker.store.values import Damage
from rocketpy_proto.record import BLANK_BYTES, MalformedRecordError, decode_record

# Lower than any position that an entry can name, so that broken entries are found, too.
_ANY_POSITION = -(1 << 31)


class LogCheck:
    """One scan of the log. `record_count` is the number of whole records."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._log = context.log
        self._scanner = LogScanner(context.log, context.trust)
        # The physical offset after the last read, and the end of the records by segment.
        self._position = context.log.begin
        self._record_ends: dict[int, int] = {}
        self.record_count = 0
        # The positions that have a checksum, of the segment that was read last.
        self._known_of = -1
        self._known: NDArray[np.int64] | None = None

    def stretches(self, advance: Advance) -> Iterator[LogSpan | Damage]:
        """Yields the log's spans and damages; calls `advance` with the number of bytes read."""
        for item in self._scanner.scan(self._log.begin):
            length = len(item.block.data) if isinstance(item, LogSpan) else item.length
            advance(item.offset + length - self._position)
            self._position = item.offset + length
            segment = self._log.files.find(item.offset)
            assert segment is not None
            self._record_ends[segment.base] = self._position
            if isinstance(item, LogSpan):
                self.record_count += len(item.block)
                last_ms = int(item.block.header["store_timestamp"].max())
                context = self._context
                context.last_store_timestamp_ms = max(context.last_store_timestamp_ms, last_ms)
            yield item
        self._context.log_end = self._scanner.end
        advance(self._log.files.end - self._position)

    def damage(self, damage: Damage) -> Fault:
        """Returns the fault for damaged bytes that had been on disk."""
        segment = self._log.files.find(damage.offset)
        assert segment is not None
        position = damage.offset - segment.base
        reason = _reason(segment, position, damage)
        text = f"{damage.length} bytes of the log are damaged: {reason}"
        return Fault(damage.path, position, text)

    def stretch(self, stretch: LogSpan) -> Iterator[Finding]:
        """Yields faults of records that are otherwise as written."""
        segment = self._log.files.find(stretch.offset)
        assert segment is not None
        begin = stretch.offset - segment.base
        try:
            stretch.block.verify_body_crc()
        except MalformedRecordError as error:
            yield Fault(segment.path, begin + error.position, error.reason)
        checksums = self._log.checksums.find(segment)
        if not self._context.has_checksums or checksums is None:
            return
        known = self._known_positions(segment, checksums)
        if known is None:
            # The broken entries have findings of their own.
            return
        positions = stretch.block.positions + begin
        places = np.searchsorted(known, positions)
        there = np.append(known, -1)[places] == positions
        for run in runs(~there):
            yield finding(
                checksums.path,
                int(places[run.begin]) * ENTRY_BYTES,
                f"{len(run)} records from byte {positions[run.begin]} of the segment on have no "
                "checksum",
                is_fault=int(positions[run.begin]) + segment.base < self._context.checksums_end,
            )

    def fillers(self, stretch: LogSpan) -> Iterator[Finding]:
        """Yields fillers, which replace damaged records; units of these records are excused."""
        for filler in fillers_of(stretch.block):
            segment = self._log.files.find(stretch.offset)
            assert segment is not None
            offset, size = filler.physical_offset, filler.size
            self._context.damages.append(Damage(segment.path, offset, size, "filled"))
            text = f"{size} bytes stand for a damaged record, which a start has put into quarantine"
            yield finding(segment.path, offset - segment.base, text, is_fault=False)

    def _known_positions(
        self, segment: Segment, checksums: SegmentChecksums
    ) -> NDArray[np.int64] | None:
        """Returns the segment's positions that have a checksum; None if entries are broken."""
        if self._known_of != segment.base:
            entries = checksums.entries_from(_ANY_POSITION)
            positions = entries["position"].astype(np.int64)
            is_whole = is_sound(entries).all() and (np.diff(positions) > 0).all()
            self._known_of, self._known = segment.base, positions if is_whole else None
        return self._known

    def behind_records(self) -> Iterator[Finding]:
        """Yields nonzero bytes after blank records and after the log's end."""
        abnormal = self._context.traces.abnormal
        for segment in self._log.files.segments:
            if segment.end <= self._context.log_end:
                yield from self._behind_blank(segment)
                continue
            start = max(self._context.log_end - segment.base, 0)
            used = segment.used_end(start)
            if used > start:
                what = "a torn tail" if abnormal else "no whole record begins here: the rest"
                text = f"{what} of {used - start} bytes lies behind the log's end"
                yield finding(segment.path, start, text, is_fault=not abnormal)

    def _behind_blank(self, segment: Segment) -> Iterator[Finding]:
        """Yields bytes after a blank record, left by a failed append; they are never read."""
        end = self._record_ends.get(segment.base, segment.base) - segment.base
        start = end + BLANK_BYTES
        used = segment.used_end(start) if start < segment.size_bytes else start
        if used > start:
            text = f"{used - start} bytes behind the blank record are not zero"
            yield finding(segment.path, start, text, is_fault=False)

    def checksums(self) -> Iterator[Finding]:
        """Yields entries that are broken, out of order, or without a record."""
        if not self._context.has_checksums:
            return
        for segment in self._log.files.segments:
            checksums = self._log.checksums.find(segment)
            if checksums is not None:
                yield from self._entries(segment, checksums)
            elif segment.base < self._context.log_end:
                path = self._context.folder / "rocketpy" / "checksums" / segment.path.name
                text = "is missing: records of the segment are checked by their body's CRC only"
                yield finding(path, 0, text, is_fault=segment.base < self._context.checksums_end)

    def _entries(self, segment: Segment, checksums: SegmentChecksums) -> Iterator[Finding]:
        abnormal = self._context.traces.abnormal
        entries = checksums.entries_from(_ANY_POSITION)
        sound = is_sound(entries)
        for run in runs(~sound):
            empty = not entries[run.begin : run.end].tobytes().strip(b"\0")
            text = f"{run.of('entry')} {'is empty' if empty else 'does not agree with its check'}"
            yield finding(
                checksums.path, run.begin * ENTRY_BYTES, text, is_fault=not (abnormal and empty)
            )
        places = np.flatnonzero(sound)
        begins = entries["position"][places].astype(np.int64)
        ends = begins + entries["size"][places]
        overlaps = np.append(False, begins[1:] < ends[:-1])
        behind = ends + segment.base > self._context.log_end
        for wrong, what in ((overlaps, "overlaps the one before"), (behind & ~overlaps, "")):
            for run in runs(wrong):
                is_tail = abnormal and not what
                text = what or f"is of a record behind the log's end {self._context.log_end}"
                number = int(places[run.begin])
                yield finding(
                    checksums.path,
                    number * ENTRY_BYTES,
                    f"entry {number} {text} ({len(run)} of them)",
                    is_fault=not is_tail,
                )


def _reason(segment: Segment, position: int, damage: Damage) -> str:
    """Returns the reason from the record itself if it can be read, else the reason of `damage`."""
    try:
        record = decode_record(segment.view, position, check_crc=False).record
        if record.physical_offset != damage.offset:
            return f"the record says that it lies at {record.physical_offset}"
        decode_record(segment.view, position)
    except MalformedRecordError as error:
        return error.reason
    return damage.reason
