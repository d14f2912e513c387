"""What Spark's filters say about the ranges that a batch has to read. Pure functions, no state.

Ranges become narrower, and tags are left out by the broker. Spark evaluates every filter again, so
what is not understood here, or only in part, costs time and no row. Only batches are given filters,
and only where Spark's switch is on. Source: docs/design/spark_python_datasource.md section 5.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
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
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_MICROSECOND = dt.timedelta(microseconds=1)
_MICROSECONDS_PER_MS = 1_000


@dataclass(frozen=True, slots=True)
class Interval:
    """Whole numbers [begin, end)."""

    begin: int = 0
    end: int = NUMBER_MAX

    def meet(self, other: Interval) -> Interval:
        """What lies in both."""
        return Interval(max(self.begin, other.begin), min(self.end, other.end))


EVERYTHING = Interval()


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """What rows can have that pass all filters; None: anything. Times are ms since 1970."""

    queue_ids: frozenset[int] | None = None
    tags: frozenset[str] | None = None
    # A row has every one of them.
    keys: frozenset[str] = frozenset()
    offsets: Interval = EVERYTHING
    times_ms: Interval = EVERYTHING

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> PushedFilters:
        """By all of these filters."""
        narrowing = cls()
        for one in filters:
            narrowing = narrowing.further(one)
        return narrowing

    def further(self, one: Filter) -> PushedFilters:
        """By one filter more."""
        column = getattr(one, "attribute", ())
        if column == ("queueId",):
            return replace(self, queue_ids=_meet(self.queue_ids, _values(one)))
        if column == ("tags",):
            return replace(self, tags=_meet(self.tags, _values(one)))
        if column == ("keys",):
            return replace(self, keys=self.keys | _keys(one))
        if column == ("queueOffset",):
            return replace(self, offsets=self.offsets.meet(_interval(one, 1)))
        if column == ("storeTimestamp",):
            times_ms = self.times_ms.meet(_interval(one, _MICROSECONDS_PER_MS))
            return replace(self, times_ms=times_ms)
        return self

    def tags_of(self, option: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Returns the tags of the option that are left."""
        if self.tags is None:
            return option
        return tuple(sorted(self.tags.intersection(self.tags if option is None else option)))

    def applied(
        self, begin: Positions, end: Positions, bounds: Bounds, search: Search
    ) -> tuple[Positions, Positions]:
        """Begins and end without what no filter lets pass; every queue stays, if only empty.

        Raises ConnectionFailedError, BrokerError.
        """
        times = self.times_ms
        oldest = _found(times.begin, bounds, search) if times.begin > EVERYTHING.begin else {}
        newest = _found(times.end, bounds, search) if times.end < EVERYTHING.end else {}
        narrow_begin: Positions = {topic: {} for topic in end}
        narrow_end: Positions = {topic: {} for topic in end}
        for topic, queues in end.items():
            for queue, offset in queues.items():
                key = (topic, queue)
                # What is gone below the minimum may have passed the filter: it stays a loss.
                first = oldest.get(key, 0)
                first = first if first > bounds[topic][queue].min_offset else 0
                first = min(max(begin[topic].get(queue, 0), self.offsets.begin, first), offset)
                last = min(offset, self.offsets.end, newest.get(key, offset))
                if self.queue_ids is not None and queue.queue_id not in self.queue_ids:
                    last = first
                narrow_begin[topic][queue] = first
                narrow_end[topic][queue] = max(first, last)
        return narrow_begin, narrow_end


def _found(time_ms: int, bounds: Bounds, search: Search) -> Mapping[tuple[str, BrokerQueue], int]:
    """Where each queue stood at a time."""
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
    """Returns the keys of a row whose `keys` equal an array; Spark offers no other filter on them."""
    if isinstance(one, (EqualTo, EqualNullSafe)) and one.value is not None:
        return frozenset(key for key in one.value if key)
    return frozenset()


def _meet(known: frozenset[Any] | None, values: Sequence[Any] | None) -> frozenset[Any] | None:
    if values is None:
        return known
    return frozenset(values) if known is None else known.intersection(values)


def _interval(one: Filter, scale: int) -> Interval:
    """Returns the numbers that pass, of a column in which one stands for `scale` of the filter's units."""
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
    """Returns a number as it is, a time as microseconds since 1970."""
    if isinstance(value, dt.datetime):
        return (value - _EPOCH) // _MICROSECOND
    assert isinstance(value, int)
    return value
