"""Topics of a broker: list, create, change, delete. Holds no state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rocketpy_broker.client.connection import REQUEST_SECONDS_MAX, BrokerConnection
from rocketpy_broker.client.errors import RefusedError
from rocketpy_proto.rocketpy.v1 import admin_pb2

QUEUES_DEFAULT = 8
MESSAGE_TYPE = "message.type"
# Of the topics that consumer groups have for messages to be consumed again.
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
        """The type of message that the topic takes; None for any."""
        return self.attributes.get(MESSAGE_TYPE)


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What to set of a topic; None is left as it is, or is the default of a new topic.

    `attributes` are set, `removed_attributes` removed; those that neither names stay.
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
    """The named topics, or all, by name. Raises UnreachableError, RefusedError."""
    request = admin_pb2.ListTopicsRequest(topics=names, include_system=include_system)
    response: admin_pb2.ListTopicsResponse = connection.ask(
        lambda: connection.admin.ListTopics(request, timeout=REQUEST_SECONDS_MAX)
    )
    return [_topic(config) for config in response.configs]


def get_topic(connection: BrokerConnection, topic: str) -> Topic:
    """The topic of that name. Raises UnreachableError, RefusedError."""
    [found] = list_topics(connection, [topic])
    return found


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
    """Whether there is such a topic. Raises UnreachableError, RefusedError."""
    try:
        list_topics(connection, [topic])
    except RefusedError as error:
        if error.is_missing_topic:
            return False
        raise
    return True


def create_topic(
    connection: BrokerConnection, topic: str, queues: int, settings: TopicSettings | None = None
) -> None:
    """Create `topic`. Raises UnreachableError, RefusedError, also for one that exists.

    `settings` may say something else than so many `queues`, to read and to write.
    """
    settings = settings or TopicSettings()
    if settings.read_queue_nums is None:
        settings = replace(settings, read_queue_nums=queues)
    if settings.write_queue_nums is None:
        settings = replace(settings, write_queue_nums=queues)
    _update(connection, topic, settings, create_only=True)


def update_topic(connection: BrokerConnection, topic: str, settings: TopicSettings) -> Topic:
    """Change `topic`; return what it is now.

    Raises UnreachableError, RefusedError, also for one that is not there.
    """
    get_topic(connection, topic)
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
    """Delete `topic`, its messages and all progress in it.

    Raises UnreachableError, RefusedError.
    """
    request = admin_pb2.DeleteTopicRequest(topic=topic)
    connection.ask(lambda: connection.admin.DeleteTopic(request, timeout=REQUEST_SECONDS_MAX))
