"""Where messages go that could not be consumed: the retry topic and the dead letters of a group.

Holds no state; the topics are in `topics.json`, on disk before a message is stored for them.
Source: docs/design/broker_behaviour.md sections 1.4 and 6.1.
"""

from __future__ import annotations

import logging

from rocketpy_broker.errors import PermissionDeniedError, SendBackError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.log_throttle import LogThrottle
from rocketpy_broker.services.groups.config import SubscriptionGroupConfig
from rocketpy_broker.services.groups.manager import SubscriptionGroupManager
from rocketpy_broker.services.groups.retry_topics import RetryTopic, RetryTopics
from rocketpy_broker.services.topics.config import READ_WRITE, Perm, TopicConfig
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.services.topics.system import dead_letter_topic, retry_topic
from rocketpy_broker.store.values import QueueKey

logger = logging.getLogger(__name__)


class RetryTargets:
    """Groups by name, and their topics, made where they are not there."""

    def __init__(
        self,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        retry_topics: RetryTopics,
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._retry_topics = retry_topics
        self._seldom = LogThrottle(clock)

    async def group(self, name: str) -> SubscriptionGroupConfig:
        """Returns the group, made by this use if that is allowed.

        Raises SubscriptionGroupNotExistError, ParameterIllegalError, ClientsFullError.
        """
        is_new = name not in self._groups
        config = self._groups.get_or_create(name)
        if is_new:
            await self._groups.save_new()
        return config

    async def retry_topic(self, group: SubscriptionGroupConfig) -> str:
        """Returns the topic to send messages of the group back to, with as many queues as it wants.

        Raises SendBackError, PermissionDeniedError.
        """
        topic = retry_topic(group.group)
        await self._retry_topics.ensure([RetryTopic(group, order=False)])
        if topic not in self._topics:
            raise _not_made(topic)
        found = self._topics.get(topic)
        if not found.perm & Perm.WRITE:
            raise PermissionDeniedError(
                f"the topic[{topic}] sending message is forbidden (perm {found.perm})"
            )
        nums = group.retry_queues
        if min(found.write_queue_nums, found.read_queue_nums) < nums:
            await self._add_queues(found, nums)
        return topic

    async def _add_queues(self, topic: TopicConfig, nums: int) -> None:
        """It was made when the group wanted fewer, or none; nobody could read the others."""
        try:
            await self._topics.add_queues(topic.topic, nums)
        except OSError as error:
            self._tell(topic.topic, "changed", error)
            raise _not_made(topic.topic) from error

    async def sent_to(self, group: SubscriptionGroupConfig) -> None:
        """Makes the retry topic that a client sends to by itself. Raises SendBackError."""
        await self._make(retry_topic(group.group))

    async def dead_letters(self, group: SubscriptionGroupConfig) -> QueueKey:
        """Where the group's dead letters go, whatever its permission. Raises SendBackError."""
        topic = dead_letter_topic(group.group)
        await self._make(topic)
        return QueueKey(topic, 0)

    def check(self, topic: str) -> None:
        """Raises SendBackError where the topic was deleted since it was made."""
        if topic not in self._topics:
            raise _not_made(topic)

    async def _make(self, topic: str) -> None:
        if topic in self._topics:
            return
        try:
            await self._topics.make_retry_topics([TopicConfig(topic, 1, 1, int(READ_WRITE))])
        except OSError as error:
            self._tell(topic, "made", error)
            raise _not_made(topic) from error

    def _tell(self, topic: str, what: str, error: OSError) -> None:
        if self._seldom.may_say():
            logger.warning("topic %r could not be %s: %s", topic, what, error)


def _not_made(topic: str) -> SendBackError:
    return SendBackError(
        f"topic[{topic}] not exist, and it could not be made; see whether the disk is full, or "
        "whether somebody deletes it"
    )
