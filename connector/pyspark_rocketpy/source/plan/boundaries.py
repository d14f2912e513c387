"""Start of a query and end of a batch, by options.

A time for all queues takes precedence over times by queue, and both over offsets, as in Spark's
Kafka source. JSON may name some of the queues. The other queues follow the next option in this
order, and at last the default of startingOffsets or endingOffsets. The form of every option is
checked without a broker, and its queues are then compared with the broker's.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pyspark_rocketpy.errors import OffsetError, OptionError
from pyspark_rocketpy.offsets import (
    EARLIEST,
    LATEST,
    Bounds,
    BrokerQueue,
    Positions,
    QueueBounds,
    parse_offsets_json,
    parse_times_json,
)
from pyspark_rocketpy.options.choices import TimestampStrategy
from pyspark_rocketpy.options.values import SourceOptions
from pyspark_rocketpy.transport.values import QueueTime

EARLIEST_NAME, LATEST_NAME, COMMITTED_NAME = "earliest", "latest", "committed"
STARTING_NAMES = (EARLIEST_NAME, LATEST_NAME, COMMITTED_NAME)
STRATEGY_OPTION = "startingOffsetsByTimestampStrategy"


@dataclass(frozen=True, slots=True)
class NameBoundary:
    """One of the names earliest, latest and committed, for every queue."""

    option: str
    name: str


@dataclass(frozen=True, slots=True)
class OffsetBoundary:
    """An offset for some queues, also LATEST or EARLIEST; `rest` for the other queues."""

    option: str
    offsets: Positions
    rest: NameBoundary


@dataclass(frozen=True, slots=True)
class TimeBoundary:
    """The first message stored at or after a time, in ms since 1970.

    `times` are for all queues or for some; `rest` is for the other queues.
    """

    option: str
    times: int | Positions
    without_match: TimestampStrategy
    rest: NameBoundary | OffsetBoundary


Boundary: TypeAlias = NameBoundary | OffsetBoundary | TimeBoundary
Search: TypeAlias = Callable[[Sequence[QueueTime]], list[int | None]]


def starting(options: SourceOptions, default: str) -> Boundary:
    """Returns the start of a new query. Raises OptionError, OffsetError."""
    text = options.starting_offsets or default
    by_offset = _parsed("startingOffsets", text, STARTING_NAMES, default)
    return _timed(
        "starting",
        options.starting_timestamp,
        options.starting_offsets_by_timestamp,
        options.time_zone,
        options.starting_offsets_by_timestamp_strategy,
        by_offset,
    )


def ending(options: SourceOptions) -> Boundary:
    """Returns the end of a batch. Raises as `starting` does.

    A queue without a message stored at or after its ending time is read to its end.
    """
    by_offset = _parsed("endingOffsets", options.ending_offsets, (LATEST_NAME,), LATEST_NAME)
    if isinstance(by_offset, OffsetBoundary) and any(
        EARLIEST in queues.values() for queues in by_offset.offsets.values()
    ):
        raise OffsetError("option endingOffsets: -2 (earliest) is not an end; use -1 for latest")
    return _timed(
        "ending",
        options.ending_timestamp,
        options.ending_offsets_by_timestamp,
        options.time_zone,
        TimestampStrategy.LATEST,
        by_offset,
    )


def _parsed(
    option: str, text: str, names: tuple[str, ...], default: str
) -> NameBoundary | OffsetBoundary:
    if text.lower() in names:
        return NameBoundary(option, text.lower())
    if not text.startswith("{"):
        raise OptionError(
            f"option {option} is {text!r}; accepted: {', '.join(names)}, or JSON offsets"
        )
    return OffsetBoundary(option, parse_offsets_json(option, text), NameBoundary(option, default))


def _timed(
    prefix: str,
    timestamp_ms: int | None,
    times_json: str | None,
    zone: dt.tzinfo | None,
    strategy: TimestampStrategy,
    rest: NameBoundary | OffsetBoundary,
) -> Boundary:
    """Returns the boundary of a time for all queues, else of times by queue, else `rest`."""
    found: Boundary = rest
    if times_json is not None:
        option = f"{prefix}OffsetsByTimestamp"
        found = TimeBoundary(option, parse_times_json(option, times_json, zone), strategy, rest)
    if timestamp_ms is not None:
        found = TimeBoundary(f"{prefix}Timestamp", timestamp_ms, strategy, rest)
    return found


def resolve(boundary: Boundary, bounds: Bounds, search: Search) -> Positions:
    """Returns the positions of a boundary. Raises OffsetError."""
    if isinstance(boundary, TimeBoundary):
        return _resolve_times(boundary, bounds, search)
    if isinstance(boundary, NameBoundary):
        return {
            topic: {queue: _named(boundary.name, each) for queue, each in queues.items()}
            for topic, queues in bounds.items()
        }
    _check_known(boundary.option, boundary.offsets, bounds)
    found = resolve(boundary.rest, bounds, search)
    for topic, queues in boundary.offsets.items():
        for queue, offset in queues.items():
            place = f"{queue} of topic {topic!r}"
            found[topic][queue] = _given(boundary.option, place, offset, bounds[topic][queue])
    return found


def _resolve_times(boundary: TimeBoundary, bounds: Bounds, search: Search) -> Positions:
    times = boundary.times
    if isinstance(times, int):
        times = {topic: dict.fromkeys(queues, times) for topic, queues in bounds.items()}
        found: Positions = {topic: {} for topic in bounds}
    else:
        _check_known(boundary.option, times, bounds)
        found = resolve(boundary.rest, bounds, search)
    asked = [
        QueueTime.of(topic, queue, queues[queue])
        for topic, queues in sorted(times.items())
        for queue in sorted(queues)
    ]
    for one, offset in zip(asked, search(asked), strict=True):
        if offset is None and boundary.without_match is TimestampStrategy.ERROR:
            raise OffsetError(
                f"option {boundary.option}: {one.queue} of topic {one.topic!r} holds no "
                f"message stored at or after {one.timestamp_ms} ms; choose an earlier time, or "
                f"set option {STRATEGY_OPTION} to latest"
            )
        latest = bounds[one.topic][one.queue].max_offset
        found[one.topic][one.queue] = latest if offset is None else offset
    return found


def _named(name: str, queue: QueueBounds) -> int:
    if name == EARLIEST_NAME:
        return queue.min_offset
    if name == LATEST_NAME:
        return queue.max_offset
    # A queue without progress is read from its start, so that no message is missed.
    return queue.committed_offset if queue.committed_offset >= 0 else queue.min_offset


def _check_known(option: str, given: Positions, bounds: Bounds) -> None:
    """Raises OffsetError for a queue that does not exist."""
    for topic, queues in sorted(given.items()):
        if topic not in bounds:
            raise OffsetError(
                f"option {option} names topic {topic!r}, which the query does not read; leave it "
                "out"
            )
        for queue in sorted(queues):
            if queue not in bounds[topic]:
                raise OffsetError(
                    f"option {option} names {queue} of topic {topic!r}, which has only "
                    f"{_described(bounds[topic])}; name these"
                )


def _described(queues: Iterable[BrokerQueue]) -> str:
    """Returns the queues of one topic as text; there is at least one."""
    counts = Counter(queue.broker_name for queue in queues)
    return ", and ".join(
        f"queues 0 to {count - 1}" + (f" of broker {name}" if name else "")
        for name, count in sorted(counts.items())
    )


def _given(option: str, place: str, offset: int, queue: QueueBounds) -> int:
    if offset == LATEST:
        return queue.max_offset
    if offset == EARLIEST:
        return queue.min_offset
    if offset > queue.max_offset:
        raise OffsetError(
            f"option {option}: offset {offset} of {place} is beyond its end, limit "
            f"{queue.max_offset}; use -1 for the end"
        )
    return offset


def reaching(end: Positions, begin: Positions, bounds: Bounds) -> Positions:
    """Returns `end`, raised to the start of each queue that starts after its maximum in `bounds`.

    A search by time finds messages that came after the bounds were queried.
    """
    return {
        topic: {
            queue: max(offset, begin[topic][queue])
            if begin[topic][queue] > bounds[topic][queue].max_offset
            else offset
            for queue, offset in queues.items()
        }
        for topic, queues in end.items()
    }


def require_order(starting: Boundary, begin: Positions, ending: Boundary, end: Positions) -> None:
    """Raises OffsetError for a queue with an end before its start."""
    for topic, queues in sorted(begin.items()):
        for queue, offset in sorted(queues.items()):
            if offset > end[topic][queue]:
                raise OffsetError(
                    f"{queue} of topic {topic!r} would be read from offset {offset} "
                    f"({starting.option}) to {end[topic][queue]} ({ending.option}), which is "
                    "before it; change one of these options"
                )
