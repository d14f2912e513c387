"""Retry topic and dead-letter topic of a consumer group.

The topics are in `topics.json`, on disk before a message is stored in them.
Source: docs/design/broker_behaviour.md sections 1.4 and 6.1.
"""

from __future__ import annotations

import logging

from rocketpy_broker.errors import PermissionDeniedError, SendBackError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.log_throttle import LogThrottle
from rocketpy_broker.services.groups.manager import SubscriptionGroupManager
from rocketpy_broker.services.groups.retry_topics import RetryTopic, RetryTopics
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model import dead_letter_topic, retry_topic
from rocketpy_proto.model.configs import READ_WRITE, Perm, SubscriptionGroupConfig, TopicConfig

logger = logging.getLogger(__name__)


class RetryTargets:
    """Groups by name, and their topics, created if they do not exist."""

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
        self._log_throttle = LogThrottle(clock)

    async def group(self, name: str) -> SubscriptionGroupConfig:
        """Returns the group; creates it if that is enabled.

        Raises SubscriptionGroupNotExistError, ParameterIllegalError, ClientsFullError.
        """
        is_new = name not in self._groups
        config = self._groups.get_or_create(name)
        if is_new:
            await self._groups.save_new()
        return config

    async def retry_topic(self, group: SubscriptionGroupConfig, *, unit_mode: bool) -> str:
        """Returns the group's retry topic, with the group's number of queues.

        Raises SendBackError, PermissionDeniedError.
        """
        topic = retry_topic(group.group)
        await self._retry_topics.ensure([RetryTopic(group, order=False, unit_mode=unit_mode)])
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
        """Adds queues if the group had fewer when its topic was created.

        Consumers could not read the missing queues. Raises SendBackError.
        """
        try:
            await self._topics.add_queues(topic.topic, nums)
        except OSError as error:
            self._log_failure(topic.topic, "changed", error)
            raise _not_made(topic.topic) from error

    async def sent_to(self, group: SubscriptionGroupConfig) -> None:
        """Creates the retry topic for a client that sends to it directly. Raises SendBackError."""
        await self._make(retry_topic(group.group))

    async def dead_letters(self, group: SubscriptionGroupConfig) -> QueueKey:
        """Returns the group's dead-letter queue, whatever its topic's permission.

        Creates the topic if necessary. Raises SendBackError.
        """
        topic = dead_letter_topic(group.group)
        await self._make(topic)
        return QueueKey(topic, 0)

    def check(self, topic: str) -> None:
        """Raises SendBackError if the topic was deleted since its creation."""
        if topic not in self._topics:
            raise _not_made(topic)

    async def _make(self, topic: str) -> None:
        if topic in self._topics:
            return
        try:
            await self._topics.make_retry_topics([TopicConfig(topic, 1, 1, int(READ_WRITE))])
        except OSError as error:
            self._log_failure(topic, "created", error)
            raise _not_made(topic) from error

    def _log_failure(self, topic: str, what: str, error: OSError) -> None:
        if self._log_throttle.may_log():
            logger.warning("topic %r could not be %s: %s", topic, what, error)


def _not_made(topic: str) -> SendBackError:
    return SendBackError(
        f"topic[{topic}] not exist, and the broker could not create it. Check whether the "
        "broker's disk is full, or whether a client deletes the topic"
    )
