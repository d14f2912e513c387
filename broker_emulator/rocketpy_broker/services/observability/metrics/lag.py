"""How far consumer groups are behind, by topic: messages, and how long the oldest one waits.

A message is behind as long as its group has not committed it. When it was stored is read from the
log, once for each offset that a group stands at, and READS_MAX times at most for one snapshot: of
groups beyond it, only messages are told. LAGS_MAX groups in topics are told of, and how many others
there are. What was read lives in memory, up to PLACES_KEPT_MAX.
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
# Of five series each, which take half a kilobyte of a page.
LAGS_MAX = 50_000
PLACES_KEPT_MAX = 40_000
QUEUES_A_TURN = 200
# A queue, the epoch of its topic, and an offset: a topic that is made again has other messages.
Place: TypeAlias = tuple[QueueKey, int, int]


@dataclass(slots=True)
class Waiting:
    """Messages of several queues, and when the oldest of them was stored."""

    messages: int = 0
    oldest_ms: int | None = None

    def add(self, messages: int, stored_ms: int | None) -> None:
        """Adds those of one queue, and when its first was stored, if that is known."""
        self.messages += messages
        if stored_ms is not None:
            self.oldest_ms = min(stored_ms, self.oldest_ms or stored_ms)


@dataclass(slots=True)
class Lag:
    """One group in one topic: what it has not committed, and what of that it has not pulled."""

    behind: Waiting = field(default_factory=Waiting)
    ready: Waiting = field(default_factory=Waiting)
    # Whether the time of each queue's first message was read.
    is_timed: bool = True


class _Pace:
    """Gives way after some queues, or fewer reads."""

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
    """Lags of every group with progress."""

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
        # When messages at these places were stored; those of the last snapshot.
        self._stored_ms: dict[Place, int] = {}

    async def families(self) -> AsyncGenerator[Metric, None]:
        """RocketMQ's five gauges, and one of ours; others have turns in between."""
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
        """True if topic and progress are there yet: either may be deleted in others' turns."""
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
            # What was removed is behind nobody any more.
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
        """When the message there was stored; None where nobody has looked, or it is damaged."""
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
