"""Administration of topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rocketpy_broker.client.connection import (
    REQUEST_SECONDS_MAX,
    BrokerConnection,
    last_name,
    only,
    pages,
)
from rocketpy_broker.client.errors import RefusedError
from rocketpy_proto.rocketpy.v1 import admin_pb2

QUEUES_DEFAULT = 8
# Topics of one call.
PAGE_COUNT = 1_000
MESSAGE_TYPE = "message.type"
# Prefix of the groups' retry topics.
RETRY_PREFIX = "%RETRY%"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic with all its settings; `perm` is 4 for reading, 2 for writing, 6 for both."""

    topic: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    order: bool = False
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def message_type(self) -> str | None:
        """The message type that the topic accepts; None for any."""
        return self.attributes.get(MESSAGE_TYPE)


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Settings of a topic; None keeps a value, or is the default of a new topic.

    `attributes` are set and `removed_attributes` are removed; all other attributes stay.
    """

    read_queue_nums: int | None = None
    write_queue_nums: int | None = None
    perm: int | None = None
    order: bool | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    removed_attributes: Sequence[str] = ()


def list_topics(
    connection: BrokerConnection, names: Sequence[str] = (), *, include_system: bool = False
) -> list[Topic]:
    """Returns the named topics, or all, by name. Raises UnreachableError, RefusedError."""
    if names:
        page = _page(connection, admin_pb2.ListTopicsRequest(topics=names))
        return [_topic(config) for config in page.configs]
    return list(each_topic(connection, include_system=include_system))


def each_topic(connection: BrokerConnection, *, include_system: bool = False) -> Iterator[Topic]:
    """Yields all topics by name, a page at a time. Raises UnreachableError, RefusedError."""

    def page_after(after: str) -> admin_pb2.ListTopicsResponse:
        request = admin_pb2.ListTopicsRequest(
            include_system=include_system, after=after, count_max=PAGE_COUNT
        )
        return _page(connection, request)

    def next_place(page: admin_pb2.ListTopicsResponse) -> str | None:
        return last_name([config.topic for config in page.configs], has_more=page.has_more)

    for page in pages(page_after, "", next_place):
        yield from map(_topic, page.configs)


def _page(
    connection: BrokerConnection, request: admin_pb2.ListTopicsRequest
) -> admin_pb2.ListTopicsResponse:
    response: admin_pb2.ListTopicsResponse = connection.ask(
        lambda: connection.admin.ListTopics(request, timeout=REQUEST_SECONDS_MAX)
    )
    return response


@dataclass(frozen=True, slots=True)
class TopicQueue:
    """A queue with the store time of its last message in ms since 1970, or None."""

    queue_id: int
    min_offset: int
    max_offset: int
    last_store_ms: int | None

    @property
    def message_count(self) -> int:
        """The number of messages between the offsets."""
        return self.max_offset - self.min_offset


def topic_queues(connection: BrokerConnection, topic: str) -> list[TopicQueue]:
    """Returns the read queues of a topic. Raises UnreachableError, RefusedError."""
    found: list[TopicQueue] = []

    def page_after(first: int) -> admin_pb2.ListTopicQueuesResponse:
        request = admin_pb2.ListTopicQueuesRequest(topic=topic, queue_id=first)
        return _queue_page(connection, request)

    def next_place(page: admin_pb2.ListTopicQueuesResponse) -> int | None:
        return len(found) if page.has_more else None

    for page in pages(page_after, 0, next_place):
        for queue in page.queues:
            stored_ms = queue.last_store_timestamp_ms
            last_ms = None if stored_ms < 0 else stored_ms
            found.append(TopicQueue(queue.queue_id, queue.min_offset, queue.max_offset, last_ms))
    return found


def _queue_page(
    connection: BrokerConnection, request: admin_pb2.ListTopicQueuesRequest
) -> admin_pb2.ListTopicQueuesResponse:
    response: admin_pb2.ListTopicQueuesResponse = connection.ask(
        lambda: connection.admin.ListTopicQueues(request, timeout=REQUEST_SECONDS_MAX)
    )
    return response


def get_topic(connection: BrokerConnection, topic: str) -> Topic:
    """Returns the topic with this name. Raises UnreachableError, RefusedError."""
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
    """True if the topic exists. Raises UnreachableError, RefusedError."""
    try:
        get_topic(connection, topic)
    except RefusedError as error:
        if error.is_missing_topic:
            return False
        raise
    return True


def create_topic(
    connection: BrokerConnection, topic: str, queues: int, settings: TopicSettings | None = None
) -> None:
    """Creates `topic` with `queues` to read and write, unless `settings` has other numbers.

    Raises UnreachableError, RefusedError, also for an existing topic.
    """
    settings = settings or TopicSettings()
    if settings.read_queue_nums is None:
        settings = replace(settings, read_queue_nums=queues)
    if settings.write_queue_nums is None:
        settings = replace(settings, write_queue_nums=queues)
    _update(connection, topic, settings, create_only=True)


def update_topic(connection: BrokerConnection, topic: str, settings: TopicSettings) -> Topic:
    """Changes `topic` and returns it.

    Raises UnreachableError, RefusedError, also for a missing topic.
    """
    get_topic(connection, topic)
    _update(connection, topic, settings, create_only=False)
    return get_topic(connection, topic)


def set_topic(connection: BrokerConnection, topic: str, settings: TopicSettings) -> Topic:
    """Changes or creates `topic` and returns it. Raises UnreachableError, RefusedError."""
    _update(connection, topic, settings, create_only=False)
    return get_topic(connection, topic)


def _update(
    connection: BrokerConnection, topic: str, settings: TopicSettings, *, create_only: bool
) -> None:
    changes = {f"+{name}": value for name, value in settings.attributes.items()}
    config = admin_pb2.TopicConfig(
        topic=topic,
        read_queue_nums=settings.read_queue_nums,
        write_queue_nums=settings.write_queue_nums,
        perm=settings.perm,
        attributes=changes | {f"-{name}": "" for name in settings.removed_attributes},
    )
    if settings.order is not None:
        config.order = settings.order
    request = admin_pb2.UpdateTopicRequest(config=config, create_only=create_only)
    connection.ask(lambda: connection.admin.UpdateTopic(request, timeout=REQUEST_SECONDS_MAX))


def delete_topic(connection: BrokerConnection, topic: str) -> None:
    """Deletes `topic`, its messages and all progress in it.

    Raises UnreachableError, RefusedError.
    """
    request = admin_pb2.DeleteTopicRequest(topic=topic)
    connection.ask(lambda: connection.admin.DeleteTopic(request, timeout=REQUEST_SECONDS_MAX))
