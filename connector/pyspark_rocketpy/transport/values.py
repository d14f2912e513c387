"""What source, sink and transports tell each other. Plain values, which travel to tasks; no state.

Positions, bounds and ranges of queues are those of `offsets`; pieces of records are in `cutting`.
What only writing needs is in `writing_values`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from pyspark_rocketpy.offsets import BrokerQueue
from rocketpy_proto.model.topic_pattern import TopicPattern


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How patient to be with a broker that is away or busy; the wait doubles with each retry."""

    times_max: int
    backoff_ms: int


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """The largest body and request that a broker takes, and a segment of its log, in bytes.

    No block is larger than a segment; 0 stands for an unknown size. A body has `body_bytes_min` at
    least.
    """

    body_bytes_max: int
    request_bytes_max: int
    segment_bytes: int = 0
    body_bytes_min: int = 0


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics of a query, by name or by pattern, and its group."""

    topics: tuple[str, ...]
    topic_pattern: str | None
    consumer_group: str
    # One more, which may be there or not.
    retry_topic: str | None = None
    # Whether what the group has committed counts; a cluster is asked for it only then.
    wants_committed: bool = False

    @property
    def named(self) -> tuple[str, ...]:
        """Every topic that is asked for by its name."""
        return self.topics if self.retry_topic is None else (*self.topics, self.retry_topic)

    def reads(self, topics: Iterable[str]) -> frozenset[str]:
        """Returns those of the topics that the query reads."""
        names = list(topics)
        found = set(self.named).intersection(names)
        if self.topic_pattern is not None:
            matches = TopicPattern(self.topic_pattern).matches(names)
            found.update(itertools.compress(names, matches))
        return frozenset(found)


@dataclass(frozen=True, slots=True)
class QueueTime:
    """A time, ms since 1970, for one queue."""

    topic: str
    queue_id: int
    timestamp_ms: int
    broker_name: str = ""

    @classmethod
    def of(cls, topic: str, queue: BrokerQueue, timestamp_ms: int) -> QueueTime:
        """For a queue."""
        return cls(topic, queue.queue_id, timestamp_ms, queue.broker_name)

    @property
    def queue(self) -> BrokerQueue:
        """Which of the topic's queues."""
        return BrokerQueue(self.broker_name, self.queue_id)


@dataclass(frozen=True, slots=True)
class PullOptions:
    """How to pull ranges, and what is to be left out at the broker.

    Wanted are messages with one of `tags_codes`, none for all; or those that an SQL92 `expression`
    matches.
    """

    consumer_group: str
    fetch_bytes_max: int
    fail_on_data_loss: bool
    tags_codes: tuple[int, ...] = ()
    expression: str | None = None
    # The store that the ranges are of, and its newest recovery when they were planned; empty: any.
    store_id: str = ""
    recovery_id: str = ""
    # The tags themselves, for brokers that know no codes.
    tags: tuple[str, ...] = ()

    @property
    def is_filtered(self) -> bool:
        """True if something may be left out."""
        return bool(self.tags_codes) or self.expression is not None
