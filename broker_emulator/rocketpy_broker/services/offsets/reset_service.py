"""Resets of a consumer group to other offsets of a topic.

All new offsets are found and checked first. Then the table of offsets takes them all, and is saved
before the broker answers. A crash within the save leaves the offsets as they were before.
A group with members is refused unless `force` is set. Its members continue at the new offsets with
their next pulls, see `pending_resets`. Members of a broadcasting group keep their own progress,
which the broker cannot reset.
Source: AdminBrokerProcessor#resetOffset, docs/design/broker_behaviour.md section 5.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

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
from rocketpy_broker.services.groups.manager import check_group
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.offsets.committed import ConsumerOffsetManager
from rocketpy_broker.services.offsets.scan import SYSTEM_GROUP_PREFIX
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey

# Queues per scheduler slot that are searched by time: some ms.
SEARCHES_A_TURN = 20
QUEUES_A_TURN = 1_000


class ResetTo(Enum):
    """The target of a reset; TIMESTAMP and OFFSET have a value."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIMESTAMP = "timestamp"
    OFFSET = "offset"


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """A group, its queues (None: all), and the target; `value` in ms since 1970, or an offset.

    `force`: resets a group with members. `dry_run`: only reports the result.
    """

    group: str
    topic: str
    queue_id: int | None
    to: ResetTo
    value: int = 0
    force: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class ResetQueue:
    """A queue's next offset before, or NOT_COMMITTED, and after a reset."""

    queue_id: int
    old_offset: int
    new_offset: int


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

    async def reset(self, request: ResetRequest) -> list[ResetQueue]:
        """Returns the changes by queue; durable on return. Runs to completion if cancelled.

        Raises ParameterIllegalError, TopicNotExistError, QueueIdIllegalError,
        PermissionDeniedError, SubscriptionGroupNotExistError, MembersOnlineError: nothing is
        changed then. Raises BrokerError if the save failed.
        """
        await self._check(request)
        targets = await self._targets(request)
        # Other tasks ran during the await.
        self._check_members(request)
        epoch = self._topics.get(request.topic).epoch
        found = [
            ResetQueue(queue_id, self._committed.query(request.group, request.topic, queue_id), new)
            for queue_id, new in targets.items()
        ]
        if not request.dry_run:
            await self._tasks.finish(self._apply(request, found, epoch))
        return found

    async def _check(self, request: ResetRequest) -> None:
        group, topic = request.group, request.topic
        check_group(group)
        if group.startswith(SYSTEM_GROUP_PREFIX):
            raise PermissionDeniedError(f"the progress of group {group!r} is the broker's own")
        self._topics.check_readable(topic, request.queue_id or 0)
        if not await self._is_known(group):
            raise SubscriptionGroupNotExistError(group)
        self._check_members(request)
        if request.value < 0:
            raise ParameterIllegalError(request.to.value, request.value, "0 or more")

    async def _is_known(self, group: str) -> bool:
        """True if the group is configured, or has progress without a configuration."""
        if group in self._groups.configs:
            return True
        async for _, of_group in self._committed.entries():
            if of_group == group:
                return True
        return False

    def _check_members(self, request: ResetRequest) -> None:
        clients = self._groups.clients
        members = clients.consumer_group(request.group)
        if members is None or request.dry_run:
            return
        if members.is_broadcasting:
            raise PermissionDeniedError(
                f"group {request.group!r} consumes by broadcasting: its members keep their own "
                "progress, and a reset here would change nothing"
            )
        if not request.force:
            raise MembersOnlineError(request.group, clients.member_count(request.group))

    async def _targets(self, request: ResetRequest) -> Mapping[int, int]:
        """Returns the new offset of each queue. Raises ParameterIllegalError."""
        config = self._topics.get(request.topic)
        queues = range(config.readable_queues)
        if request.queue_id is not None:
            queues = range(request.queue_id, request.queue_id + 1)
        is_search = request.to is ResetTo.TIMESTAMP
        count = SEARCHES_A_TURN if is_search else QUEUES_A_TURN
        targets: dict[int, int] = {}
        for number, queue_id in enumerate(queues, 1):
            targets[queue_id] = self._target(request, QueueKey(request.topic, queue_id))
            if number % count == 0:
                await take_slot("offsets")
        return targets

    def _target(self, request: ResetRequest, queue: QueueKey) -> int:
        bounds = self._store.range_of(queue)
        if request.to is ResetTo.EARLIEST:
            return bounds.min_offset
        if request.to is ResetTo.LATEST:
            return bounds.max_offset
        if request.to is ResetTo.TIMESTAMP:
            stored = self._store.queue_lookup.first_since(queue, request.value)
            return bounds.max_offset if stored is None else stored.offset
        if not bounds.min_offset <= request.value <= bounds.max_offset:
            accepted = f"{bounds.min_offset} to {bounds.max_offset} in queue {queue.queue_id}"
            raise ParameterIllegalError("offset", request.value, accepted)
        return request.value

    async def _apply(
        self, request: ResetRequest, queues: list[ResetQueue], topic_epoch: int
    ) -> None:
        for begin in range(0, len(queues), QUEUES_A_TURN):
            part = queues[begin : begin + QUEUES_A_TURN]
            # The topic may have been recreated during the await.
            self._topics.check_epoch(request.topic, topic_epoch)
            self._store.deletions.check(request.topic)
            self._let_wait(request, part)
            for each in part:
                self._committed.commit(request.group, request.topic, each.queue_id, each.new_offset)
            await take_slot()
        try:
            await self._saver.save()
        except OSError as error:
            raise BrokerError(
                f"group {request.group!r} was reset, but that could not be saved "
                f"({error.strerror}); see to the broker's disk, or reset it again"
            ) from error

    def _let_wait(self, request: ResetRequest, queues: list[ResetQueue]) -> None:
        """Notes the new offsets for the next pulls of the members.

        Also notes them for members that may return after a restart, and that have an older reset.
        """
        group, topic, resets = request.group, request.topic, self._committed.resets
        places = {each.queue_id: each.new_offset for each in queues}
        if self._groups.clients.consumer_group(group) is None:
            resets.nobody_is_there(group)
            places = {i: new for i, new in places.items() if resets.has(group, QueueKey(topic, i))}
        if places:
            resets.set(group, topic, places)
