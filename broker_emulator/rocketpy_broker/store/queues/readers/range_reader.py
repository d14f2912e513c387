"""Reads of consecutive records of one queue.

The consume queue names byte ranges of the log, which are gathered without decoding. Adjacent ranges
are returned as views of the mapped log. One Arrow `take` gathers scattered ranges, without a loop
over messages.

A unit is valid only if a record with its size and physical offset is there. Among adjacent records
that this process has written, only the first and the last unit are checked. Records may come from
the disk if they are not recent, or were neither written nor scanned by this process. These are
first compared with their checksums. A damaged record is reported and skipped; a filler is skipped.
Source: docs/design/storage.md section 6.6 (statuses and next offsets).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.store.log.commit_log import CommitLog
from rocketpy_broker.store.log.filler import fillers_among
from rocketpy_broker.store.log.property_crc import wrong_property_crcs
from rocketpy_broker.store.log.segment import Segment
from rocketpy_broker.store.queues.consume_queue import ConsumeQueue
from rocketpy_broker.store.queues.readers.candidates import (
    SCAN_UNITS_MAX,
    Candidates,
    matching_units,
)
from rocketpy_broker.store.queues.readers.record_copy import (
    FEW_RECORDS,
    Parts,
    gather,
    gather_few,
    gather_written,
)
from rocketpy_broker.store.queues.units import BLANK_SIZE, Units, blank_count
from rocketpy_broker.store.values import (
    Damage,
    GetMessageResult,
    GetMessageStatus,
    QueueBounds,
    ReadLimits,
)
from rocketpy_proto.record import MalformedRecordError, RecordBlock, has_queue_offset
from rocketpy_proto.record.layout import FIXED_BYTES, MAGIC_V1, MAGIC_V2

_HEAD = np.dtype(
    {
        "names": ["total_size", "magic", "flag", "physical_offset", "sys_flag", "store_host"],
        "formats": [">i4", ">u4", ">i4", ">i8", ">i4", "V8"],
        "offsets": [0, 4, 16, 28, 36, 64],
        "itemsize": 72,
    }
)
# A read looks up the units of the queue's last read and UNITS_BEYOND more, at least FIRST_UNITS. So
# it often needs no second look-up.
FIRST_UNITS, UNITS_BEYOND = 64, 16
NOTHING_WRITTEN = 1 << 62


@dataclass(slots=True)
class Reader:
    """Reader of one log. Offsets are physical ones, in bytes.

    From `checked_from` on this process has checked every record. From `written_from` on it has
    written the records and their units. Data within `memory_bytes` of the log's end counts as being
    in memory. Damaged records are reported to `on_damage`.
    """

    log: CommitLog
    memory_bytes: int
    on_damage: Callable[[Damage], None]
    checked_from: int = 0
    written_from: int = NOTHING_WRITTEN

    def get_message(
        self, queue: ConsumeQueue, offset: int, offset_end: int, limits: ReadLimits
    ) -> GetMessageResult:
        """Returns the records [offset, offset_end) of `queue` within `limits`, but at least one.

        May end early: at the end of a queue file or log segment, or before a damaged record. With a
        tag filter it also ends after SCAN_UNITS_MAX units. `next_offset` is the next read's start.
        """
        bounds = QueueBounds(queue.min_offset, queue.max_offset)
        missed = _outside(bounds, offset)
        if missed is not None:
            return missed
        look = max(queue.units_read, FIRST_UNITS)
        first = queue.units(offset, offset + look)
        _, first_size, _ = first.item(0)
        if first_size == BLANK_SIZE:
            blank = queue.units(offset, min(bounds.max_offset, offset + SCAN_UNITS_MAX))
            status = GetMessageStatus.MESSAGE_WAS_REMOVING
            return _without_records(status, offset + blank_count(blank), bounds)
        if limits.tags_codes is None:
            count = max(min(offset_end - offset, _units_wanted(limits, first_size)), 0)
            is_enough = count <= len(first) or len(first) < look or not _fit(limits, first)
            units = first[:count] if is_enough else queue.units(offset, offset + count)
            result = self._read(bounds, Candidates(offset, units), limits)
            queue.units_read = min(result.next_offset - offset + UNITS_BEYOND, SCAN_UNITS_MAX)
            return result
        matching = matching_units(queue, offset, offset_end, limits.tags_codes)
        if len(matching) == 0:
            return self._unmatched(bounds, matching, matching.offset_after(0))
        return self._read(bounds, matching, limits)

    def _read(
        self, bounds: QueueBounds, candidates: Candidates, limits: ReadLimits
    ) -> GetMessageResult:
        """Returns the records of the first candidates, at least of one."""
        physical_offset, first_size, _ = candidates.first(1).item(0)
        segment = self.log.files.find(physical_offset)
        if segment is None:
            return _gone(bounds, candidates)
        is_cold = physical_offset < self._cold_end
        is_written = not is_cold and physical_offset >= self.written_from
        if is_written and limits.matches is None:
            few = self._few(bounds, candidates, segment, limits, first_size)
            if few is not None:
                return few
        units = self._fitting(candidates, segment, limits, first_size, is_cold=is_cold)
        offsets, sizes = _fields(units)
        parts: Parts | None = None
        if is_written:
            parts = gather_written(segment, offsets, sizes)
        if parts is None:
            units = self._whole(segment, units, is_cold=is_cold)
            if len(units) == 0:
                return _gone(bounds, candidates)
            offsets, sizes = offsets[: len(units)], sizes[: len(units)]
        next_offset = candidates.offset_after(len(units))
        if limits.matches is not None:
            count_max = limits.cold_matches_max if is_cold else limits.matches_max
            found = _first_true(_matching(segment, units, limits.matches), max(count_max, 1))
            next_offset = candidates.offset_after(len(found))
            offsets, sizes = offsets[: len(found)][found], sizes[: len(found)][found]
            if len(sizes) == 0:
                return self._unmatched(bounds, candidates, next_offset)
            parts = None
        parts = gather(segment, offsets - segment.base, sizes) if parts is None else parts
        return self._found(bounds, candidates, next_offset, parts, sizes)

    def _few(
        self,
        bounds: QueueBounds,
        candidates: Candidates,
        segment: Segment,
        limits: ReadLimits,
        first_size: int,
    ) -> GetMessageResult | None:
        """Returns the result if few records are wanted and all are where their units say."""
        count_max = min(len(candidates), _count_max(limits.count_max, limits.bytes_max, first_size))
        if not 0 < count_max <= FEW_RECORDS:
            return None
        units = candidates.first(count_max)
        gathered = gather_few(segment, units, limits.bytes_max)
        if gathered is None:
            return None
        parts, count = gathered
        sizes = units["size"][:count].astype(np.int32)
        return self._found(bounds, candidates, candidates.offset_after(count), parts, sizes)

    def _found(
        self,
        bounds: QueueBounds,
        candidates: Candidates,
        next_offset: int,
        parts: Parts,
        sizes: NDArray[np.int32],
    ) -> GetMessageResult:
        behind_bytes = self._behind_bytes(candidates, next_offset)
        return GetMessageResult(
            GetMessageStatus.FOUND,
            next_offset,
            bounds.min_offset,
            bounds.max_offset,
            parts,
            sizes,
            behind_bytes > self.memory_bytes,
            behind_bytes,
        )

    @property
    def _cold_end(self) -> int:
        """Physical offset below which data may have to be read from disk."""
        return self.log.end - self.memory_bytes

    def _behind_bytes(self, candidates: Candidates, next_offset: int) -> int:
        """Returns the bytes from the last record before `next_offset` to the log's end."""
        last = next_offset - candidates.offset - 1
        physical_offset, _, _ = candidates.units.item(last)
        return self.log.end - int(physical_offset)

    def _unmatched(
        self, bounds: QueueBounds, candidates: Candidates, next_offset: int
    ) -> GetMessageResult:
        """Returns the result of a read that matched nothing before `next_offset`."""
        result = _without_records(GetMessageStatus.NO_MATCHED_MESSAGE, next_offset, bounds)
        if next_offset <= candidates.offset:
            return result
        behind_bytes = self._behind_bytes(candidates, next_offset)
        is_cold = behind_bytes > self.memory_bytes
        return replace(result, is_cold=is_cold, behind_bytes=behind_bytes)

    def _fitting(
        self,
        candidates: Candidates,
        segment: Segment,
        limits: ReadLimits,
        first_size: int,
        *,
        is_cold: bool,
    ) -> Units:
        """Returns the leading real units in `segment` that fit the limits; at least one.

        Offsets ascend, so all units after a hot one are hot.
        """
        count_max, bytes_max = limits.count_max, limits.bytes_max
        if is_cold:
            count_max = max(count_max, limits.cold_count_max)
            bytes_max = max(bytes_max, limits.cold_bytes_max)
        units = candidates.first(_count_max(count_max, bytes_max, first_size))
        # A negative size is wrong and counts as a very large one.
        ends = units["size"].astype(np.uint32).cumsum(dtype=np.int64)
        if not is_cold:
            # `_whole` handles blank units and units after the segment.
            return units[: max(int(ends.searchsorted(limits.bytes_max, "right")), 1)]
        # Each unit has its own limits.
        is_unit_cold = units["physical_offset"].astype(np.int64) < self._cold_end
        counts = np.arange(len(units))
        is_full = (counts >= limits.cold_count_max) | (ends > limits.cold_bytes_max)
        is_hot_full = (counts >= limits.count_max) | (ends > limits.bytes_max)
        stops = np.where(is_unit_cold, is_full, is_hot_full)
        stops |= (units["size"] == BLANK_SIZE) | (units["physical_offset"] >= segment.end)
        stops[0] = False
        return units[: int(np.argmax(stops))] if stops.any() else units

    def _whole(self, segment: Segment, units: Units, *, is_cold: bool) -> Units:
        """Returns the units before the first damaged record; reports a damaged first record."""
        offsets, sizes = _fields(units)
        starts = offsets - segment.base
        inside = (sizes >= FIXED_BYTES) & (starts >= 0) & (starts <= segment.size_bytes - sizes)
        if not inside.all():
            units = units[: int(np.argmin(inside))]
            starts, sizes = starts[: len(units)], sizes[: len(units)]
        heads = _heads(segment, starts)
        here = (heads["total_size"] == sizes) & (heads["physical_offset"] == offsets[: len(units)])
        here &= (heads["magic"] == MAGIC_V1) | (heads["magic"] == MAGIC_V2)
        shown = here & has_queue_offset(heads["sys_flag"]) & ~fillers_among(heads)
        here = here[: 1 + int(np.argmin(shown))] if not shown.all() else here
        good = _leading(here)
        if good > 0 and (is_cold or int(offsets.min()) < self.checked_from):
            damaged = first_damaged(self.log, segment, starts[:good], sizes[:good])
            good = good if damaged is None else damaged
        if good == 0:
            length = int(sizes[0]) if len(sizes) else 0
            reason = "the record differs from its checksum"
            if length and not here[0]:
                reason = "no record starts at the offset of its unit"
            self.on_damage(Damage(segment.path, int(offsets[0]), length, reason))
        return units[: min(good, _leading(shown))]


def _fields(units: Units) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Returns physical offsets and sizes."""
    return units["physical_offset"].astype(np.int64), units["size"].astype(np.int32)


def _leading(good: NDArray[np.bool_]) -> int:
    """Returns the number of leading true values."""
    return len(good) if good.all() else int(np.argmin(good))


def _heads(segment: Segment, starts: NDArray[np.int64]) -> NDArray[np.void]:
    """Returns the first fields of the records at `starts`; each must lie in the segment."""
    items: NDArray[np.void] = np.ndarray(
        (max(segment.size_bytes - _HEAD.itemsize + 1, 0),),
        f"V{_HEAD.itemsize}",
        segment.view,
        strides=(1,),
    )
    return items[starts].view(_HEAD)


def _fit(limits: ReadLimits, units: Units) -> bool:
    """True if the records of all these units fit into one read."""
    size_bytes = np.add.reduce(units["size"], dtype=np.int64)
    return int(size_bytes) <= max(limits.bytes_max, limits.cold_bytes_max)


def _units_wanted(limits: ReadLimits, first_size: int) -> int:
    """Returns the maximum number of units for a read, at least one."""
    bytes_max = max(limits.bytes_max, limits.cold_bytes_max)
    count_max = max(limits.count_max, limits.cold_count_max)
    return max(_count_max(count_max, bytes_max, first_size), 1)


def _count_max(count_max: int, bytes_max: int, first_size: int) -> int:
    """Returns the maximum number of units for a read, estimated from the first record's size."""
    return min(count_max, 1 + 2 * (bytes_max // max(first_size, 1)))


def first_damaged(
    log: CommitLog, segment: Segment, starts: NDArray[np.int64], sizes: NDArray[np.int32]
) -> int | None:
    """Returns the index of the first damaged record; None if there is none."""
    compared = log.compare(segment, starts, sizes)
    first = int(np.argmax(compared.damaged)) if compared.damaged.any() else None
    if compared.known.all():
        return first
    unknown = np.flatnonzero(~compared.known)
    data = b"".join(bytes(part) for part in gather(segment, starts[unknown], sizes[unknown]))
    try:
        block = RecordBlock.parse(data, sizes[unknown])
        block.verify_body_crc()
        moved = block.header["physical_offset"] != starts[unknown] + segment.base
        moved |= wrong_property_crcs(block)
        bad = int(np.argmax(moved)) if moved.any() else None
    except MalformedRecordError as error:
        bad = error.index or 0
    places = [] if first is None else [first]
    places += [] if bad is None else [int(unknown[bad])]
    return min(places, default=None)


def _matching(
    segment: Segment, units: Units, matches: Callable[[RecordBlock], NDArray[np.bool_]]
) -> NDArray[np.bool_]:
    """Returns a mask of the matching leading units, up to a malformed record.

    A malformed first record counts as a match: its reader would also get it without a filter.
    """
    sizes = units["size"].astype(np.int32)
    parts = gather(segment, units["physical_offset"].astype(np.int64) - segment.base, sizes)
    data = parts[0] if len(parts) == 1 else b"".join(parts)
    try:
        return matches(RecordBlock.parse(data, sizes))
    except MalformedRecordError as error:
        if not error.index:
            return np.ones(1, np.bool_)
        return _matching(segment, units[: error.index], matches)


def _first_true(found: NDArray[np.bool_], count_max: int) -> NDArray[np.bool_]:
    """Returns `found`, cut before its true value number `count_max` + 1."""
    if count_max >= len(found):
        return found
    places = np.flatnonzero(found)
    return found if len(places) <= count_max else found[: int(places[count_max])]


def _outside(bounds: QueueBounds, offset: int) -> GetMessageResult | None:
    low, high = bounds
    if high == 0:
        return _without_records(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, bounds)
    if offset < low:
        return _without_records(GetMessageStatus.OFFSET_TOO_SMALL, low, bounds)
    if offset == high:
        return _without_records(GetMessageStatus.OFFSET_OVERFLOW_ONE, offset, bounds)
    if offset > high:
        return _without_records(GetMessageStatus.OFFSET_OVERFLOW_BADLY, high, bounds)
    return None


def _without_records(
    status: GetMessageStatus, next_offset: int, bounds: QueueBounds
) -> GetMessageResult:
    return GetMessageResult(status, next_offset, bounds.min_offset, bounds.max_offset)


def _gone(bounds: QueueBounds, candidates: Candidates) -> GetMessageResult:
    """Returns the result for a first candidate with a lost record.

    The loss is reported only to a read from the record's own offset.
    """
    first = candidates.offset_after(0)
    if first > candidates.offset:
        return _without_records(GetMessageStatus.NO_MATCHED_MESSAGE, first, bounds)
    return _without_records(GetMessageStatus.MESSAGE_WAS_REMOVING, first + 1, bounds)
