"""Creation, change and deletion of consumer groups.

A deletion removes the group's topics first and its configuration last. So a group that a crash
leaves can be deleted again. A member recreates its deleted group with the next heartbeat.
Source: AdminBrokerProcessor#deleteSubscriptionGroup,
docs/design/broker_behaviour.md section 9.2.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from rocketpy_broker.errors import ParameterIllegalError, PermissionDeniedError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.listeners import Listeners
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.admin.change_outcome import saving, timing
from rocketpy_broker.services.admin.group_list import (
    FIELDS,
    GroupListing,
    config_message,
)
from rocketpy_broker.services.admin.topic_admin_service import TopicAdminService
from rocketpy_broker.services.config_files.saver import Saver
from rocketpy_broker.services.groups.changes import GroupChange
from rocketpy_broker.services.groups.clients.registry import MembersOnlineError
from rocketpy_broker.services.groups.manager import is_system_group
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.offsets.committed import ConsumerOffsetManager
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_proto.model import dead_letter_topic, retry_topic
from rocketpy_proto.rocketpy.v1 import groups_pb2


class GroupAdminService:
    """Changes to the consumer groups of one broker."""

    def __init__(
        self,
        admin: TopicAdminService,
        listing: GroupListing,
        topics: TopicConfigManager,
        groups: Groups,
        committed: ConsumerOffsetManager,
        saver: Saver,
        tasks: TaskScope,
        clock: Clock,
    ) -> None:
        self._admin = admin
        self._listing = listing
        self._topics = topics
        self._groups = groups
        self._committed = committed
        self._saver = saver
        self._tasks = tasks
        self._clock = clock
        # Notified after each attempt to change a group: ms taken, and success.
        self.group_changed = Listeners[[float, bool]]()

    async def update(
        self, request: groups_pb2.UpdateGroupRequest
    ) -> groups_pb2.UpdateGroupResponse:
        """Creates or changes a group and returns its configuration; durable on return.

        Raises ParameterIllegalError, GroupExistsError, BrokerError; then nothing has changed.
        """
        config, group = request.config, request.config.consumer_group
        if config.attributes:
            raise ParameterIllegalError("attributes", dict(config.attributes), "none")
        given = {name: getattr(config, name) for name in FIELDS if config.HasField(name)}
        await self.alter(GroupChange(group, given), create_only=request.create_only)
        changed = config_message(self._groups.configs.get(group))
        return groups_pb2.UpdateGroupResponse(config=changed)

    async def alter(self, change: GroupChange, *, create_only: bool = False) -> None:
        """Creates or changes a group as SubscriptionGroupManager does. Raises BrokerError."""
        with timing(self._clock, self.group_changed), _saving(change.group):
            await self._groups.configs.alter(change, create_only=create_only)

    async def delete(
        self, request: groups_pb2.DeleteGroupRequest
    ) -> groups_pb2.DeleteGroupResponse:
        """Removes a group, its committed offsets and its topics; returns the removed topics.

        It continues when the caller is cancelled. Raises ParameterIllegalError,
        SubscriptionGroupNotExistError, PermissionDeniedError, MembersOnlineError; then nothing was
        removed. Raises BrokerError if the disk fails; earlier removals remain.
        """
        group = request.consumer_group
        details = await self._listing.get(groups_pb2.GetGroupRequest(consumer_group=group))
        _check_deletable(group)
        if details.member_count and not request.force:
            raise MembersOnlineError(group, details.member_count)
        gone = await self.remove(group, keep_topics=request.keep_topics)
        return groups_pb2.DeleteGroupResponse(topics=gone)

    async def remove(
        self, group: str, *, keep_topics: bool = False, keep_offsets: bool = False
    ) -> list[str]:
        """Removes what exists of a group, with or without members; returns the removed topics.

        It continues when the caller is cancelled. Raises PermissionDeniedError. Raises BrokerError
        if the disk fails; earlier removals remain.
        """
        _check_deletable(group)
        return await self._tasks.finish(
            self._remove(group, keep_topics=keep_topics, keep_offsets=keep_offsets)
        )

    async def _remove(self, group: str, *, keep_topics: bool, keep_offsets: bool) -> list[str]:
        gone: list[str] = []
        for topic in () if keep_topics else (retry_topic(group), dead_letter_topic(group)):
            if topic in self._topics:
                await self._admin.delete_topic(topic)
                gone.append(topic)
        # Commits the waiting offsets of pops now, while the group exists.
        self._committed.resetting()
        if not keep_offsets:
            await self._committed.delete_group(group)
        with _saving(group):
            await self._saver.save()
            if group in self._groups.configs:
                await self._groups.configs.delete(group)
        return gone


def _check_deletable(group: str) -> None:
    if is_system_group(group):
        raise PermissionDeniedError(f"group {group!r} is the broker's own and cannot be deleted")


def _saving(group: str) -> AbstractContextManager[None]:
    return saving(f"consumer group {group!r}")
