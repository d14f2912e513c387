"""Consumer lag by group and topic, in messages and ms.

The lag is the messages that a group has not committed, and the age of the oldest one. Its store
time is read from the log, once for each committed or pulled offset. One snapshot reads at most
READS_MAX times; later groups get only message counts. At most LAGS_MAX pairs of group and topic are
reported, and the number of further pairs. State: up to PLACES_KEPT_MAX store times, in memory only.
Source: docs/design/broker_behaviour.md section 9.6.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from prometheus_client.core import GaugeMetricFamily, Metric

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.services.observability.metrics.families import SERIES_A_TURN, gauge, turn
from rocketpy_broker.services.observability.metrics.labels import flag, is_system_group
from rocketpy_broker.services.observability.metrics.pulled_offsets import PulledOffsets
from rocketpy_broker.services.offsets.committed import ConsumerOffsetManager
from rocketpy_broker.services.topics.config import TopicConfig
from rocketpy_broker.services.topics.manager import TopicConfigManager, is_retry
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey

LABELS = ("consumer_group", "topic", "is_retry", "is_system")
# A read takes 30 microseconds of a log in memory, and some milliseconds of one on disk.
READS_MAX = 20_000
READS_A_TURN = 8
# Pairs of group and topic; their five series take half a kilobyte of a page.
LAGS_MAX = 50_000
PLACES_KEPT_MAX = 40_000
QUEUES_A_TURN = 200
# A queue, its topic's epoch, and an offset; a recreated topic has another epoch.
Place: TypeAlias = tuple[QueueKey, int, int]


@dataclass(slots=True)
class Waiting:
    """Messages of several queues, and the store time of the oldest one."""

    messages: int = 0
    oldest_ms: int | None = None

    def add(self, messages: int, stored_ms: int | None) -> None:
        """Adds the messages of one queue, and the store time of its first one, if known."""
        self.messages += messages
        if stored_ms is not None:
            self.oldest_ms = min(stored_ms, self.oldest_ms or stored_ms)


@dataclass(slots=True)
class Lag:
    """One group in one topic: messages not committed, and of these the ones not pulled."""

    behind: Waiting = field(default_factory=Waiting)
    ready: Waiting = field(default_factory=Waiting)
    # True if the store time of each queue's first message is known.
    is_timed: bool = True


class _Pace:
    """Takes a scheduler slot every QUEUES_A_TURN queues or READS_A_TURN reads."""

    def __init__(self) -> None:
        self.reads = 0
        self._steps = 0.0

    async def queue(self) -> None:
        await self._step(1 / QUEUES_A_TURN)

    async def read(self) -> None:
        self.reads += 1
        await self._step(1 / READS_A_TURN)

    async def _step(self, share: float) -> None:
        self._steps += share
        if self._steps >= 1:
            self._steps = 0.0
            await turn()


class GroupLags:
    """The lags of all groups with committed offsets."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        committed: ConsumerOffsetManager,
        pulled: PulledOffsets,
        clock: Clock,
        reads_max: int = READS_MAX,
        lags_max: int = LAGS_MAX,
    ) -> None:
        self._store = store
        self._topics = topics
        self._committed = committed
        self._pulled = pulled
        self._clock = clock
        self._reads_max = reads_max
        self._lags_max = lags_max
        # Store times that the last snapshot has used.
        self._stored_ms: dict[Place, int] = {}

    async def families(self) -> AsyncGenerator[Metric, None]:
        """Yields RocketMQ's five gauges and one own; takes scheduler slots in between."""
        families, count = _families(), 0
        known, self._stored_ms = self._stored_ms, {}
        pace = _Pace()
        now_ms = self._clock.now_ms()
        told = untold = 0
        async for topic, group in self._committed.entries():
            if told == self._lags_max:
                untold += 1
                continue
            told += 1
            config = self._topics.find(topic)
            if config is None:
                continue
            lag = await self._lag(config, group, known, pace)
            if not self._is_there(group, config):
                continue
            labels = (group, topic, flag(is_retry(topic)), flag(self._is_system(topic, group)))
            _add(families, labels, lag, now_ms)
            count += 1
            if count % SERIES_A_TURN == 0:
                for family in families:
                    yield family
                families = _families()
        for family in families:
            yield family
        yield gauge("rocketpy_untold_consumer_lags", "Groups in topics without their lag.", untold)

    def _is_there(self, group: str, config: TopicConfig) -> bool:
        """True if topic and offsets still exist; a request may delete them meanwhile."""
        now = self._topics.find(config.topic)
        return (
            now is not None
            and now.epoch == config.epoch
            and self._committed.has(group, config.topic)
        )

    def _is_system(self, topic: str, group: str) -> bool:
        return self._topics.is_system(topic) or is_system_group(group)

    async def _lag(
        self,
        config: TopicConfig,
        group: str,
        known: dict[Place, int],
        pace: _Pace,
    ) -> Lag:
        lag, offsets = Lag(), self._committed.offsets_of(group, config.topic)
        for queue_id in {*range(config.readable_queues), *offsets}:
            await pace.queue()
            queue = QueueKey(config.topic, queue_id)
            found = self._store.range_of(queue)
            end = found.max_offset
            # Removed messages are no lag.
            committed = min(max(offsets.get(queue_id, 0), found.min_offset), end)
            pulled = min(max(self._pulled.of(group, queue), committed), end)
            for waiting, offset in ((lag.behind, committed), (lag.ready, pulled)):
                if offset < end:
                    stored_ms = await self._stored_at((queue, config.epoch, offset), known, pace)
                    lag.is_timed &= stored_ms is not None
                    waiting.add(end - offset, stored_ms)
        return lag

    async def _stored_at(
        self,
        place: Place,
        known: dict[Place, int],
        pace: _Pace,
    ) -> int | None:
        """Returns a message's store time; None after READS_MAX reads, or if it is damaged."""
        queue, _, offset = place
        stored_ms = self._stored_ms.get(place, known.get(place))
        if stored_ms is None:
            if pace.reads >= self._reads_max:
                return None
            await pace.read()
            stretch = self._store.queue_lookup.stretch(queue, offset, offset + 1)
            if stretch is not None and stretch.begin == offset:
                physical_offset = int(stretch.physical_offsets[0])
                stored_ms = self._store.messages.store_timestamp_ms(physical_offset)
        if stored_ms is not None and len(self._stored_ms) < PLACES_KEPT_MAX:
            self._stored_ms[place] = stored_ms
        return stored_ms


def _add(
    families: Sequence[GaugeMetricFamily], labels: Sequence[str], lag: Lag, now_ms: int
) -> None:
    messages, in_flight, ready, latency, queueing = families
    messages.add_metric(labels, lag.behind.messages)
    in_flight.add_metric(labels, lag.behind.messages - lag.ready.messages)
    ready.add_metric(labels, lag.ready.messages)
    if lag.is_timed:
        latency.add_metric(labels, _age_ms(now_ms, lag.behind.oldest_ms))
        queueing.add_metric(labels, _age_ms(now_ms, lag.ready.oldest_ms))


def _age_ms(now_ms: int, stored_ms: int | None) -> int:
    return 0 if stored_ms is None else max(now_ms - stored_ms, 0)


def _families() -> list[GaugeMetricFamily]:
    return [
        GaugeMetricFamily(f"rocketmq_consumer_{name}", text, labels=LABELS)
        for name, text in (
            ("lag_messages", "Messages that the group has not committed."),
            ("inflight_messages", "Messages that were pulled and are not committed."),
            ("ready_messages", "Messages that were not pulled."),
            ("lag_latency_milliseconds", "How long ago the oldest one not committed was stored."),
            ("queueing_latency_milliseconds", "How long ago the oldest one not pulled was stored."),
        )
    ]
