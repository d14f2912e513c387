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

from rocketpy_broker.store.check.faults import (
    Advance,
    CheckContext,
    Fault,
    Finding,
    finding,
    numbered,
    runs,
)
from rocketpy_broker.store.log.checksums import ENTRY_BYTES, SegmentChecksums, is_sound
from rocketpy_broker.store.log.filler import fillers_of
from rocketpy_broker.store.log.scanner import LogScanner, LogSpan
from rocketpy_broker.store.log.segment import Segment
from rocketpy_broker.store.values import Damage
from rocketpy_proto.counts import counted
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
        # True if the checksums of the segment that was read last can be searched.
        self._ordered_of, self._are_ordered = -1, False

    def spans(self, advance: Advance) -> Iterator[LogSpan | Damage]:
        """Yields the log's spans and damages; calls `advance` with the number of bytes read."""
        for item in self._scanner.scan(self._log.begin):
            length = len(item.block.data) if isinstance(item, LogSpan) else item.length
            advance(item.offset + length - self._position)
            self._position = item.offset + length
            self._record_ends[self._segment(item.offset).base] = self._position
            if isinstance(item, LogSpan):
                self.record_count += len(item.block)
                last_ms = int(item.block.header["store_timestamp"].max())
                context = self._context
                context.last_store_timestamp_ms = max(context.last_store_timestamp_ms, last_ms)
            yield item
        self._context.log_end = self._scanner.end
        advance(self._log.files.end - self._position)

    def _segment(self, offset: int) -> Segment:
        segment = self._log.files.find(offset)
        assert segment is not None
        return segment

    def damage(self, damage: Damage) -> Fault:
        """Returns the fault for damaged bytes that had been on disk."""
        segment = self._segment(damage.offset)
        position = damage.offset - segment.base
        reason = _reason(segment, position, damage)
        lost = counted(damage.length, "byte of the log is", "bytes of the log are")
        text = f"{lost} damaged: {reason}"
        return Fault(damage.path, position, text)

    def records(self, span: LogSpan) -> Iterator[Finding]:
        """Yields wrong body CRCs and missing checksums, which a scan accepts."""
        segment = self._segment(span.offset)
        begin = span.offset - segment.base
        try:
            span.block.verify_body_crc()
        except MalformedRecordError as error:
            yield Fault(segment.path, begin + error.position, error.reason)
        checksums = self._log.checksums.find(segment)
        if not self._context.has_checksums or checksums is None:
            return
        if self._ordered_of != segment.base:
            self._ordered_of, self._are_ordered = segment.base, _are_ordered(checksums)
        if not self._are_ordered:
            # They have findings of their own, and a search may miss sound ones.
            return
        positions = span.block.positions + begin
        for run in runs(checksums.lookup(positions)["check"] == 0):
            first = int(positions[run.start])
            number = checksums.count - len(checksums.entries_from(first))
            text = (
                f"no checksum of {counted(len(run), 'record')} from byte {first} of the segment on"
            )
            is_fault = first + segment.base < self._context.checksums_end
            yield finding(checksums.path, number * ENTRY_BYTES, text, is_fault=is_fault)

    def fillers(self, span: LogSpan) -> Iterator[Finding]:
        """Yields fillers, which replace damaged records; units of these records are no faults."""
        segment = self._segment(span.offset)
        for filler in fillers_of(span.block):
            offset, size = filler.physical_offset, filler.size
            self._context.damages.append(Damage(segment.path, offset, size, "filled"))
            text = f"{size} bytes replace a damaged record, which a start moved to quarantine"
            yield finding(segment.path, offset - segment.base, text, is_fault=False)

    def records_after(self) -> Iterator[Finding]:
        """Yields nonzero bytes after the log's end, and after blank records.

        A failed append leaves bytes after a blank record; they are never read.
        """
        abnormal, log_end = self._context.traces.abnormal, self._context.log_end
        for segment in self._log.files.segments:
            is_last = segment.end > log_end
            end = log_end if is_last else self._record_ends.get(segment.base, segment.base)
            start = max(end - segment.base, 0) + (0 if is_last else BLANK_BYTES)
            used = segment.used_end(start) if start < segment.size_bytes else start
            if used > start:
                what = "a torn tail" if abnormal else "no whole record starts here: the rest"
                text = f"{what} of {used - start} bytes is after the log's end"
                if not is_last:
                    text = f"{used - start} bytes after the blank record are not zero"
                yield finding(segment.path, start, text, is_fault=is_last and not abnormal)

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
        abnormal, log_end = self._context.traces.abnormal, self._context.log_end
        entries = checksums.entries_from(_ANY_POSITION)
        sound = is_sound(entries)
        for run in runs(~sound):
            empty = not entries[run.start : run.stop].tobytes().strip(b"\0")
            text = numbered("entry", run)
            text += " is empty" if empty else " does not agree with its check"
            is_fault = not (abnormal and empty)
            yield finding(checksums.path, run.start * ENTRY_BYTES, text, is_fault=is_fault)
        places = np.flatnonzero(sound)
        begins = entries["position"][places].astype(np.int64)
        ends = begins + entries["size"][places]
        overlaps = np.append(False, begins[1:] < ends[:-1])
        behind = (ends + segment.base > log_end) & ~overlaps
        for wrong, what, is_fault in (
            (overlaps, "overlaps the one before", True),
            (behind, f"is of a record after the log's end {log_end}", not abnormal),
        ):
            for run in runs(wrong):
                number = int(places[run.start])
                text = f"entry {number} {what} ({len(run)} of them)"
                yield finding(checksums.path, number * ENTRY_BYTES, text, is_fault=is_fault)


def _are_ordered(checksums: SegmentChecksums) -> bool:
    entries = checksums.entries_from(_ANY_POSITION)
    positions = entries["position"].astype(np.int64)
    return bool(is_sound(entries).all() and (np.diff(positions) > 0).all())


def _reason(segment: Segment, position: int, damage: Damage) -> str:
    """Returns the reason from the record itself if it can be read, else the reason of `damage`."""
    try:
        record = decode_record(segment.view, position, check_crc=False).record
        if record.physical_offset != damage.offset:
            return f"the record names its own offset as {record.physical_offset}"
        decode_record(segment.view, position)
    except MalformedRecordError as error:
        return error.reason
    return damage.reason
