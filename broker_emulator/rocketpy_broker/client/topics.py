"""Administration of topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rocketpy_broker.client.connection import BrokerConnection, only
from rocketpy_broker.client.errors import RefusedError
from rocketpy_proto.model import MESSAGE_TYPE
from rocketpy_proto.model.configs import SINGLE_TAG
from rocketpy_proto.rocketpy.v1 import admin_pb2

QUEUES_DEFAULT = 8
# Topics of one call.
PAGE_COUNT = 1_000


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic with all its settings; `perm` is 4 for reading, 2 for writing, 6 for both."""

    topic: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    order: bool = False
    topic_filter_type: str = SINGLE_TAG
    topic_sys_flag: int = 0
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def message_type(self) -> str | None:
        """The message type that the topic accepts; None for any."""
        return self.attributes.get(MESSAGE_TYPE)


def list_topics(connection: BrokerConnection, names: Sequence[str] = ()) -> list[Topic]:
    """Returns the named topics, or all topics, sorted by name.

    Raises UnreachableError, CallFailedError, RefusedError.
    """
    if not names:
        return list(each_topic(connection))
    answer = connection.ask(connection.admin.ListTopics, admin_pb2.ListTopicsRequest(topics=names))
    return [_topic(config) for config in answer.configs]


def each_topic(connection: BrokerConnection, *, include_system: bool = False) -> Iterator[Topic]:
    """Yields all topics, sorted by name; requests them page by page.

    Raises UnreachableError, CallFailedError, RefusedError.
    """
    request = admin_pb2.ListTopicsRequest(include_system=include_system, count_max=PAGE_COUNT)
    entries = connection.entries(connection.admin.ListTopics, request, "configs", "topic")
    return map(_topic, entries)


def topic_queues(connection: BrokerConnection, topic: str) -> Iterator[admin_pb2.TopicQueueStatus]:
    """Yields the read queues of a topic. Raises UnreachableError, CallFailedError, RefusedError."""

    def next_place(page: admin_pb2.ListTopicQueuesResponse) -> int | None:
        if not page.has_more:
            return None
        return page.queues[-1].queue_id + 1 if page.queues else 0

    request = admin_pb2.ListTopicQueuesRequest(topic=topic)
    listing = connection.admin.ListTopicQueues
    for page in connection.pages(listing, request, next_place, "queue_id"):
        yield from page.queues


def get_topic(connection: BrokerConnection, topic: str) -> Topic:
    """Returns the topic with this name. Raises UnreachableError, CallFailedError, RefusedError."""
    return only(list_topics(connection, [topic]), topic)


def _topic(config: admin_pb2.TopicConfig) -> Topic:
    return Topic(
        config.topic,
        config.read_queue_nums,
        config.write_queue_nums,
        config.perm,
        config.order,
        config.topic_filter_type,
        config.topic_sys_flag,
        dict(sorted(config.attributes.items())),
    )


def topic_exists(connection: BrokerConnection, topic: str) -> bool:
    """True if the topic exists. Raises UnreachableError, CallFailedError, RefusedError."""
    try:
        get_topic(connection, topic)
    except RefusedError as error:
        if error.is_missing_topic:
            return False
        raise
    return True


def settings(
    topic: str,
    attributes: Mapping[str, str] | None = None,
    removed_attributes: Sequence[str] = (),
    **given: Any,
) -> admin_pb2.TopicConfig:
    """Returns settings of a topic; None keeps a value, or is the default of a new topic.

    `attributes` are set and `removed_attributes` are removed; all other attributes stay. `given`
    are other fields of TopicConfig.
    """
    changes = {f"+{name}": value for name, value in (attributes or {}).items()}
    changes |= {f"-{name}": "" for name in removed_attributes}
    return admin_pb2.TopicConfig(topic=topic, attributes=changes, **given)


def create_topic(
    connection: BrokerConnection, topic: str, queues: int = QUEUES_DEFAULT, **given: Any
) -> None:
    """Creates `topic` with `queues` to read and write; `given` are arguments of `settings`.

    Raises UnreachableError, CallFailedError, RefusedError, also for an existing topic.
    """
    config = settings(topic, read_queue_nums=queues, write_queue_nums=queues, **given)
    _update(connection, config, create_only=True)


def update_topic(connection: BrokerConnection, config: admin_pb2.TopicConfig) -> Topic:
    """Changes a topic and returns it.

    Raises UnreachableError, CallFailedError, RefusedError, also for a missing topic.
    """
    get_topic(connection, config.topic)
    return set_topic(connection, config)


def set_topic(connection: BrokerConnection, config: admin_pb2.TopicConfig) -> Topic:
    """Changes or creates a topic and returns it.

    Raises UnreachableError, CallFailedError, RefusedError.
    """
    _update(connection, config, create_only=False)
    return get_topic(connection, config.topic)


def _update(
    connection: BrokerConnection, config: admin_pb2.TopicConfig, *, create_only: bool
) -> None:
    request = admin_pb2.UpdateTopicRequest(config=config, create_only=create_only)
    connection.ask(connection.admin.UpdateTopic, request)


def delete_topic(connection: BrokerConnection, topic: str) -> None:
    """Deletes `topic`, its messages and all progress in it.

    Raises UnreachableError, CallFailedError, RefusedError.
    """
    connection.ask(connection.admin.DeleteTopic, admin_pb2.DeleteTopicRequest(topic=topic))


def empty_topic(connection: BrokerConnection, topic: str) -> None:
    """Removes the messages that `topic` has now.

    Raises UnreachableError, CallFailedError, RefusedError.
    """
    connection.ask(connection.admin.EmptyTopic, admin_pb2.EmptyTopicRequest(topic=topic))
