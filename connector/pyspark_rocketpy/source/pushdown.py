"""Pushed filters of Spark, applied to the ranges of a batch.

Ranges become narrower, and the broker filters by tags. Spark evaluates every filter again. So a
filter that is not understood here, or only in part, costs time and loses no row. Only batches
receive filters, and only while Spark's switch is on. Source: docs/design/spark_python_datasource.md
section 5.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from pyspark_rocketpy.offsets import Bounds, BrokerQueue, Positions
from pyspark_rocketpy.source.plan.boundaries import Search
from pyspark_rocketpy.transport.values import QueueTime

NUMBER_MAX = (1 << 63) - 1
# Store times may fall this far where a broker's clock steps back. A search by time is widened by
# it, or it would leave out messages around the fall.
FALL_MS_MAX = 60_000
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_MICROSECOND = dt.timedelta(microseconds=1)
_MICROSECONDS_PER_MS = 1_000
Offsets = dict[tuple[str, BrokerQueue], int]


@dataclass(frozen=True, slots=True)
class Interval:
    """Whole numbers [begin, end)."""

    begin: int = 0
    end: int = NUMBER_MAX

    def intersect(self, other: Interval) -> Interval:
        """Returns the intersection of both."""
        return Interval(max(self.begin, other.begin), min(self.end, other.end))


EVERYTHING = Interval()


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """Possible values of rows that pass all filters; None: any. Times are ms since 1970."""

    queue_ids: frozenset[int] | None = None
    tags: frozenset[str] | None = None
    # A row has all of these keys.
    keys: frozenset[str] = frozenset()
    offsets: Interval = EVERYTHING
    times_ms: Interval = EVERYTHING

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> PushedFilters:
        """Returns the pushed filters narrowed by all of these filters."""
        pushed = cls()
        for one in filters:
            pushed = pushed.further(one)
        return pushed

    def further(self, one: Filter) -> PushedFilters:
        """Returns the pushed filters narrowed by one more filter."""
        column = getattr(one, "attribute", ())
        if column == ("queueId",):
            return replace(self, queue_ids=_intersection(self.queue_ids, _values(one)))
        if column == ("tags",):
            return replace(self, tags=_intersection(self.tags, _values(one)))
        if column == ("keys",):
            return replace(self, keys=self.keys | _keys(one))
        if column == ("queueOffset",):
            return replace(self, offsets=self.offsets.intersect(_interval(one, 1)))
        if column == ("storeTimestamp",):
            times_ms = self.times_ms.intersect(_interval(one, _MICROSECONDS_PER_MS))
            return replace(self, times_ms=times_ms)
        return self

    def tags_of(self, option: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Returns the remaining tags of the option."""
        if self.tags is None:
            return option
        return tuple(sorted(self.tags.intersection(self.tags if option is None else option)))

    def applied(
        self, begin: Positions, end: Positions, bounds: Bounds, search: Search
    ) -> tuple[Positions, Positions]:
        """Returns begin and end without messages that cannot pass all filters.

        Keeps every queue, perhaps with an empty range. Raises ConnectionFailedError, BrokerError.
        """
        times = self.times_ms
        oldest, newest = Offsets(), Offsets()
        if times.begin > EVERYTHING.begin:
            oldest = _found(times.begin - FALL_MS_MAX, bounds, search)
        if times.end < EVERYTHING.end:
            newest = _found(min(times.end + FALL_MS_MAX, NUMBER_MAX), bounds, search)
        narrow_begin: Positions = {topic: {} for topic in end}
        narrow_end: Positions = {topic: {} for topic in end}
        for topic, queues in end.items():
            for queue, offset in queues.items():
                key = (topic, queue)
                # Lost messages below the minimum may have passed the filter, so they stay a loss.
                first = oldest.get(key, 0)
                first = first if first > bounds[topic][queue].min_offset else 0
                first = min(max(begin[topic].get(queue, 0), self.offsets.begin, first), offset)
                last = min(offset, self.offsets.end, newest.get(key, offset))
                if self.queue_ids is not None and queue.queue_id not in self.queue_ids:
                    last = first
                narrow_begin[topic][queue] = first
                narrow_end[topic][queue] = max(first, last)
        return narrow_begin, narrow_end


def _found(time_ms: int, bounds: Bounds, search: Search) -> Offsets:
    """Returns the offset of each queue at a time."""
    asked = [
        QueueTime.of(topic, queue, max(time_ms, 0))
        for topic, queues in sorted(bounds.items())
        for queue in sorted(queues)
    ]
    return {
        (one.topic, one.queue): (
            bounds[one.topic][one.queue].max_offset if offset is None else offset
        )
        for one, offset in zip(asked, search(asked), strict=True)
    }


def _values(one: Filter) -> Sequence[Any] | None:
    """Returns the values of which a row has one; None if the filter does not name them."""
    if isinstance(one, (EqualTo, EqualNullSafe)) and one.value is not None:
        return (one.value,)
    if isinstance(one, In):
        return tuple(value for value in one.value if value is not None)
    return None


def _keys(one: Filter) -> frozenset[str]:
    """Returns the keys of a row with `keys` equal to an array, Spark's only filter on them."""
    if isinstance(one, (EqualTo, EqualNullSafe)) and one.value is not None:
        return frozenset(key for key in one.value if key)
    return frozenset()


def _intersection(
    known: frozenset[Any] | None, values: Sequence[Any] | None
) -> frozenset[Any] | None:
    if values is None:
        return known
    return frozenset(values) if known is None else known.intersection(values)


def _interval(one: Filter, scale: int) -> Interval:
    """Returns the numbers that pass a filter, whose own numbers are divided by `scale`."""
    values = _values(one)
    if values is not None:
        numbers = [_number(value) for value in values]
        low, high = min(numbers, default=1), max(numbers, default=0)
        return Interval(-(-low // scale), high // scale + 1)
    if isinstance(one, GreaterThan):
        return Interval(begin=_number(one.value) // scale + 1)
    if isinstance(one, GreaterThanOrEqual):
        return Interval(begin=-(-_number(one.value) // scale))
    if isinstance(one, LessThan):
        return Interval(end=-(-_number(one.value) // scale))
    if isinstance(one, LessThanOrEqual):
        return Interval(end=_number(one.value) // scale + 1)
    return EVERYTHING


def _number(value: object) -> int:
    """Returns a number unchanged, a time as microseconds since 1970."""
    if isinstance(value, dt.datetime):
        return (value - _EPOCH) // _MICROSECOND
    assert isinstance(value, int)
    return value
