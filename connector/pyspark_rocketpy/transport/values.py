"""Values shared by source, sink and transports. They travel to tasks.

Positions, bounds and ranges of queues are in `offsets`, record chunks in `rebatching`. Values for
writing alone are in `write_values`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from pyspark_rocketpy.offsets import BrokerQueue
from rocketpy_proto.model.topic_pattern import TopicPattern


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Limits of retries while a broker is away or busy; the wait doubles with each retry."""

    times_max: int
    backoff_ms: int


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """The largest body and request that a broker takes, and its log segment size, in bytes.

    No block is larger than a segment; 0 means an unknown size. A body has at least
    `body_bytes_min`.
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
    # A further topic, which need not exist.
    retry_topic: str | None = None
    # True if committed offsets of the group count; a cluster is asked for them only then.
    wants_committed: bool = False

    @property
    def named(self) -> tuple[str, ...]:
        """Every topic that the query reads by its name."""
        return self.topics if self.retry_topic is None else (*self.topics, self.retry_topic)

    def reads(self, topics: Iterable[str]) -> frozenset[str]:
        """Returns the given topics that the query reads."""
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
        """Returns the time for a queue."""
        return cls(topic, queue.queue_id, timestamp_ms, queue.broker_name)

    @property
    def queue(self) -> BrokerQueue:
        """The queue of the topic."""
        return BrokerQueue(self.broker_name, self.queue_id)


@dataclass(frozen=True, slots=True)
class PullOptions:
    """Options of pulls of ranges, with the filter that the broker applies.

    Wanted messages have one of `tags_codes` (an empty tuple wants all) or match an SQL92
    `expression`.
    """

    consumer_group: str
    fetch_bytes_max: int
    fail_on_data_loss: bool
    tags_codes: tuple[int, ...] = ()
    expression: str | None = None
    # The ranges' store, and its newest recovery when they were planned; empty: any.
    store_id: str = ""
    recovery_id: str = ""
    # The tags themselves, for brokers that do not filter by code.
    tags: tuple[str, ...] = ()

    @property
    def is_filtered(self) -> bool:
        """True if the broker may leave messages out."""
        return bool(self.tags_codes) or self.expression is not None
