"""Sizes of offset ranges, and range ends within a byte limit.

Sizes come from the units of the consume queues, one unit range per scheduler slot. Ranges are
measured until their total exceeds a limit. Only one unit range of each later range is measured. The
caller estimates the rest from it. Blank units and offsets outside the queue have no bytes. When its
work time is over, a call returns the ranges measured so far, and may stop within a range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.services.work_time import WorkTime
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.readers.lookup import UnitRange
from rocketpy_broker.store.values import QueueKey


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Messages [begin, end) of a queue."""

    queue: QueueKey
    begin: int
    end: int


def check_ranges(topics: TopicConfigManager, ranges: Sequence[OffsetRange]) -> None:
    """Raises ParameterIllegalError, TopicNotExistError, PermissionDeniedError, QueueIdIllegalError.

    Offsets of `ranges` may be outside the queues.
    """
    for part in ranges:
        topics.check_readable(*part.queue)
        if part.begin < 0:
            raise ParameterIllegalError("begin", part.begin, "0 or more")
        if part.end < part.begin:
            raise ParameterIllegalError("end", part.end, f"{part.begin} or more")


@dataclass(slots=True)
class Measure:
    """The measure of a range up to `end`: bytes, queue offsets, first message with bytes.

    `count_left` is the number of the range's offsets from `end` on that are in the queue. With
    `goes_on` the range was not measured to its requested end.
    """

    end: int
    bytes: int = 0
    count: int = 0
    count_left: int = 0
    first_bytes: int = 0
    first_physical_offset: int = 0
    goes_on: bool = False

    def add(self, units: UnitRange) -> None:
        """Adds the unit range that starts at `end`."""
        self.end = units.end
        self.count += len(units.sizes)
        self.bytes += int(units.sizes.sum())
        if self.first_bytes == 0 and self.bytes:
            row = int(np.argmax(units.sizes > 0))
            self.first_bytes = int(units.sizes[row])
            self.first_physical_offset = int(units.physical_offsets[row])


@dataclass(frozen=True, slots=True)
class RangeEnd:
    """The end of a range within its limit, and the bytes up to it.

    With `goes_on` the range may reach further.
    """

    end: int
    bytes: int
    goes_on: bool = False


class RangeLimitService:
    """The service that measures ranges of one store's queues."""

    def __init__(self, store: MessageStore, topics: TopicConfigManager, clock: Clock) -> None:
        self._store = store
        self._topics = topics
        self._clock = clock

    async def measure(self, ranges: Sequence[OffsetRange], bytes_max: int) -> list[Measure]:
        """Returns the bytes of the first ranges: exact up to a total of `bytes_max`.

        Only the last measure may have `goes_on`. Raises ParameterIllegalError, TopicNotExistError,
        PermissionDeniedError, QueueIdIllegalError.
        """
        if bytes_max < 0:
            raise ParameterIllegalError("bytes_max", bytes_max, "0 or more")
        check_ranges(self._topics, ranges)
        time, left = WorkTime(self._clock), bytes_max
        measures: list[Measure] = []
        for part in ranges:
            measures.append(await self._measure(part, max(left, 0), time))
            left -= measures[-1].bytes
            if time.is_over:
                break
        return measures

    async def _measure(self, part: OffsetRange, bytes_max: int, time: WorkTime) -> Measure:
        measure = Measure(part.begin)
        while measure.end < part.end and measure.bytes <= bytes_max:
            if measure.count and time.is_over:
                measure.goes_on = True
                break
            units = self._store.queue_lookup.unit_range(part.queue, measure.end, part.end)
            await take_slot()
            if units is None:
                measure.end = part.end
            else:
                measure.add(units)
        end = min(part.end, self._store.range_of(part.queue).max_offset)
        measure.count_left = max(end - measure.end, 0)
        return measure

    async def limit(
        self, ranges: Sequence[OffsetRange], bytes_max: Sequence[int]
    ) -> list[RangeEnd]:
        """Returns the end of each of the first ranges within its own `bytes_max`.

        Only the last end may have `goes_on`. Raises ParameterIllegalError, TopicNotExistError,
        PermissionDeniedError, QueueIdIllegalError.
        """
        if len(bytes_max) != len(ranges):
            accepted = f"{len(ranges)}, one for each range"
            raise ParameterIllegalError("number of bytes_max", len(bytes_max), accepted)
        if min(bytes_max, default=0) < 0:
            raise ParameterIllegalError("bytes_max", min(bytes_max), "0 or more")
        check_ranges(self._topics, ranges)
        time = WorkTime(self._clock)
        reached: list[RangeEnd] = []
        for part, budget in zip(ranges, bytes_max, strict=True):
            reached.append(await self._reach(part, budget, time))
            if time.is_over:
                break
        return reached

    async def _reach(self, part: OffsetRange, budget: int, time: WorkTime) -> RangeEnd:
        offset, taken = part.begin, 0
        while offset < part.end:
            if offset > part.begin and time.is_over:
                return RangeEnd(offset, taken, goes_on=True)
            units = self._store.queue_lookup.unit_range(part.queue, offset, part.end)
            await take_slot()
            if units is None:
                break
            totals = taken + np.cumsum(units.sizes)
            count = int(np.searchsorted(totals, budget, "right"))
            taken = int(totals[count - 1]) if count else taken
            if count < len(totals):
                return RangeEnd(units.begin + count, taken)
            offset = units.end
        return RangeEnd(part.end, taken)
