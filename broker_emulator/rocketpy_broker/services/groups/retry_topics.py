"""The topic `%RETRY%group` of every consumer group; RocketMQ's tools query it.

The topics are in `topics.json`, saved before the broker answers the use that creates them.
A full disk does not stop the group: its next heartbeat or commit tries again.
Source: docs/design/broker_behaviour.md section 4.2, docs/design/storage.md section 12.1.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.log_throttle import LogThrottle
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_proto.model import retry_topic
from rocketpy_proto.model.configs import READ_WRITE, SubscriptionGroupConfig, TopicConfig

logger = logging.getLogger(__name__)
UNIT_SUBSCRIPTION_FLAG = 2


@dataclass(frozen=True, slots=True)
class RetryTopic:
    """The required retry topic of a group; `order` None leaves the order of an existing topic."""

    group: SubscriptionGroupConfig
    order: bool | None = None
    unit_mode: bool = False

    def config(self) -> TopicConfig:
        """Returns the configuration of a new retry topic."""
        nums = self.group.retry_queues
        return TopicConfig(
            retry_topic(self.group.group),
            nums,
            nums,
            int(READ_WRITE),
            order=bool(self.order),
            topic_sys_flag=UNIT_SUBSCRIPTION_FLAG if self.unit_mode else 0,
        )


class RetryTopics:
    """The creator of retry topics."""

    def __init__(self, topics: TopicConfigManager, clock: Clock) -> None:
        self._topics = topics
        self._log_throttle = LogThrottle(clock)

    def is_ordered(self, subscribed: Sequence[str]) -> bool:
        """True if one of these topics is ordered."""
        return any(topic in self._topics and self._topics.get(topic).order for topic in subscribed)

    async def ensure(self, wanted: Sequence[RetryTopic]) -> None:
        """Creates missing topics and changes `order` of existing ones, in at most one save."""
        due = [topic.config() for topic in wanted if self._is_due(topic)]
        if not due:
            return
        try:
            await self._topics.make_retry_topics(due)
        except OSError as error:
            if self._log_throttle.may_log():
                logger.warning("retry topics could not be created yet: %s", error)

    def _is_due(self, wanted: RetryTopic) -> bool:
        topic = retry_topic(wanted.group.group)
        if topic not in self._topics:
            return True
        return wanted.order not in {None, self._topics.get(topic).order}
