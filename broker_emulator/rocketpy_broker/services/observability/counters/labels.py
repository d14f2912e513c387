"""Label values that several metrics share.

Source: docs/design/broker_behaviour.md section 9.6.
"""

from __future__ import annotations

from rocketpy_broker.services.send.half_message import HALF_QUEUE
from rocketpy_broker.services.topics.manager import TopicConfigManager, is_retry
from rocketpy_broker.store.files.timer_checkpoint import TIMER_QUEUE
from rocketpy_proto.model import DEAD_LETTER_PREFIX, FIFO, MESSAGE_TYPE, SCHEDULE_TOPIC


def flag(value: bool) -> str:
    """Returns the label text of a boolean."""
    return "true" if value else "false"


def is_retry_or_dlq(topic: str) -> bool:
    """True if a topic is a retry topic or a dead letter topic."""
    return is_retry(topic) or topic.startswith(DEAD_LETTER_PREFIX)


def in_labels(topics: TopicConfigManager, topic: str) -> tuple[str, str]:
    """Returns a topic's present labels `message_type` and `is_system`."""
    return message_type(topics, topic), flag(topics.is_system(topic))


def message_type(topics: TopicConfigManager, topic: str) -> str:
    """Returns the message type of a topic: by the broker's own topic, or by its configuration.

    A sharding key alone does not make a message FIFO here, since no code looks for it.
    """
    if topic in {SCHEDULE_TOPIC, TIMER_QUEUE.topic}:
        return "delay"
    if topic == HALF_QUEUE.topic:
        return "transaction"
    config = topics.find(topic)
    is_fifo = config is not None and config.attributes.get(MESSAGE_TYPE) == FIFO
    return "fifo" if is_fifo else "normal"
