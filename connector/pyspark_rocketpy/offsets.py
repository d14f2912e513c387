"""Query offsets: positions by topic and queue, and their checkpoint JSON.

    {"v": 1, "offsetTable": {"TopicTest@my-group": {"0": 1042}}, "base": {...}}
    {"v": 2, "offsetTable": {"TopicTest@my-group": {"broker-a": {"0": 1042}}}, "base": {...}}

Version 1 is for the one broker that endpoints name. Version 2 is for a cluster, in which each
broker numbers its queues of a topic from 0. A broker's table has the shape of RocketMQ's
consumerOffset.json.

- `base`: the first position of the query. Spark requests the initial offset again at each restart
  before its first commit, and may receive another one.
- `first`: marks the answer to initialOffset.
- `new`: the start of each queue that was added during the query.
- `kept`: positions of queues that are not listed now, as when a topic has fewer read queues.
- `store`: the id of the store. An offset of a cluster has none, and matches any store.
- `epochs`: the epochs of the topics. A topic without an entry matches any epoch.
- `recovery`: the store's newest recovery when the offset was created. A newer recovery may have cut
  queues below the offset, where other messages have then been stored.

Source: docs/design/spark_python_datasource.md sections 2.1 and 2.4.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

from pyspark_rocketpy.errors import OffsetError
from pyspark_rocketpy.json_values import (
    RepeatedNameError,
    json_object,
    parse_json,
    queue_id,
    shown,
    unicode_text,
    whole,
)
from pyspark_rocketpy.times import TIME_FORMS, time_ms

VERSION, CLUSTER_VERSION = 1, 2
SEPARATOR = "@"
TABLE, BASE, NEW, KEPT = "offsetTable", "base", "new", "kept"
STORE, EPOCHS, RECOVERY, FIRST = "store", "epochs", "recovery", "first"
LATEST, EARLIEST = -1, -2

T = TypeVar("T")


class BrokerQueue(NamedTuple):
    """A topic's queue; the one broker that endpoints name has the name ""."""

    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        """Returns the queue for error texts and logs."""
        where = f" of broker {self.broker_name}" if self.broker_name else ""
        return f"queue {self.queue_id}{where}"


# topic -> queue -> offset
Positions = dict[str, dict[BrokerQueue, int]]
Offset = dict[str, Any]
# topic -> epoch
Epochs = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """Minimum and maximum of one queue, and the group's committed offset (-1 for none).

    `topic_epoch` is the topic's epoch, which changes when the topic is recreated; 0 for none.
    `cut_offset` is set after a recovery that the query has not seen: the messages from this offset
    on were stored after it. `is_lagging` marks a slave's bounds, which may end before the position
    read from its master. `is_hidden` means that the topic now has fewer read queues.
    """

    min_offset: int
    max_offset: int
    committed_offset: int
    topic_epoch: int = 0
    cut_offset: int | None = None
    is_lagging: bool = False
    is_hidden: bool = False


# topic -> queue -> bounds; without topics that do not exist.
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
        """Returns a range of a queue."""
        return cls(topic, queue.queue_id, begin, end, broker_name=queue.broker_name)

    @property
    def queue(self) -> BrokerQueue:
        """The queue of the range."""
        return BrokerQueue(self.broker_name, self.queue_id)

    @property
    def count(self) -> int:
        """The number of queue offsets in the range."""
        return self.end - self.begin

    def rest(self, offset: int) -> str:
        """Returns the rest of the range from `offset` on, for error texts."""
        return f"offsets [{offset}, {self.end}) of {self.queue} of topic {self.topic!r}"


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of positions: a store's id, epochs of topics, a recovery; unknown values match any."""

    store_id: str = ""
    epochs: Epochs = field(default_factory=dict)
    recovery_id: str = ""

    @classmethod
    def of(cls, offset: Offset) -> Origin:
        """Returns the origin of a logged offset. Raises OffsetError."""
        return cls(store_of(offset), _epochs_of(offset), _text_in(offset, RECOVERY))

    def marked(self, offset: Offset) -> Offset:
        """Returns an offset of this origin."""
        keys = [*offset[TABLE], *offset.get(KEPT, {})]
        topics = {key.rpartition(SEPARATOR)[0] for key in keys}
        epochs = {topic: self.epochs[topic] for topic in sorted(topics & self.epochs.keys())}
        known = {STORE: self.store_id, EPOCHS: epochs, RECOVERY: self.recovery_id}
        return {**offset, **{name: value for name, value in known.items() if value}}

    def is_before(self, later: Origin) -> bool:
        """True if the store was recovered since, as far as both recoveries are known."""
        known = bool(self.recovery_id and later.recovery_id)
        return known and self.recovery_id != later.recovery_id


ANY = Origin()


def epochs_in(bounds: Bounds) -> dict[str, int]:
    """Returns the epoch of each topic that has one."""
    found = {topic: _epoch(queues) for topic, queues in bounds.items()}
    return {topic: epoch for topic, epoch in found.items() if epoch}


def _epoch(queues: Mapping[BrokerQueue, QueueBounds]) -> int:
    return next((queue.topic_epoch for queue in queues.values()), 0)


def recreated_topics(known: Epochs, bounds: Bounds) -> frozenset[str]:
    """Returns the topics that were recreated since they had the known epochs."""
    epochs = epochs_in(bounds)
    return frozenset(topic for topic in known if epochs.get(topic, known[topic]) != known[topic])


def first_offset(positions: Positions, group: str, origin: Origin = ANY) -> Offset:
    """Returns the answer to initialOffset."""
    table = _table(positions, group)
    return origin.marked({"v": _version(positions), FIRST: True, TABLE: table})


def store_of(offset: Offset) -> str:
    """Returns the id of the store of a logged offset; empty if it is unknown."""
    return _text_in(offset, STORE)


def next_offset(
    positions: Positions,
    start: Offset,
    group: str,
    new: Positions | None = None,
    origin: Origin = ANY,
    kept: Positions | None = None,
) -> Offset:
    """Returns the offset of a batch from `start` on, with the query's first position.

    `new` are the starts of queues that this batch is the first to read. `kept` are the positions of
    queues that are not listed now, in their order.
    """
    base = start.get(BASE, start[TABLE])
    versions = _version(positions), _version(kept or {})
    offset = {"v": max(versions), TABLE: _table(positions, group), BASE: base}
    if kept:
        offset[KEPT] = {topic + SEPARATOR + group: by_broker(kept[topic]) for topic in kept}
    offset = origin.marked(offset)
    return {**offset, NEW: _table(new, group)} if new else offset


def _version(positions: Positions) -> int:
    names = {queue.broker_name for queues in positions.values() for queue in queues}
    return CLUSTER_VERSION if any(names) else VERSION


def _table(positions: Positions, group: str) -> dict[str, dict[str, Any]]:
    """Returns a table in deterministic order, since Spark compares offsets as text."""
    return {
        topic + SEPARATOR + group: by_broker(queues) for topic, queues in sorted(positions.items())
    }


def by_broker(queues: Mapping[BrokerQueue, T]) -> dict[str, Any]:
    """Returns values of one topic's queues as JSON: by queue id, within named brokers."""
    found: dict[str, Any] = {}
    for queue, value in sorted(queues.items(), key=lambda item: item[0]):
        name = queue.broker_name
        (found.setdefault(name, {}) if name else found)[str(queue.queue_id)] = value
    return found


def _by_queue(topic: str, queues: object, value: Callable[[Any], int]) -> dict[BrokerQueue, int]:
    """Returns the reverse of `by_broker`. Raises ValueError for invalid JSON values."""
    by_name = json_object(queues)
    if "" in by_name:
        raise ValueError(f"a broker or queue of topic {topic!r} has no name")
    tables = {name: its for name, its in by_name.items() if isinstance(its, Mapping)}
    unnamed = {name: its for name, its in by_name.items() if name not in tables}
    found = {}
    for broker_name, table in {**tables, "": unnamed}.items():
        for name, content in table.items():
            queue = BrokerQueue(broker_name, queue_id(name))
            try:
                found[queue] = value(content)
            except ValueError as error:
                given = f"{shown(content)} for {queue} of topic {topic!r}"
                raise ValueError(f"{given} is not accepted") from error
    return found


def lag_in(report: object) -> dict[str, int] | None:
    """Returns the unread messages by topic, from a source's reported latest offset.

    Returns None for a report of another source. Raises OffsetError for an unreadable one.
    """
    if not isinstance(report, Mapping) or not {"lag", "offsetTable"} <= report.keys():
        return None
    try:
        lags = json_object(report["lag"])
        by_topic = {topic: _by_queue(topic, lag, whole) for topic, lag in lags.items()}
    except ValueError as error:
        raise OffsetError(
            f"the lag in the progress report cannot be read: {shown(report['lag'])}"
        ) from error
    # An answering slave may lag the position read from its master.
    return {topic: sum(max(lag, 0) for lag in lags.values()) for topic, lags in by_topic.items()}


def positions_of(offset: object) -> Positions:
    """Returns the positions in a logged offset. Raises OffsetError."""
    if not isinstance(offset, Mapping) or "v" not in offset:
        raise OffsetError(
            f"the checkpoint holds offset {shown(json.dumps(offset))}, which was not written by "
            "rocketpy; start with a new checkpointLocation"
        )
    if type(offset["v"]) is not int or offset["v"] not in (VERSION, CLUSTER_VERSION):
        raise OffsetError(
            f"the checkpoint's offset has version {shown(offset['v'])}, this connector reads "
            f"{VERSION} and {CLUSTER_VERSION}; use the connector version that wrote it, or start "
            "with a new checkpoint"
        )
    return _positions_in(offset, TABLE)


def kept_of(offset: Offset) -> Positions:
    """Returns the positions of queues that a logged offset does not list. Raises OffsetError."""
    return _positions_in(offset, KEPT) if KEPT in offset else {}


def joined(
    positions: Mapping[str, Mapping[BrokerQueue, T]], kept: Mapping[str, Mapping[BrokerQueue, T]]
) -> dict[str, dict[BrokerQueue, T]]:
    """Returns all positions, or all bounds, of listed and unlisted queues."""
    topics = {**kept, **positions}
    return {topic: {**kept.get(topic, {}), **positions.get(topic, {})} for topic in topics}


def begin_of(start: Offset, end: Offset) -> Positions:
    """Returns the start of the batch (start, end]; the first batch has its start in `end`."""
    begin, ends = joined(positions_of(start), kept_of(start)), positions_of(end)
    is_first = is_first_offset(start)
    if is_first:
        begin = _positions_in(end, BASE) if BASE in end else positions_of(end)
    known, of_end = Origin.of(start), Origin.of(end)
    is_all_new = is_first or known.is_before(of_end)
    for topic, queues in (_positions_in(end, NEW) if NEW in end else {}).items():
        is_new = is_all_new or _is_other(known.epochs, of_end.epochs, topic)
        for queue, offset in queues.items():
            if queue not in ends.get(topic, {}):
                raise _wrong_field(NEW, f"{queue} of topic {topic!r} is not in {TABLE}")
            position = begin.setdefault(topic, {}).get(queue)
            # A recreated queue ends before the position that was reached in the old one.
            if is_new or position is None or position > ends[topic][queue]:
                begin[topic][queue] = offset
    return begin


def is_first_offset(offset: Offset) -> bool:
    """True if it is the answer to initialOffset. Raises OffsetError."""
    is_first = offset.get(FIRST, False)
    if not isinstance(is_first, bool):
        raise _wrong_field(FIRST, f"{shown(is_first)} is neither true nor false")
    return is_first


def _is_other(before: Epochs, after: Epochs, topic: str) -> bool:
    """True if a topic was recreated, as far as both epochs are known."""
    return before.get(topic, 0) != after.get(topic, 0) and topic in before and topic in after


def _positions_in(offset: Mapping[str, Any], name: str) -> Positions:
    """Returns the positions in a field of a logged offset. Raises OffsetError."""
    if name not in offset:
        raise _wrong_field(name, "it is missing")
    try:
        by_key = json_object(offset[name])
        keys = {unicode_text(key.rpartition(SEPARATOR)[0]): key for key in by_key}
        found = {topic: _by_queue(topic, by_key[key], _OFFSET) for topic, key in keys.items()}
    except ValueError as error:
        raise _wrong_field(name, str(error)) from error
    if "" in found or len(found) < len(by_key):
        raise _wrong_field(name, f"its keys must be topic{SEPARATOR}group, each topic once")
    return found


_OFFSET = partial(whole, low=0)


def _epochs_of(offset: Offset) -> dict[str, int]:
    try:
        epochs = json_object(offset.get(EPOCHS, {}))
        return {topic: whole(epoch, 0) for topic, epoch in epochs.items()}
    except ValueError as error:
        raise _wrong_field(EPOCHS, str(error)) from error


def _text_in(offset: Offset, name: str) -> str:
    try:
        return unicode_text(offset.get(name, ""))
    except ValueError as error:
        raise _wrong_field(name, str(error)) from error


def _wrong_field(name: str, reason: str) -> OffsetError:
    return OffsetError(
        f"field {name} of the checkpoint's offset cannot be read: {reason}; restore the checkpoint "
        "from a copy, or start with a new checkpointLocation"
    )


_OF_CLUSTER = ', or on a cluster, with broker names, {"topic":{"broker-a":{"0":12}}}'


def parse_offsets_json(option: str, text: str) -> Positions:
    """Returns the offsets of an option's JSON. Raises OffsetError."""
    accepted = (
        f'write it as {{"topic":{{"0":12,"1":-2}}}}{_OF_CLUSTER}; an offset is 0 or more, -1 for '
        "latest, -2 for earliest"
    )
    return _parse_json(option, text, accepted, partial(whole, low=EARLIEST))


def parse_times_json(option: str, text: str, zone: dt.tzinfo | None = None) -> Positions:
    """Returns the times of an option's JSON by queue, as ms since 1970. Raises OffsetError.

    Times without a zone are in the given one; None is the machine's own.
    """
    accepted = f'write it as {{"topic":{{"0":1767225600000}}}}{_OF_CLUSTER}; a time is {TIME_FORMS}'
    return _parse_json(option, text, accepted, partial(time_ms, zone=zone))


def _parse_json(option: str, text: str, accepted: str, value: Callable[[object], int]) -> Positions:
    try:
        content = parse_json(text)
    except RepeatedNameError as error:
        raise OffsetError(f"option {option} names {error} twice; name it once") from error
    except ValueError as error:
        raise OffsetError(
            f"option {option} is {shown(text)}, which is not JSON; {accepted}"
        ) from error
    try:
        return {
            topic: _by_queue(topic, queues, value) for topic, queues in json_object(content).items()
        }
    except ValueError as error:
        raise OffsetError(f"option {option}: {error}; {accepted}") from error
