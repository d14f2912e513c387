"""Offsets of a query: positions by topic and queue, and the JSON that Spark's checkpoint holds.

    {"v": 1, "offsetTable": {"TopicTest@my-group": {"0": 1042}}, "base": {...}}
    {"v": 2, "offsetTable": {"TopicTest@my-group": {"broker-a": {"0": 1042}}}, "base": {...}}

Version 1 is of the one broker that endpoints name, version 2 of a cluster, each broker of which
numbers its queues of a topic from 0. The shape of a broker's table is that of RocketMQ's
consumerOffset.json. `base` carries the first position
of the query along, because Spark asks for the initial offset again at each restart before its
first commit, and may get another answer; `first` marks that answer. `new` tells where queues begin
that came during the query. `store` is the id of the store that all of it is of; an offset of an
older connector has none, and is of any store. `epochs` tell its topics from others that were made
again under their names; a topic that is not there may be any. `recovery` is the store's newest
recovery when the offset was made: a newer one may have cut queues below it, and what is stored
there since is other messages. The checkpoint survives crashes, nothing else is kept.
Source: spec/spark_python_datasource.md sections 2.1 and 2.4.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from pyspark_rocketpy.errors import OffsetError

VERSION, CLUSTER_VERSION = 1, 2
SEPARATOR = "@"
STORE, EPOCHS, RECOVERY = "store", "epochs", "recovery"
LATEST, EARLIEST = -1, -2
NUMBER_MAX = (1 << 63) - 1
_SHOWN_MAX = 100

T = TypeVar("T")


class BrokerQueue(NamedTuple):
    """A topic's queue; the one broker that endpoints name has the name ""."""

    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        """For people."""
        where = f" of broker {self.broker_name}" if self.broker_name else ""
        return f"queue {self.queue_id}{where}"


# topic -> queue -> offset
Positions = dict[str, dict[BrokerQueue, int]]
Offset = dict[str, Any]
# topic -> epoch
Epochs = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """One queue: minimum, maximum, and the group's committed offset (-1 for none).

    `topic_epoch` is that of its topic, and changes when the topic is made again; 0 for none.
    `cut_offset` is where messages begin that were stored since a recovery that the query does not
    know of; None where it knows all of them. `is_behind`: a slave has answered, whose end may lie
    before what was read of its master.
    """

    min_offset: int
    max_offset: int
    committed_offset: int
    topic_epoch: int = 0
    cut_offset: int | None = None
    is_behind: bool = False


# topic -> queue -> bounds; a topic that is not there is missing.
Bounds = dict[str, dict[BrokerQueue, QueueBounds]]


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Messages [begin, end) of one queue, of the topic with this epoch; 0 for any."""

    topic: str
    queue_id: int
    begin: int
    end: int
    topic_epoch: int = 0
    broker_name: str = ""

    @classmethod
    def of(cls, topic: str, queue: BrokerQueue, begin: int, end: int) -> QueueRange:
        """Of a queue."""
        return cls(topic, queue.queue_id, begin, end, broker_name=queue.broker_name)

    @property
    def queue(self) -> BrokerQueue:
        """Which of the topic's queues."""
        return BrokerQueue(self.broker_name, self.queue_id)

    @property
    def count(self) -> int:
        """How many queue offsets it spans."""
        return self.end - self.begin

    def rest(self, offset: int) -> str:
        """What is left of it from `offset` on, for people."""
        return f"offsets [{offset}, {self.end}) of {self.queue} of topic {self.topic!r}"


@dataclass(frozen=True, slots=True)
class Origin:
    """What positions are of: a store's id, epochs of topics, a recovery. Empty and missing: any."""

    store_id: str = ""
    epochs: Epochs = field(default_factory=dict)
    recovery_id: str = ""

    @classmethod
    def of(cls, offset: Offset) -> Origin:
        """That of a logged offset."""
        return cls(store_of(offset), dict(offset.get(EPOCHS, {})), str(offset.get(RECOVERY, "")))

    def marked(self, offset: Offset) -> Offset:
        """An offset of this origin."""
        topics = {key.rpartition(SEPARATOR)[0] for key in offset["offsetTable"]}
        epochs = {topic: self.epochs[topic] for topic in sorted(topics & self.epochs.keys())}
        told = {STORE: self.store_id, EPOCHS: epochs, RECOVERY: self.recovery_id}
        return {**offset, **{name: value for name, value in told.items() if value}}

    def is_before(self, later: Origin) -> bool:
        """Whether the store was recovered since, as far as both tell."""
        known = bool(self.recovery_id and later.recovery_id)
        return known and self.recovery_id != later.recovery_id


ANY = Origin()


def epochs_in(bounds: Bounds) -> dict[str, int]:
    """The epoch of each topic that has one."""
    found = {topic: _epoch(queues) for topic, queues in bounds.items()}
    return {topic: epoch for topic, epoch in found.items() if epoch}


def _epoch(queues: Mapping[BrokerQueue, QueueBounds]) -> int:
    return next((queue.topic_epoch for queue in queues.values()), 0)


def remade_topics(known: Epochs, bounds: Bounds) -> frozenset[str]:
    """The topics that are others now than when they had the known epochs."""
    epochs = epochs_in(bounds)
    return frozenset(topic for topic in known if epochs.get(topic, known[topic]) != known[topic])


def first_offset(positions: Positions, group: str, origin: Origin = ANY) -> Offset:
    """The answer to initialOffset."""
    table = _table(positions, group)
    return origin.marked({"v": _version(positions), "first": True, "offsetTable": table})


def store_of(offset: Offset) -> str:
    """The id of the store that a logged offset is of; empty where it does not tell."""
    return str(offset.get(STORE, ""))


def next_offset(
    positions: Positions,
    start: Offset,
    group: str,
    entering: Positions | None = None,
    origin: Origin = ANY,
) -> Offset:
    """The offset of a batch that begins at `start`; carries the query's first position along.

    `entering` are the starts of queues that this batch is the first to read.
    """
    base = start.get("base", start["offsetTable"])
    table = _table(positions, group)
    offset = origin.marked({"v": _version(positions), "offsetTable": table, "base": base})
    return {**offset, "new": _table(entering, group)} if entering else offset


def _version(positions: Positions) -> int:
    names = {queue.broker_name for queues in positions.values() for queue in queues}
    return CLUSTER_VERSION if any(names) else VERSION


def _table(positions: Positions, group: str) -> dict[str, dict[str, Any]]:
    """Deterministic, since Spark compares offsets as text."""
    return {
        topic + SEPARATOR + group: by_broker(queues) for topic, queues in sorted(positions.items())
    }


def by_broker(queues: Mapping[BrokerQueue, T]) -> dict[str, Any]:
    """Values of one topic's queues as JSON has them: by queue id, below brokers with names."""
    found: dict[str, Any] = {}
    for queue, value in sorted(queues.items(), key=lambda item: item[0]):
        name = queue.broker_name
        (found.setdefault(name, {}) if name else found)[str(queue.queue_id)] = value
    return found


def _by_queue(
    queues: Mapping[str, Any], number: Callable[[str], int], value: Callable[[Any], int]
) -> dict[BrokerQueue, int]:
    """The reverse. Raises AttributeError, TypeError, ValueError for what is none."""
    found = {}
    for name, content in queues.items():
        if isinstance(content, Mapping):
            if not name:
                raise ValueError(name)
            for queue_id, each in content.items():
                found[BrokerQueue(name, number(queue_id))] = value(each)
        else:
            found[BrokerQueue("", number(name))] = value(content)
    return found


def lag_in(report: object) -> dict[str, int] | None:
    """Messages by topic that a source's reported latest offset leaves unread.

    None where it is no report of this connector. Raises OffsetError for one that cannot be read.
    """
    if not isinstance(report, Mapping) or not {"lag", "offsetTable"} <= report.keys():
        return None
    try:
        by_topic = {
            topic: _by_queue(lag, _queue_id, _whole) for topic, lag in report["lag"].items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise OffsetError(
            f"the progress holds no lag but {report['lag']!r:.{_SHOWN_MAX}}"
        ) from error
    # A slave that answers may be behind what was read of its master.
    return {topic: sum(max(lag, 0) for lag in lags.values()) for topic, lags in by_topic.items()}


def positions_of(offset: object) -> Positions:
    """The positions in a logged offset. Raises OffsetError."""
    if not isinstance(offset, Mapping) or "v" not in offset:
        shown = json.dumps(offset)
        shown = shown if len(shown) <= _SHOWN_MAX else shown[:_SHOWN_MAX] + "..."
        raise OffsetError(
            f"the checkpoint holds offset {shown}, which another source than rocketpy has "
            "written; start with a new checkpointLocation"
        )
    if offset["v"] not in (VERSION, CLUSTER_VERSION):
        raise OffsetError(
            f"the checkpoint's offset has version {offset['v']!r}, this connector reads "
            f"{VERSION} and {CLUSTER_VERSION}; use the version that wrote it, or a new checkpoint"
        )
    return _positions(offset.get("offsetTable"))


def begin_of(start: Offset, end: Offset) -> Positions:
    """Where the batch (start, end] begins: for the first one, where its log says it does."""
    reached = positions_of(start)
    if not start.get("first"):
        begin = reached
    elif "base" in end:
        begin = _positions(end["base"])
    else:
        begin = positions_of(end)
    ends = positions_of(end)
    known, of_end = Origin.of(start), Origin.of(end)
    is_all_new = bool(start.get("first")) or known.is_before(of_end)
    for topic, queues in _positions(end.get("new", {})).items():
        is_new = is_all_new or _is_other(known.epochs, of_end.epochs, topic)
        for queue, offset in queues.items():
            place = begin.setdefault(topic, {}).get(queue)
            # A queue that was recreated ends before the place that was reached in the old one.
            if is_new or place is None or place > ends[topic][queue]:
                begin[topic][queue] = offset
    return begin


def _is_other(before: Epochs, after: Epochs, topic: str) -> bool:
    """Whether a topic was made again, as far as both epochs are known."""
    return before.get(topic, 0) != after.get(topic, 0) and topic in before and topic in after


def _positions(table: object) -> Positions:
    try:
        assert isinstance(table, Mapping)
        return {
            key.rpartition(SEPARATOR)[0]: _by_queue(queues, int, int)
            for key, queues in table.items()
        }
    except (AssertionError, AttributeError, TypeError, ValueError) as error:
        raise OffsetError(f"the checkpoint holds no offset table but {table!r}") from error


_OF_CLUSTER = ', in a cluster with the broker in between, {"topic":{"broker-a":{"0":12}}}'


def parse_offsets_json(option: str, text: str) -> Positions:
    """Offsets that a user wrote. Raises OffsetError."""
    positions = _parse_json(option, text, f'write it as {{"topic":{{"0":12,"1":-2}}}}{_OF_CLUSTER}')
    _check_least(option, positions, EARLIEST, "use 0 or more, -1 for latest, -2 for earliest")
    return positions


def parse_times_json(option: str, text: str) -> Positions:
    """Times that a user wrote for queues, ms since 1970. Raises OffsetError."""
    example = f'write it as {{"topic":{{"0":1767225600000}}}}{_OF_CLUSTER}'
    times = _parse_json(option, text, example)
    _check_least(option, times, 0, "use milliseconds since 1970")
    return times


def _parse_json(option: str, text: str, example: str) -> Positions:
    try:
        content = json.loads(text, object_pairs_hook=_without_repetition)
    except _RepeatedError as error:
        raise OffsetError(f"option {option} names {error} twice; name it once") from error
    except (ValueError, RecursionError) as error:
        raise OffsetError(f"option {option} is {text!r}, which is no JSON; {example}") from error
    try:
        return {topic: _by_queue(queues, _queue_id, _whole) for topic, queues in content.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise OffsetError(f"option {option} is {text!r}; {example}") from error


def _check_least(option: str, values: Positions, least: int, hint: str) -> None:
    for topic, queues in values.items():
        for queue, value in queues.items():
            if value < least:
                raise OffsetError(
                    f"option {option}: {value} for {queue} of topic {topic!r} is not accepted; "
                    f"{hint}"
                )


class _RepeatedError(ValueError):
    """A name that stands twice in one JSON object, where the last one would win."""


def _without_repetition(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _RepeatedError(repr(next(name for name in names if names.count(name) > 1)))
    return found


def _queue_id(text: str) -> int:
    """Raises ValueError for what is no number as JSON writes it."""
    if not (text.isascii() and text.isdecimal()) or (len(text) > 1 and text[0] == "0"):
        raise ValueError(text)
    return int(text)


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value > NUMBER_MAX:
        raise TypeError(value)
    return value
