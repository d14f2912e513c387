"""Queries and commits of offsets for whole topics.

Consumer offsets are in `committed`, queue bounds in the store.
Source: docs/design/broker_behaviour.md sections 5.1, 5.2 and 5.5.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from rocketpy_broker.errors import (
    ParameterIllegalError,
    QueueIdIllegalError,
)
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.groups.manager import check_group, check_not_own
from rocketpy_broker.services.groups.retry_topics import RetryTopic
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.offsets.committed import NOT_COMMITTED, ConsumerOffsetManager
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.services.work_time import WorkTime
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueBounds, QueueKey
from rocketpy_proto.rocketpy.v1 import broker_pb2

# Queues per scheduler slot; they take about 2 ms, with the answer.
QUEUES_A_SLOT = 400
# Queues per scheduler slot with a lookup of their units: about 5 ms.
LOOKUPS_A_SLOT = 50


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A group's next offset of one queue."""

    queue: QueueKey
    offset: int
    topic_epoch: int = 0


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
    ) -> AsyncIterator[list[broker_pb2.QueueOffsets]]:
        """Yields the readable queues of `topic` in parts, with a scheduler slot in between.

        With `log_end` also yields the first offset of each queue after that end of the log.
        Raises TopicNotExistError, ParameterIllegalError.
        """
        queue_ids = range(self._topics.get(topic).readable_queues)
        async for queues in self._query_queues(topic, queue_ids, group, log_end):
            yield queues

    async def query_hidden(
        self, topic: str, queue_ids: Sequence[int], group: str, log_end: int | None = None
    ) -> AsyncIterator[list[broker_pb2.QueueOffsets]]:
        """Yields the `queue_ids` that readers of the topic do not see, as `query`."""
        readable = self._topics.get(topic).readable_queues
        hidden = [i for i in queue_ids if i >= readable]
        async for queues in self._query_queues(topic, hidden, group, log_end):
            yield queues

    async def _query_queues(
        self, topic: str, queue_ids: Sequence[int], group: str, log_end: int | None
    ) -> AsyncIterator[list[broker_pb2.QueueOffsets]]:
        if group:
            check_group(group)
        count = QUEUES_A_SLOT if log_end is None else LOOKUPS_A_SLOT
        for begin in range(0, len(queue_ids), count):
            if len(queue_ids) > count:
                await take_slot("offsets")
            part = queue_ids[begin : begin + count]
            yield [self._query_queue(QueueKey(topic, i), group, log_end) for i in part]

    def epoch_of(self, topic: str) -> int:
        """Returns the topic's epoch, 0 if it is unknown. Raises TopicNotExistError.

        The caller reads the epoch before the queues. If the topic is recreated in between, the
        answer has the older epoch.
        """
        return self._topics.epoch(topic)

    def _query_queue(
        self, queue: QueueKey, group: str, log_end: int | None
    ) -> broker_pb2.QueueOffsets:
        """Returns a queue's bounds, and its first offset with a message after `log_end`."""
        bounds, lookup = self._store.range_of(queue), self._store.queue_lookup
        return broker_pb2.QueueOffsets(
            queue_id=queue.queue_id,
            min_offset=bounds.min_offset,
            max_offset=bounds.max_offset,
            committed_offset=self._consumers.query(group, *queue) if group else NOT_COMMITTED,
            cut_offset=None if log_end is None else lookup.first_after(queue, log_end),
        )

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
            found.append(
                self.consumer_offset(group, queue, set_zero_if_not_found=set_zero_if_not_found)
            )
            if count % QUEUES_A_SLOT == 0:
                await take_slot()
        return found

    def consumer_offset(
        self, group: str, queue: QueueKey, *, set_zero_if_not_found: bool
    ) -> int | None:
        """Returns the group's next offset in a queue, which need not exist; None if unknown."""
        offset = self._consumers.query(group, *queue)
        if offset >= 0:
            return offset
        is_zero = set_zero_if_not_found and self._exists(queue) and self._begins_in_memory(queue)
        return 0 if is_zero else None

    def _exists(self, queue: QueueKey) -> bool:
        """True if the topic exists, and has the queue or once stored messages in it."""
        config = self._topics.find(queue.topic)
        if config is None or queue.queue_id < 0:
            return False
        queue_nums = max(config.readable_queues, config.write_queue_nums)
        return queue.queue_id < queue_nums or self._store.range_of(queue).max_offset > 0

    def _begins_in_memory(self, queue: QueueKey) -> bool:
        """True if the queue starts at 0, and its first message, if any, is in memory."""
        if self._store.range_of(queue).min_offset > 0:
            return False
        first = self._store.queue_lookup.unit_range(queue, 0, 1)
        hot_begin = self._store.positions().log_end - self._store.config.hot_bytes
        return first is None or int(first.physical_offsets[0]) >= hot_begin

    def group_exists(self, group: str) -> bool:
        """True if the consumer group exists; its first commit creates it."""
        return group in self._groups.configs

    async def search(
        self, request: broker_pb2.SearchOffsetsRequest
    ) -> broker_pb2.SearchOffsetsResponse:
        """Returns for each queue the first message stored at the queue's timestamp or later.

        When the work time is over, it returns only the results so far.
        Raises TopicNotExistError, PermissionDeniedError, QueueIdIllegalError.
        """
        for time in request.queues:
            self._topics.check_readable(time.topic, time.queue_id)
        work = WorkTime(self._clock)
        response = broker_pb2.SearchOffsetsResponse()
        for time in request.queues:
            queue = QueueKey(time.topic, time.queue_id)
            stored = self._store.queue_lookup.first_since(queue, time.timestamp_ms)
            response.offsets.add(
                found=stored is not None,
                offset=self._store.range_of(queue).max_offset if stored is None else stored.offset,
                store_timestamp_ms=-1 if stored is None else stored.timestamp_ms,
            )
            await take_slot()
            if work.is_over:
                break
        return response

    def bounds(self, queue: QueueKey) -> QueueBounds:
        """Returns minimum and maximum offset; 0 and 0 for a missing queue or topic."""
        return self._store.range_of(queue)

    async def offset_by_time(self, queue: QueueKey, timestamp_ms: int, *, is_upper: bool) -> int:
        """Returns the first offset stored at a time or later, or the queue's end.

        With `is_upper` returns the last offset stored at the time or earlier, or the queue's
        start. Returns 0 for a missing queue or topic.
        """
        await take_slot("offsets")
        bounds = self._store.range_of(queue)
        stored = self._store.queue_lookup.first_since(queue, timestamp_ms + is_upper)
        offset = bounds.max_offset if stored is None else stored.offset
        return max(offset - 1, bounds.min_offset) if is_upper else offset

    async def earliest_store_ms(self, queue: QueueKey) -> int | None:
        """Returns the store time of a queue's first readable message; None without one."""
        await take_slot("offsets")
        stored = self._store.queue_lookup.first_since(queue, 0)
        return None if stored is None else stored.timestamp_ms

    def check_commit(self, group: str, offsets: Sequence[CommittedOffset]) -> None:
        """Checks a commit, without any change.

        Raises ParameterIllegalError, TopicNotExistError, PermissionDeniedError,
        QueueIdIllegalError, StoreClosedError.
        """
        check_group(group)
        check_not_own(group)
        for committed in offsets:
            self._topics.check_readable(*committed.queue)
            self._topics.check_epoch(committed.queue.topic, committed.topic_epoch)
            self._store.deletions.check(committed.queue.topic)
            _check_offset(committed.offset)

    async def commit(
        self,
        group: str,
        offsets: Sequence[CommittedOffset],
        report: broker_pb2.SparkReport | None = None,
    ) -> None:
        """Sets all offsets of a group or none. The first commit creates the group.

        `report` comes with the progress of a Spark query.

        A new group and its retry topic are saved on return; the offsets are saved at the next
        interval. Raises ParameterIllegalError, TopicNotExistError, PermissionDeniedError,
        QueueIdIllegalError, SubscriptionGroupNotExistError, ClientsFullError, StoreClosedError for
        a topic under deletion. Ignores offsets of a queue with a pending reset.
        """
        self.check_commit(group, offsets)
        is_new = not self.group_exists(group)
        config = self._groups.configs.get_or_create(group)
        if report is not None:
            self._note(group, offsets, report)
        for committed in offsets:
            self._set(group, committed.queue, committed.offset)
        if is_new:
            await self._groups.configs.save_new()
        await self._groups.retry_topics.ensure([RetryTopic(config)])

    def _note(
        self, group: str, offsets: Sequence[CommittedOffset], report: broker_pb2.SparkReport
    ) -> None:
        """Notes a part of a micro-batch before its offsets are set."""
        olds = ((each.offset, self._consumers.query(group, *each.queue)) for each in offsets)
        counts = [max(new - old, 0) for new, old in olds if old != NOT_COMMITTED]
        self._consumers.micro_batches.add(
            group,
            report.token,
            report.driver_host,
            [each.queue for each in offsets],
            sum(counts) if counts else None,
        )

    async def update(self, group: str, queue: QueueKey, offset: int) -> bool:
        """Sets one offset, as RocketMQ does; False for a queue with a pending reset.

        Unlike `commit` it creates no group. A consumer may finish a queue that readers no longer
        see. So the number of readable queues and the permission are not checked. Raises
        SubscriptionGroupNotExistError, PermissionDeniedError, TopicNotExistError,
        QueueIdIllegalError, ParameterIllegalError, StoreClosedError for a topic under deletion.
        """
        config = self._groups.configs.get(group)
        check_not_own(group)
        topic = self._topics.get(queue.topic)
        self._store.deletions.check(queue.topic)
        if not self._exists(queue):
            raise QueueIdIllegalError(*queue, topic.readable_queues)
        _check_offset(offset)
        is_set = self._set(group, queue, offset)
        await self._groups.retry_topics.ensure([RetryTopic(config)])
        return is_set

    def _set(self, group: str, queue: QueueKey, offset: int) -> bool:
        """Sets an offset, but not of a queue with a pending reset; returns True if set."""
        is_reset = self._is_reset(group, queue)
        if not is_reset:
            self._consumers.commit(group, *queue, offset)
        return not is_reset

    def _is_reset(self, group: str, queue: QueueKey) -> bool:
        """True if members of the group have not received a reset of the queue yet."""
        resets = self._consumers.resets
        if resets and self._groups.clients.consumer_group(group) is None:
            resets.has_no_members(group)
        return resets.has(group, queue)

    def take_reset(self, group: str, queue: QueueKey) -> int | None:
        """Returns and removes the pending reset of the group's queue; None if there is none."""
        return self._consumers.resets.take(group, queue) if self._is_reset(group, queue) else None


def _check_offset(offset: int) -> None:
    """Raises ParameterIllegalError for a negative offset."""
    if offset < 0:
        raise ParameterIllegalError("offset", offset, "0 or more")
