"""Label values that several metrics share, and the topic limit.

State: the topics with own series, in memory only.

Source: docs/design/broker_behaviour.md section 9.6.
"""

from __future__ import annotations

from typing import Protocol

from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.services.groups.manager import PREDEFINED
from rocketpy_broker.services.send.half_message import HALF_QUEUE
from rocketpy_broker.services.topics.attributes import MESSAGE_TYPE
from rocketpy_broker.services.topics.manager import TopicConfigManager, is_retry
from rocketpy_broker.store.delay_levels import SCHEDULE_TOPIC
from rocketpy_broker.store.files.timer_checkpoint import TIMER_QUEUE

SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
DLQ_PREFIX = "%DLQ%"
# Limit of topics with own series; the label `OTHERS` sums up all further topics.
TOPICS_MAX = 1_000
OTHERS = "_others"


def flag(value: bool) -> str:
    """Returns the label text of a boolean."""
    return "true" if value else "false"


def is_retry_or_dlq(topic: str) -> bool:
    """True if a topic is a retry topic or a dead letter topic."""
    return is_retry(topic) or topic.startswith(DLQ_PREFIX)


def is_system_group(group: str) -> bool:
    """True if a consumer group is one of RocketMQ's own."""
    return group in PREDEFINED or group.startswith(SYSTEM_GROUP_PREFIX)


def message_type(topics: TopicConfigManager, topic: str) -> str:
    """Returns the message type of a topic: by the broker's own topic, or by its configuration.

    A sharding key alone does not make a message FIFO here, since no code looks for it.
    """
    if topic in {SCHEDULE_TOPIC, TIMER_QUEUE.topic}:
        return "delay"
    if topic == HALF_QUEUE.topic:
        return "transaction"
    config = topics.find(topic)
    is_fifo = config is not None and config.attributes.get(MESSAGE_TYPE) == "FIFO"
    return "fifo" if is_fifo else "normal"


def shown(text: str) -> str:
    """Returns text with invalid Unicode escaped; names from foreign files may hold it."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def node_labels(config: BrokerConfig) -> dict[str, str]:
    """Returns the labels of every series of a broker, as in RocketMQ."""
    return {
        "node_type": "broker",
        "cluster": config.cluster_name,
        "node_id": config.broker_name,
    }


def labelled(family: Metric, labels: dict[str, str]) -> Metric:
    """Returns the family with added labels on each sample, without `_created` samples."""
    found = Metric(family.name, family.documentation, family.type)
    found.samples = [
        Sample(
            each.name,
            labels | {name: shown(text) for name, text in each.labels.items()},
            each.value,
        )
        for each in family.samples
        if not each.name.endswith("_created")
    ]
    return found


class Removing(Protocol):
    """A metric with removable series."""

    def remove(self, *labels: str) -> None:
        """Removes the series with these labels if it exists."""


class TopicLabels:
    """The topics with own series in the event metrics, at most `topics_max`."""

    def __init__(self, topics: TopicConfigManager, topics_max: int = TOPICS_MAX) -> None:
        self._topics = topics
        self._topics_max = topics_max
        # Topic -> series to remove with the topic.
        self._series: dict[str, set[tuple[Removing, tuple[str, ...]]]] = {}

    def of(self, topic: str) -> str:
        """Returns the topic, or `OTHERS` for a topic above the limit or a missing topic."""
        if topic in self._series:
            return topic
        if len(self._series) >= self._topics_max or not self._is_there(topic):
            return OTHERS
        self._series[topic] = set()
        return topic

    def _is_there(self, topic: str) -> bool:
        return self._topics.find(topic) is not None or self._topics.is_system(topic)

    def note(self, topic: str, metric: Removing, labels: tuple[str, ...]) -> None:
        """Notes a metric's series of a topic that `of` has returned."""
        if topic != OTHERS:
            self._series[topic].add((metric, labels))

    def forget(self, topic: str) -> None:
        """Removes all series of a deleted topic."""
        for metric, labels in self._series.pop(topic, ()):
            metric.remove(*labels)
