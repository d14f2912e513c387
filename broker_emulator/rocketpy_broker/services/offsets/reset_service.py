"""Resets of a consumer group to other offsets of a topic.

All new offsets are found and checked first. Then the table of offsets takes them all, and is saved
before the broker answers. A crash within the save leaves the offsets as they were before.
A group with members is refused unless `force` is set. Its members continue at the new offsets with
their next pulls, see `pending_resets`. Members of a broadcasting group keep their own progress,
which the broker cannot reset.
Source: AdminBrokerProcessor#resetOffset, docs/design/broker_behaviour.md section 5.6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocketpy_broker.errors import (
    BrokerError,
    ParameterIllegalError,
    PermissionDeniedError,
    SubscriptionGroupNotExistError,
)
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.config_files.saver import Saver
from rocketpy_broker.services.groups.clients.registry import MembersOnlineError
from rocketpy_broker.services.groups.manager import check_group, check_not_own
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.offsets.committed import ConsumerOffsetManager
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.rocketpy.v1 import groups_pb2

# Queues per scheduler slot that are searched by time: some ms.
SEARCHES_A_SLOT = 20
QUEUES_A_SLOT = 1_000
Request = groups_pb2.ResetOffsetsRequest


class ResetService:
    """Service that resets the groups of one broker."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: Groups,
        committed: ConsumerOffsetManager,
        saver: Saver,
        tasks: TaskScope,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._committed = committed
        self._saver = saver
        self._tasks = tasks

    async def reset(self, request: Request) -> groups_pb2.ResetOffsetsResponse:
        """Returns the changes by queue; durable on return. Runs to completion if cancelled.

        Raises ParameterIllegalError, TopicNotExistError, QueueIdIllegalError,
        PermissionDeniedError, SubscriptionGroupNotExistError, MembersOnlineError: nothing is
        changed then. Raises BrokerError if the save failed.
        """
        await self._check(request)
        epoch = self._topics.epoch(request.topic)
        response = await self._response(request)
        # Other tasks ran during the await.
        self._check_members(request)
        if not request.dry_run:
            await self._tasks.finish(self._apply(request, response.offsets, epoch))
        return response

    async def _check(self, request: Request) -> None:
        group, topic, to = request.consumer_group, request.topic, request.WhichOneof("to")
        if to is None or (to in {"earliest", "latest"} and not getattr(request, to)):
            accepted = "earliest, latest, timestamp_ms or offset"
            raise ParameterIllegalError("to", to or "", accepted)
        check_group(group)
        check_not_own(group)
        self._topics.check_readable(topic, request.queue_id)
        if not await self._is_known(group):
            raise SubscriptionGroupNotExistError(group)
        self._check_members(request)
        # At most one of them is set.
        if (value := request.timestamp_ms or request.offset) < 0:
            raise ParameterIllegalError(to.removesuffix("_ms"), value, "0 or more")

    async def _is_known(self, group: str) -> bool:
        """True if the group is configured, or has progress without a configuration."""
        if group in self._groups.configs:
            return True
        async for _, of_group in self._committed.entries():
            if of_group == group:
                return True
        return False

    def _check_members(self, request: Request) -> None:
        clients, group = self._groups.clients, request.consumer_group
        members = clients.consumer_group(group)
        if members is None or request.dry_run:
            return
        if members.is_broadcasting:
            raise PermissionDeniedError(
                f"group {group!r} consumes by broadcasting: its members keep their own "
                "progress, and a reset here would change nothing"
            )
        if not request.force:
            raise MembersOnlineError(group, clients.member_count(group))

    async def _response(self, request: Request) -> groups_pb2.ResetOffsetsResponse:
        """Returns the old and new offset of each queue. Raises ParameterIllegalError."""
        group, topic = request.consumer_group, request.topic
        queues = range(self._topics.get(topic).readable_queues)
        if request.HasField("queue_id"):
            queues = range(request.queue_id, request.queue_id + 1)
        count = SEARCHES_A_SLOT if request.HasField("timestamp_ms") else QUEUES_A_SLOT
        response = groups_pb2.ResetOffsetsResponse()
        for number, queue_id in enumerate(queues, 1):
            response.offsets.add(
                queue_id=queue_id,
                old_offset=self._committed.query(group, topic, queue_id),
                new_offset=self._target(request, QueueKey(topic, queue_id)),
            )
            if number % count == 0:
                await take_slot("offsets")
        return response

    def _target(self, request: Request, queue: QueueKey) -> int:
        bounds = self._store.range_of(queue)
        if request.earliest:
            return bounds.min_offset
        if request.latest:
            return bounds.max_offset
        if request.HasField("timestamp_ms"):
            stored = self._store.queue_lookup.first_since(queue, request.timestamp_ms)
            return bounds.max_offset if stored is None else stored.offset
        if not bounds.min_offset <= request.offset <= bounds.max_offset:
            accepted = f"{bounds.min_offset} to {bounds.max_offset} in queue {queue.queue_id}"
            raise ParameterIllegalError("offset", request.offset, accepted)
        return request.offset

    async def _apply(
        self, request: Request, queues: Sequence[groups_pb2.ResetOffset], topic_epoch: int
    ) -> None:
        group, topic = request.consumer_group, request.topic
        for begin in range(0, len(queues), QUEUES_A_SLOT):
            part = queues[begin : begin + QUEUES_A_SLOT]
            # The topic may have been recreated during the await.
            self._topics.check_epoch(topic, topic_epoch)
            self._store.deletions.check(topic)
            self._committed.resetting()
            self._add_pending(group, topic, {each.queue_id: each.new_offset for each in part})
            for each in part:
                self._committed.commit(group, topic, each.queue_id, each.new_offset)
            await take_slot()
        try:
            await self._saver.save()
        except OSError as error:
            raise BrokerError(
                f"group {group!r} was reset, but that could not be saved "
                f"({error.strerror}); check the broker's disk, or reset it again"
            ) from error

    def _add_pending(self, group: str, topic: str, places: Mapping[int, int]) -> None:
        """Notes the new offsets for the next pulls of the members.

        Also notes them for members that may return after a restart, and that have an older reset.
        """
        resets = self._committed.resets
        if self._groups.clients.consumer_group(group) is None:
            resets.has_no_members(group)
            places = {i: new for i, new in places.items() if resets.has(group, QueueKey(topic, i))}
        if places:
            resets.set(group, topic, places)
