"""How far ranges of queues reach within a number of bytes, taken together.

Where everything fits, nothing is cut. Else the ranges' first messages are granted in the order in
which they were stored, as far as they fit, and the oldest in any case: so the messages of a small
queue never wait for ever behind a large one. What is left of the bytes is shared by those ranges
in proportion to the bytes that they have besides.

Sizes come from the units of the queues, a stretch at a time with a turn for everybody else in
between, and none are kept. Ranges are measured until together they exceed the limit; behind that a
range is looked at for one stretch only, and its bytes are estimated from that. Blank units and
offsets outside the queue have no bytes. Holds no state. Row K04.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from rocketpy_broker.clock import give_way
from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.lookup import Stretch
from rocketpy_broker.store.values import QueueKey


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Messages [begin, end) of a queue."""

    queue: QueueKey
    begin: int
    end: int


def check_range(topics: TopicConfigManager, part: OffsetRange) -> None:
    """Raises ParameterIllegalError, TopicNotExistError, PermissionDeniedError, QueueIdIllegalError.

    Its offsets may lie outside the queue.
    """
    topics.check_readable(*part.queue)
    if part.begin < 0:
        raise ParameterIllegalError("begin", part.begin, "0 or more")
    if part.end < part.begin:
        raise ParameterIllegalError("end", part.end, f"{part.begin} or more")


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a range may go, and the bytes up to there."""

    end: int
    bytes: int


@dataclass(slots=True)
class _Measure:
    """Bytes of a range, of its first message, which lies there in the log, and of what it gets."""

    bytes: int = 0
    first_bytes: int = 0
    first_physical_offset: int = 0
    budget: int = 0

    def add(self, stretch: Stretch) -> None:
        self.bytes += int(stretch.sizes.sum())
        if self.first_bytes == 0 and self.bytes:
            row = int(np.argmax(stretch.sizes > 0))
            self.first_bytes = int(stretch.sizes[row])
            self.first_physical_offset = int(stretch.physical_offsets[row])

    @property
    def rest_bytes(self) -> int:
        return self.bytes - self.first_bytes


class RangeLimitService:
    """Cuts ranges of one store's queues."""

    def __init__(self, store: MessageStore, topics: TopicConfigManager) -> None:
        self._store = store
        self._topics = topics

    async def limit(self, ranges: Sequence[OffsetRange], bytes_max: int) -> list[Reach]:
        """Where each range has to end, so that all together have at most `bytes_max`.

        At least one message is left. Raises ParameterIllegalError, TopicNotExistError,
        PermissionDeniedError, QueueIdIllegalError.
        """
        if bytes_max < 1:
            raise ParameterIllegalError("bytes_max", bytes_max, "1 or more")
        for each in ranges:
            check_range(self._topics, each)
        measures: list[_Measure] = []
        left = bytes_max
        for each in ranges:
            measures.append(await self._measure(each, max(left, 0)))
            left -= measures[-1].bytes
        if left >= 0:
            return [Reach(r.end, m.bytes) for r, m in zip(ranges, measures, strict=True)]
        _share(measures, bytes_max)
        return [await self._reach(r, m.budget) for r, m in zip(ranges, measures, strict=True)]

    async def _measure(self, part: OffsetRange, bytes_max: int) -> _Measure:
        """The bytes of a range: exactly if there are no more than `bytes_max`."""
        measure, offset, seen = _Measure(), part.begin, 0
        while measure.bytes <= bytes_max:
            stretch = self._store.queue_lookup.stretch(part.queue, offset, part.end)
            if stretch is None:
                return measure
            measure.add(stretch)
            offset, seen = stretch.end, seen + len(stretch.sizes)
            await give_way()
        unseen = min(part.end, self._store.range_of(part.queue).max_offset) - offset
        measure.bytes += measure.bytes * max(unseen, 0) // seen
        return measure

    async def _reach(self, part: OffsetRange, budget: int) -> Reach:
        """As far as the records have no more than `budget` bytes."""
        offset, taken = part.begin, 0
        while True:
            stretch = self._store.queue_lookup.stretch(part.queue, offset, part.end)
            if stretch is None:
                return Reach(part.end, taken)
            totals = taken + np.cumsum(stretch.sizes)
            count = int(np.searchsorted(totals, budget, "right"))
            taken = int(totals[count - 1]) if count else taken
            if count < len(totals):
                return Reach(stretch.begin + count, taken)
            offset = stretch.end
            await give_way()


def _share(measures: Sequence[_Measure], bytes_max: int) -> None:
    """Set how many bytes each range may have, where not everything fits."""
    full = [measure for measure in measures if measure.bytes]
    full.sort(key=lambda measure: measure.first_physical_offset)
    firsts = list(accumulate(measure.first_bytes for measure in full))
    count = max(bisect_right(firsts, bytes_max), 1)
    granted, left = full[:count], max(bytes_max - firsts[count - 1], 0)
    rest = sum(measure.rest_bytes for measure in granted) or 1
    for measure in granted:
        measure.budget = measure.first_bytes + left * measure.rest_bytes // rest
