"""Topics of a broker: list, create, delete. Holds no state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rocketpy_broker.client.connection import REQUEST_SECONDS_MAX, BrokerConnection
from rocketpy_broker.client.errors import RefusedError
from rocketpy_proto.rocketpy.v1 import admin_pb2

QUEUES_DEFAULT = 8
# To read and to write, as RocketMQ's PermName counts.
READ_WRITE = 6
# Of the topics that consumer groups have for messages to be consumed again.
RETRY_PREFIX = "%RETRY%"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic's configuration."""

    topic: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int


def list_topics(
    connection: BrokerConnection, names: Sequence[str] = (), *, include_system: bool = False
) -> list[Topic]:
    """The named topics, or all, by name. Raises UnreachableError, RefusedError."""
    request = admin_pb2.ListTopicsRequest(topics=names, include_system=include_system)
    response: admin_pb2.ListTopicsResponse = connection.ask(
        lambda: connection.admin.ListTopics(request, timeout=REQUEST_SECONDS_MAX)
    )
    return [
        Topic(config.topic, config.read_queue_nums, config.write_queue_nums, config.perm)
        for config in response.configs
    ]


def topic_exists(connection: BrokerConnection, topic: str) -> bool:
    """Whether there is such a topic. Raises UnreachableError, RefusedError."""
    try:
        list_topics(connection, [topic])
    except RefusedError as error:
        if error.is_missing_topic:
            return False
        raise
    return True


def create_topic(connection: BrokerConnection, topic: str, queues: int) -> None:
    """Create `topic`. Raises UnreachableError, RefusedError, also for one that exists."""
    config = admin_pb2.TopicConfig(
        topic=topic, read_queue_nums=queues, write_queue_nums=queues, perm=READ_WRITE
    )
    request = admin_pb2.UpdateTopicRequest(config=config, create_only=True)
    connection.ask(lambda: connection.admin.UpdateTopic(request, timeout=REQUEST_SECONDS_MAX))


def delete_topic(connection: BrokerConnection, topic: str) -> None:
    """Delete `topic`, its messages and all progress in it.

    Raises UnreachableError, RefusedError.
    """
    request = admin_pb2.DeleteTopicRequest(topic=topic)
    connection.ask(lambda: connection.admin.DeleteTopic(request, timeout=REQUEST_SECONDS_MAX))
