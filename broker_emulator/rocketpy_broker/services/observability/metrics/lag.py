"""Consumer lag by group and topic, in messages and ms.

The lag is the messages that a group has not committed, and the age of the oldest one. Store times
are read from the log, once for each committed or pulled offset. One snapshot reads at most
READS_MAX of them; later groups get only message counts. At most LAGS_MAX pairs of group and topic
are reported; further pairs are only counted. State: up to PLACES_KEPT_MAX store times, in memory.
Source: docs/design/broker_behaviour.md section 9.6.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TypeAlias

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.services.groups.manager import is_system_group
from rocketpy_broker.services.observability.counters.event_counter import EventCounter
from rocketpy_broker.services.observability.counters.labels import flag
from rocketpy_broker.services.observability.metrics.families import Series
from rocketpy_broker.services.offsets.committed import ConsumerOffsetManager
from rocketpy_broker.services.topics.manager import TopicConfigManager, is_retry
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey

# A read takes 30 microseconds of a log in memory, and some milliseconds of one on disk.
READS_MAX = 20_000
# Pairs of group and topic; their five series take half a kilobyte of a page.
LAGS_MAX = 50_000
PLACES_KEPT_MAX = 40_000
# A queue, its topic's epoch, and an offset; a recreated topic has another epoch.
Place: TypeAlias = tuple[QueueKey, int, int]


@dataclass(slots=True)
class Waiting:
    """The number of messages of several queues, and the store time of the oldest one."""

    messages: int = 0
    oldest_ms: int | None = None
    # True if the store time of each queue's first message is known.
    is_timed: bool = True

    def add(self, messages: int, stored_ms: int | None) -> None:
        """Adds the messages of one queue, and the store time of its first one, if known."""
        self.messages += messages
        if stored_ms is None:
            self.is_timed = False
        else:
            self.oldest_ms = min(stored_ms, self.oldest_ms or stored_ms)

    def age_ms(self, now_ms: int) -> int:
        """Returns the age of the oldest message; 0 without messages."""
        return 0 if self.oldest_ms is None else max(now_ms - self.oldest_ms, 0)


class GroupLags:
    """The source of lags of all groups with committed offsets."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        committed: ConsumerOffsetManager,
        counter: EventCounter,
        clock: Clock,
        *,
        reads_max: int = READS_MAX,
        lags_max: int = LAGS_MAX,
        places_kept_max: int = PLACES_KEPT_MAX,
    ) -> None:
        self._store = store
        self._topics = topics
        self._committed = committed
        self._counter = counter
        self._clock = clock
        self._reads_max, self._lags_max = reads_max, lags_max
        self._places_kept_max = places_kept_max
        self._reads = 0
        # Store times that the last snapshot and the present one have used.
        self._known_ms: dict[Place, int] = {}
        self._stored_ms: dict[Place, int] = {}

    async def series(self) -> AsyncIterator[Series | None]:
        """Yields RocketMQ's five gauges of each pair, and the number of unreported pairs."""
        self._known_ms, self._stored_ms, self._reads = self._stored_ms, {}, 0
        now_ms = self._clock.now_ms()
        listed = omitted = 0
        async for topic, group in self._committed.entries():
            if listed == self._lags_max:
                omitted += 1
                continue
            listed += 1
            config = self._topics.find(topic)
            if config is None:
                continue
            epoch = self._topics.epoch(topic)
            # Messages that are not committed, and of these the ones that were not pulled.
            behind, ready = Waiting(), Waiting()
            offsets = self._committed.offsets_of(group, topic)
            for queue_id in {*range(config.readable_queues), *offsets}:
                yield None
                queue = QueueKey(topic, queue_id)
                found = self._store.range_of(queue)
                end = found.max_offset
                # Removed messages are no lag.
                committed = min(max(offsets.get(queue_id, 0), found.min_offset), end)
                pulled = min(max(self._counter.pulled_offset(group, queue), committed), end)
                for waiting, offset in ((behind, committed), (ready, pulled)):
                    if offset < end:
                        waiting.add(end - offset, self._stored_at((queue, epoch, offset)))
            if not self._is_there(group, topic, epoch):
                continue
            is_system = self._topics.is_system(topic) or is_system_group(group)
            labels = (group, topic, flag(is_retry(topic)), flag(is_system))
            in_flight = behind.messages - ready.messages
            yield "rocketmq_consumer_lag_messages", labels, behind.messages
            yield "rocketmq_consumer_inflight_messages", labels, in_flight
            yield "rocketmq_consumer_ready_messages", labels, ready.messages
            if behind.is_timed and ready.is_timed:
                lag_ms, queueing_ms = behind.age_ms(now_ms), ready.age_ms(now_ms)
                yield "rocketmq_consumer_lag_latency_milliseconds", labels, lag_ms
                yield "rocketmq_consumer_queueing_latency_milliseconds", labels, queueing_ms
        yield "rocketpy_omitted_consumer_lags", (), omitted

    def _is_there(self, group: str, topic: str, epoch: int) -> bool:
        """True if topic and offsets still exist; a request may delete them meanwhile."""
        is_same = topic in self._topics and self._topics.epoch(topic) == epoch
        return is_same and self._committed.has(group, topic)

    def _stored_at(self, place: Place) -> int | None:
        """Returns a message's store time; None after `reads_max` reads, or if it is damaged."""
        queue, _, offset = place
        stored_ms = self._stored_ms.get(place, self._known_ms.get(place))
        if stored_ms is None:
            if self._reads >= self._reads_max:
                return None
            self._reads += 1
            stored_ms = self._store.queue_lookup.stored_ms(queue, offset)
        if stored_ms is not None and len(self._stored_ms) < self._places_kept_max:
            self._stored_ms[place] = stored_ms
        return stored_ms
