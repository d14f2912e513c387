"""Creating, changing and deleting consumer groups. Holds no state of its own.

A group is deleted in steps, its topics first and its configuration last, so what a crash leaves of
it can be deleted again. A member of a group that was deleted all the same makes it again by its
next heartbeat. Source: AdminBrokerProcessor#deleteSubscriptionGroup,
docs/design/broker_behaviour.md section 9.2.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from rocketpy_broker.errors import PermissionDeniedError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.listeners import Listeners
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.admin.change_outcome import saving, timing
from rocketpy_broker.services.admin.group_list import GroupListing, is_own
from rocketpy_broker.services.admin.topic_admin_service import TopicAdminService
from rocketpy_broker.services.config_files.saver import Saver
from rocketpy_broker.services.groups.changes import GroupChange
from rocketpy_broker.services.groups.clients.registry import MembersOnlineError
from rocketpy_broker.services.groups.config import SubscriptionGroupConfig
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.offsets.committed import ConsumerOffsetManager
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.services.topics.system import dead_letter_topic, retry_topic


class GroupAdminService:
    """Changes groups of one broker."""

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
        # Told of a group that was to be changed: how many ms that took, and whether it is.
        self.group_changed = Listeners[[float, bool]]()

    async def update(self, change: GroupChange, *, create_only: bool) -> SubscriptionGroupConfig:
        """Creates or change a group; durable on return. What it is then.

        Raises ParameterIllegalError, GroupExistsError, BrokerError; then nothing has changed.
        """
        with timing(self._clock, self.group_changed), _saving(change.group):
            await self._groups.configs.alter(change, create_only=create_only)
        return self._groups.configs.get(change.group)

    async def delete(self, group: str, *, keep_topics: bool, force: bool) -> list[str]:
        """Removes a group, its progress and its topics; the topics that are gone.

        It goes on when the caller is cancelled. Raises ParameterIllegalError,
        SubscriptionGroupNotExistError, PermissionDeniedError, MembersOnlineError: nothing was done
        then. Raises BrokerError where the disk refuses; what was removed until then stays removed.
        """
        details = await self._listing.get(group)
        if is_own(group):
            raise PermissionDeniedError(f"group {group!r} is the broker's own and stays")
        if details.member_count and not force:
            raise MembersOnlineError(group, details.member_count)
        return await self._tasks.finish(self._delete(group, keep_topics=keep_topics))

    async def _delete(self, group: str, *, keep_topics: bool) -> list[str]:
        gone: list[str] = []
        for topic in () if keep_topics else (retry_topic(group), dead_letter_topic(group)):
            if topic in self._topics:
                await self._admin.delete_topic(topic)
                gone.append(topic)
        await self._committed.delete_group(group)
        with _saving(group):
            await self._saver.save()
            if group in self._groups.configs:
                await self._groups.configs.delete(group)
        return gone


def _saving(group: str) -> AbstractContextManager[None]:
    return saving(f"consumer group {group!r}")
