"""Progress of consumer groups as RocketMQ's tools show it.

Store times are read from the log, so a call takes a scheduler slot for each LOOKUPS_A_SLOT queues.
Source: AdminBrokerProcessor#getConsumeStats, #queryConsumeTimeSpan,
docs/design/broker_behaviour.md section 9.7.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.admin.group_list import GroupListing
from rocketpy_broker.services.admin.pages import NAMES_A_SLOT
from rocketpy_broker.services.groups.clients.subscriptions import Subscription
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.observability.statistics.service import StatisticsService
from rocketpy_broker.services.offsets.committed import ConsumerOffsetManager
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey

# Queues in one scheduler slot; takes some ms.
LOOKUPS_A_SLOT = 50


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """A group's position in a queue; `consumer_offset` is 0 also if none is committed.

    `last_ms` is the store time of the last consumed message, 0 if it is unknown.
    """

    queue: QueueKey
    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class QueueTimes:
    """Store times of a queue's first, last and last consumed message; -1 is unknown.

    `delay_ms` is the age of the first message that the group has not consumed.
    """

    queue: QueueKey
    min_ms: int
    max_ms: int
    consumed_ms: int
    delay_ms: int


class ConsumeProgressService:
    """A reader of committed offsets, queues and statistics."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: Groups,
        committed: ConsumerOffsetManager,
        listing: GroupListing,
        statistics: StatisticsService,
        clock: Clock,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._committed = committed
        self._listing = listing
        self._statistics = statistics
        self._clock = clock

    async def committed_topics(self, group: str) -> list[str]:
        """Returns the topics in which the group has committed offsets."""
        return (await self._listing.topics_by_group({group})).get(group, [])

    async def topics_by_group(self) -> dict[str, list[str]]:
        """Returns the topics with committed offsets of each configured group."""
        return await self._listing.topics_by_group(self._groups.configs.names())

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """Returns the subscription of a group's members to a topic; None without one."""
        found = self._groups.clients.consumer_group(group)
        return None if found is None else found.subscriptions.get(topic)

    async def topics_of(self, group: str) -> list[str]:
        """Returns the topics with committed offsets of a group, and its subscribed topics."""
        committed = await self.committed_topics(group)
        return list(dict.fromkeys([*committed, *self._listing.subscribed(group)]))

    async def groups_of(self, topic: str) -> list[str]:
        """Returns the groups that have committed offsets in a topic or subscribe to it."""
        found = {group: None async for name, group in self._committed.entries() if name == topic}
        consumers = self._groups.clients.consumers
        names = consumers.names()
        for begin in range(0, len(names), NAMES_A_SLOT):
            await take_slot()
            part = names[begin : begin + NAMES_A_SLOT]
            found.update((name, None) for name in part if consumers.is_subscribed(name, topic))
        return list(found)

    def has_left(self, group: str, topic: str) -> bool:
        """True if the group has members, and they do not subscribe to the topic."""
        subscribed = self._listing.subscribed(group)
        return bool(subscribed) and topic not in subscribed

    def consume_tps(self, group: str, topic: str) -> float:
        """Returns the messages per second that the group got in the last minute."""
        found = self._statistics.item("GROUP_GET_NUMS", f"{topic}@{group}")
        return 0.0 if found is None else found.minute.tps

    async def queues(self, group: str, topic: str) -> AsyncGenerator[list[QueueProgress], None]:
        """Yields the group's positions in a topic's queues in parts; nothing without the topic."""
        for part in self._parts(topic):
            await take_slot("offsets")
            yield [self._progress(group, queue) for queue in part]

    async def queue_times(self, group: str, topic: str) -> AsyncGenerator[list[QueueTimes], None]:
        """Yields the times of a topic's queues in parts. Raises TopicNotExistError."""
        self._topics.get(topic)
        for part in self._parts(topic):
            await take_slot("offsets")
            yield [self._times(group, queue) for queue in part]

    def _parts(self, topic: str) -> Iterator[list[QueueKey]]:
        config = self._topics.find(topic)
        count = 0 if config is None else config.readable_queues
        for begin in range(0, count, LOOKUPS_A_SLOT):
            queue_ids = range(begin, min(begin + LOOKUPS_A_SLOT, count))
            yield [QueueKey(topic, queue_id) for queue_id in queue_ids]

    def _progress(self, group: str, queue: QueueKey) -> QueueProgress:
        consumed = max(self._committed.query(group, *queue), 0)
        last_ms = self._store.queue_lookup.stored_ms(queue, consumed - 1) if consumed else None
        return QueueProgress(
            queue,
            self._store.range_of(queue).max_offset,
            consumed,
            max(self._statistics.counter.pulled_offset(group, queue), consumed),
            last_ms or 0,
        )

    def _times(self, group: str, queue: QueueKey) -> QueueTimes:
        lookup, bounds = self._store.queue_lookup, self._store.range_of(queue)
        last, consumed = lookup.last(queue), self._committed.query(group, *queue)
        first_ms = _or_unknown(lookup.stored_ms(queue, bounds.min_offset))
        consumed_ms = lookup.stored_ms(queue, consumed - 1) if consumed > 0 else first_ms
        waiting_ms = None
        if consumed < bounds.max_offset:
            waiting_ms = lookup.stored_ms(queue, max(consumed, bounds.min_offset))
        delay_ms = 0 if waiting_ms is None else max(self._clock.now_ms() - waiting_ms, 0)
        max_ms = _or_unknown(None if last is None else last.timestamp_ms)
        return QueueTimes(queue, first_ms, max_ms, _or_unknown(consumed_ms), delay_ms)


def _or_unknown(time_ms: int | None) -> int:
    return -1 if time_ms is None else time_ms
