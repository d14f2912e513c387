"""Queries and commits of offsets for whole topics.

Consumer offsets are in `committed`, queue bounds in the store.
Source: docs/design/broker_behaviour.md sections 5.1, 5.2 and 5.5.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from rocketpy_broker.errors import ParameterIllegalError, PermissionDeniedError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.groups.manager import check_group
from rocketpy_broker.services.groups.retry_topics import RetryTopic
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.offsets.committed import NOT_COMMITTED, ConsumerOffsetManager
from rocketpy_broker.services.offsets.scan import SYSTEM_GROUP_PREFIX
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.services.work_time import WorkTime
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey

# Queues per scheduler slot; they take about 2 ms, with the answer.
QUEUES_A_TURN = 400
# Queues per scheduler slot with a lookup of their units: about 5 ms.
LOOKUPS_A_TURN = 50


@dataclass(frozen=True, slots=True)
class QueueOffsets:
    """The bounds of one queue, and the group's next offset or NOT_COMMITTED.

    `cut_offset`: the first offset with a message after the requested end of the log.
    """

    queue_id: int
    min_offset: int
    max_offset: int
    committed_offset: int
    cut_offset: int | None = None


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A group's next offset of one queue."""

    queue: QueueKey
    offset: int
    topic_epoch: int = 0


@dataclass(frozen=True, slots=True)
class QueueTime:
    """A queue and a store time, in ms since 1970."""

    queue: QueueKey
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """The first offset since a time; the queue's maximum if none was found.

    `store_timestamp_ms` is the message's, or -1.
    """

    found: bool
    offset: int
    store_timestamp_ms: int = -1


class OffsetService:
    """Service for queue bounds and consumer offsets."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: Groups,
        consumers: ConsumerOffsetManager,
        clock: Clock,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._clock = clock

    async def query(
        self, topic: str, group: str, log_end: int | None = None
    ) -> AsyncIterator[list[QueueOffsets]]:
        """Yields the readable queues of `topic` in parts, with a scheduler slot in between.

        With `log_end` also yields the first offset of each queue after that end of the log.
        Raises TopicNotExistError, ParameterIllegalError.
        """
        queue_ids = range(self._topics.get(topic).readable_queues)
        async for queues in self._query_queues(topic, queue_ids, group, log_end):
            yield queues

    async def query_hidden(
        self, topic: str, queue_ids: Sequence[int], group: str, log_end: int | None = None
    ) -> AsyncIterator[list[QueueOffsets]]:
        """Yields the `queue_ids` that readers of the topic do not see, as `query`."""
        readable = self._topics.get(topic).readable_queues
        hidden = [i for i in queue_ids if i >= readable]
        async for queues in self._query_queues(topic, hidden, group, log_end):
            yield queues

    async def _query_queues(
        self, topic: str, queue_ids: Sequence[int], group: str, log_end: int | None
    ) -> AsyncIterator[list[QueueOffsets]]:
        if group:
            check_group(group)
        count = QUEUES_A_TURN if log_end is None else LOOKUPS_A_TURN
        for begin in range(0, len(queue_ids), count):
            if len(queue_ids) > count:
                await take_slot("offsets")
            part = queue_ids[begin : begin + count]
            yield [self._query_queue(QueueKey(topic, i), group, log_end) for i in part]

    def epoch_of(self, topic: str) -> int:
        """Returns the topic's epoch, 0 for none. Raises TopicNotExistError.

        The caller reads it before the queues. A topic recreated in between then has another epoch.
        """
        return self._topics.get(topic).epoch

    def _query_queue(self, queue: QueueKey, group: str, log_end: int | None) -> QueueOffsets:
        bounds = self._store.range_of(queue)
        committed = self._consumers.query(group, *queue) if group else NOT_COMMITTED
        lookup = self._store.queue_lookup
        cut = None if log_end is None else lookup.first_behind(queue, log_end)
        return QueueOffsets(queue.queue_id, bounds.min_offset, bounds.max_offset, committed, cut)

    async def consumer_offsets(
        self, group: str, queues: Sequence[QueueKey], *, set_zero_if_not_found: bool
    ) -> list[int | None]:
        """Returns the group's next offset in each queue; None if unknown.

        Raises ParameterIllegalError, TopicNotExistError, PermissionDeniedError,
        QueueIdIllegalError.
        """
        check_group(group)
        found: list[int | None] = []
        for count, queue in enumerate(queues, 1):
            self._topics.check_readable(*queue)
            offset = self._consumers.query(group, *queue)
            is_zero = offset < 0 and set_zero_if_not_found and self._begins_hot(queue)
            found.append(0 if is_zero else None if offset < 0 else offset)
            if count % QUEUES_A_TURN == 0:
                await take_slot()
        return found

    def _begins_hot(self, queue: QueueKey) -> bool:
        """True if the queue starts at 0, and its first message, if any, is in memory."""
        if self._store.range_of(queue).min_offset > 0:
            return False
        first = self._store.queue_lookup.stretch(queue, 0, 1)
        hot_begin = self._store.positions().log_end - self._store.config.hot_bytes
        return first is None or int(first.physical_offsets[0]) >= hot_begin

    def group_exists(self, group: str) -> bool:
        """True if the consumer group exists; its first commit creates it."""
        return group in self._groups.configs

    async def search(self, times: Sequence[QueueTime]) -> list[FoundOffset]:
        """Returns the first message of each queue that was stored at its time or later.

        Returns the first queues only if the work time ends before the last queue.
        Raises TopicNotExistError, PermissionDeniedError, QueueIdIllegalError.
        """
        for time in times:
            self._topics.check_readable(*time.queue)
        work = WorkTime(self._clock)
        found: list[FoundOffset] = []
        for time in times:
            found.append(self._search_queue(time))
            await take_slot()
            if work.is_over:
                break
        return found

    def _search_queue(self, time: QueueTime) -> FoundOffset:
        stored = self._store.queue_lookup.first_since(time.queue, time.timestamp_ms)
        if stored is None:
            return FoundOffset(found=False, offset=self._store.range_of(time.queue).max_offset)
        return FoundOffset(True, stored.offset, stored.timestamp_ms)

    def check_commit(self, group: str, offsets: Sequence[CommittedOffset]) -> None:
        """Raises the errors of `commit` that need no change.

        Raises ParameterIllegalError, TopicNotExistError, PermissionDeniedError,
        QueueIdIllegalError, StoreClosedError.
        """
        check_group(group)
        if group.startswith(SYSTEM_GROUP_PREFIX):
            raise PermissionDeniedError(f"the progress of group {group!r} is the broker's own")
        for committed in offsets:
            self._topics.check_readable(*committed.queue)
            self._topics.check_epoch(committed.queue.topic, committed.topic_epoch)
            self._store.deletions.check(committed.queue.topic)
            if committed.offset < 0:
                raise ParameterIllegalError("offset", committed.offset, "0 or more")

    async def commit(self, group: str, offsets: Sequence[CommittedOffset]) -> None:
        """Sets all offsets of a group or none. The first commit creates the group.

        A new group and its retry topic are saved on return; the offsets are saved at the next
        interval. Raises ParameterIllegalError, TopicNotExistError, PermissionDeniedError,
        QueueIdIllegalError, SubscriptionGroupNotExistError, ClientsFullError, StoreClosedError for
        a topic under deletion. Ignores offsets of a queue with a pending reset.
        """
        self.check_commit(group, offsets)
        is_new = not self.group_exists(group)
        config = self._groups.configs.get_or_create(group)
        for committed in offsets:
            if not self._is_reset(group, committed.queue):
                self._consumers.commit(group, *committed.queue, committed.offset)
        if is_new:
            await self._groups.configs.save_new()
        await self._groups.retry_topics.ensure([RetryTopic(config)])

    def _is_reset(self, group: str, queue: QueueKey) -> bool:
        """True if members of the group have not received a reset of the queue yet."""
        resets = self._consumers.resets
        if resets and self._groups.clients.consumer_group(group) is None:
            resets.nobody_is_there(group)
        return resets.has(group, queue)

    def take_reset(self, group: str, queue: QueueKey) -> int | None:
        """Returns the offset of the group's next pull if the queue has a pending reset."""
        return self._consumers.resets.take(group, queue) if self._is_reset(group, queue) else None
