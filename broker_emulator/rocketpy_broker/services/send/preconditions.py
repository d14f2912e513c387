"""Preconditions of sends, and topics created by sends.

Source: SendMessageProcessor#preSend, #msgCheck, docs/design/broker_behaviour.md sections 1.1 and
1.3.
"""

from __future__ import annotations

import contextlib
import logging
from datetime import datetime, timezone

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import BrokerError, PermissionDeniedError, TopicIllegalError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_proto.counts import counted
from rocketpy_proto.model import AUTO_CREATE_TOPIC
from rocketpy_proto.model.configs import Perm, TopicConfig

logger = logging.getLogger(__name__)


class NotServingYetError(BrokerError):
    """A send before the configured time from which the broker accepts sends."""

    def __init__(self, timestamp_ms: int) -> None:
        until = datetime.fromtimestamp(timestamp_ms / 1000, tz=timezone.utc)
        super().__init__(f"broker unable to service, until {until.isoformat(sep=' ')}")


class SendPreconditions:
    """The first checks of a send; its queue and its records are checked later."""

    def __init__(self, topics: TopicConfigManager, clock: Clock, config: BrokerConfig) -> None:
        self._topics = topics
        self._clock = clock
        self.configure(config)
        # Names of the template topic and the cluster, which are no topics for clients.
        self._reserved = {AUTO_CREATE_TOPIC, config.cluster_name}

    def configure(self, config: BrokerConfig) -> None:
        """Takes in a changed configuration."""
        self._config = config
        self._makes_topics = config.system_topics.auto_create_topic_enable

    def check(self, topic: str) -> None:
        """Raises NotServingYetError, TopicIllegalError, PermissionDeniedError."""
        begin_ms = self._config.start_accept_send_request_timestamp_ms
        if self._clock.now_ms() < begin_ms:
            raise NotServingYetError(begin_ms)
        self._topics.check_name(topic)
        if topic in self._reserved:
            raise PermissionDeniedError(f"Sending message to topic[{topic}] is forbidden.")
        self.check_permission()

    def check_permission(self) -> None:
        """Raises PermissionDeniedError if the broker accepts no messages."""
        if not self._config.broker_permission & Perm.WRITE:
            raise PermissionDeniedError(
                f"the broker[{self._config.broker_name}] sending message is forbidden"
            )

    def is_missing(self, topic: str) -> bool:
        """True if the topic does not exist; a send may create it."""
        return topic not in self._topics

    async def create_topic(self, topic: str, default_topic: str, queue_nums_max: int) -> None:
        """Creates an unknown topic from a template topic with the permission INHERIT.

        Without such a template, or if the topic cannot be saved, it creates nothing. The send then
        reports that the topic does not exist. Raises NotServingYetError, TopicIllegalError,
        PermissionDeniedError.
        """
        if default_topic == AUTO_CREATE_TOPIC and not self._makes_topics:
            # The store may have the template from a time when this was allowed.
            return
        template = self._topics.find(default_topic)
        if not self.is_missing(topic) or template is None or not template.perm & Perm.INHERIT:
            return
        self.check(topic)
        nums = min(queue_nums_max, template.write_queue_nums)
        if nums < 1:
            raise TopicIllegalError(
                f"topic {topic!r} cannot be created with {counted(nums, 'queue')}; ask for 1 or "
                f"more. Its template {default_topic!r} has {template.write_queue_nums}"
            )
        perm = template.perm & ~Perm.INHERIT
        config = TopicConfig(topic, nums, nums, perm, topic_filter_type=template.topic_filter_type)
        with contextlib.suppress(OSError):
            await self._topics.create(config)
            logger.info("topic %r was created by a send, with %s", topic, counted(nums, "queue"))
