"""Administration of consumer groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any

from rocketpy_broker.client.connection import (
    REQUEST_SECONDS_MAX,
    BrokerConnection,
    last_name,
    pages,
)
from rocketpy_broker.runtime.time_format import ms_of_time
from rocketpy_proto.rocketpy.v1 import groups_pb2

# The broker may have to search each queue by time, or remove a topic's files.
CHANGE_SECONDS_MAX = 120.0
FIELDS = tuple(
    each.name
    for each in groups_pb2.GroupConfig.DESCRIPTOR.fields
    if each.name not in {"consumer_group", "attributes"}
)


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A consumer group with its members, topics and lag.

    `consume_type` and `message_model` are RocketMQ's names, None without members. `topics` are the
    first of `topic_count` topics, by name. `is_configured` is False for a group that has only
    progress.
    """

    group: str
    is_configured: bool
    member_count: int
    consume_type: str | None
    message_model: str | None
    topic_count: int
    topics: Sequence[str]
    lag: int


@dataclass(frozen=True, slots=True)
class GroupDetails:
    """A consumer group's settings and counts.

    `settings` have RocketMQ's field names, and are None if the group is not configured.
    `retry_message_count` counts messages that the group still has to consume again.
    """

    group: str
    settings: Mapping[str, bool | int] | None
    attributes: Mapping[str, str]
    member_count: int
    retry_message_count: int
    dead_letter_count: int


@dataclass(frozen=True, slots=True)
class GroupTopic:
    """A topic in which a group has progress, or to which the group subscribes."""

    topic: str
    is_subscribed: bool
    queue_count: int
    committed_queue_count: int
    lag: int


@dataclass(frozen=True, slots=True)
class Membership:
    """A client in a group, with address and time (ms since 1970) of its last heartbeat."""

    group: str
    client_id: str
    is_producer: bool
    address: str
    last_update_ms: int


class ResetTo(str, Enum):
    """A named target of a reset."""

    EARLIEST = "earliest"
    LATEST = "latest"


# By name, to the first message stored at a time or later, or to an offset.
ResetTarget = ResetTo | datetime | int


@dataclass(frozen=True, slots=True)
class ResetQueue:
    """The group's next offset in a queue before a reset (None: not committed) and after it."""

    queue_id: int
    old_offset: int | None
    new_offset: int


@dataclass(frozen=True, slots=True)
class Reset:
    """A reset of offsets; without `queue_id` of all queues. `force`: also with members online."""

    group: str
    topic: str
    to: ResetTarget
    queue_id: int | None = None
    force: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings of a group by the names of SubscriptionGroupConfig in snake case."""

    fields: Mapping[str, bool | int] = field(default_factory=dict)


def list_groups(
    connection: BrokerConnection, *, include_system: bool = False
) -> Iterator[GroupSummary]:
    """Yields all groups by name. Raises UnreachableError, RefusedError."""

    def page_after(after: str) -> groups_pb2.ListGroupsResponse:
        request = groups_pb2.ListGroupsRequest(include_system=include_system, after=after)
        return _group_page(connection, request)

    def next_place(page: groups_pb2.ListGroupsResponse) -> str | None:
        return last_name([each.consumer_group for each in page.groups], has_more=page.has_more)

    for page in pages(page_after, "", next_place):
        yield from map(_summary, page.groups)


def get_group(connection: BrokerConnection, group: str) -> GroupDetails:
    """Returns a group. Raises UnreachableError, RefusedError also for a missing group."""
    request = groups_pb2.GetGroupRequest(consumer_group=group)
    response: groups_pb2.GetGroupResponse = connection.ask(
        lambda: connection.groups.GetGroup(request, timeout=REQUEST_SECONDS_MAX)
    )
    config = response.config if response.HasField("config") else None
    return GroupDetails(
        group,
        None if config is None else _settings(config),
        {} if config is None else dict(sorted(config.attributes.items())),
        response.member_count,
        response.retry_message_count,
        response.dead_letter_count,
    )


def group_topics(connection: BrokerConnection, group: str) -> Iterator[GroupTopic]:
    """Yields a group's topics by name. Raises UnreachableError, RefusedError."""

    def page_after(after: str) -> groups_pb2.ListGroupTopicsResponse:
        request = groups_pb2.ListGroupTopicsRequest(consumer_group=group, after=after)
        return _topic_page(connection, request)

    def next_place(page: groups_pb2.ListGroupTopicsResponse) -> str | None:
        return last_name([topic.topic for topic in page.topics], has_more=page.has_more)

    for page in pages(page_after, "", next_place):
        for topic in page.topics:
            yield GroupTopic(
                topic.topic,
                topic.is_subscribed,
                topic.queue_count,
                topic.committed_queue_count,
                topic.lag,
            )


def create_group(connection: BrokerConnection, group: str, settings: GroupSettings) -> GroupDetails:
    """Creates a group. Raises UnreachableError, RefusedError also for an existing group."""
    return _update(connection, group, settings, create_only=True)


def update_group(connection: BrokerConnection, group: str, settings: GroupSettings) -> GroupDetails:
    """Changes a group and returns it.

    Raises UnreachableError, RefusedError also for a missing group.
    """
    get_group(connection, group)
    return _update(connection, group, settings, create_only=False)


def set_group(connection: BrokerConnection, group: str, settings: GroupSettings) -> GroupDetails:
    """Changes or creates a group and returns it. Raises UnreachableError, RefusedError."""
    return _update(connection, group, settings, create_only=False)


def delete_group(
    connection: BrokerConnection, group: str, *, keep_topics: bool = False, force: bool = False
) -> list[str]:
    """Deletes a group with its progress and its own topics; returns the deleted topics.

    Raises UnreachableError, RefusedError also while it has members, unless `force`.
    """
    request = groups_pb2.DeleteGroupRequest(
        consumer_group=group, keep_topics=keep_topics, force=force
    )
    response: groups_pb2.DeleteGroupResponse = connection.ask(
        lambda: connection.groups.DeleteGroup(request, timeout=CHANGE_SECONDS_MAX)
    )
    return list(response.topics)


def reset_offsets(connection: BrokerConnection, reset: Reset) -> list[ResetQueue]:
    """Resets a group's offsets in a topic; returns each queue's old and new offset.

    Raises UnreachableError, RefusedError also while the group has members, unless `force`.
    """
    request = groups_pb2.ResetOffsetsRequest(
        consumer_group=reset.group, topic=reset.topic, force=reset.force, dry_run=reset.dry_run
    )
    if reset.queue_id is not None:
        request.queue_id = reset.queue_id
    if isinstance(reset.to, ResetTo):
        setattr(request, reset.to.value, True)
    elif isinstance(reset.to, datetime):
        request.timestamp_ms = ms_of_time(reset.to)
    else:
        request.offset = reset.to
    response: groups_pb2.ResetOffsetsResponse = connection.ask(
        lambda: connection.groups.ResetOffsets(request, timeout=CHANGE_SECONDS_MAX)
    )
    return [
        ResetQueue(each.queue_id, None if each.old_offset < 0 else each.old_offset, each.new_offset)
        for each in response.offsets
    ]


def list_memberships(connection: BrokerConnection) -> Iterator[Membership]:
    """Yields all clients of all groups, by client id. Raises UnreachableError, RefusedError."""

    def page_after(after: str) -> groups_pb2.ListClientsResponse:
        return _client_page(connection, groups_pb2.ListClientsRequest(after=after))

    def next_place(page: groups_pb2.ListClientsResponse) -> str | None:
        return last_name([client.client_id for client in page.clients], has_more=page.has_more)

    for page in pages(page_after, "", next_place):
        for client in page.clients:
            for each in client.registrations:
                yield Membership(
                    each.group,
                    client.client_id,
                    each.is_producer,
                    each.address,
                    each.last_update_ms,
                )


def _group_page(
    connection: BrokerConnection, request: groups_pb2.ListGroupsRequest
) -> groups_pb2.ListGroupsResponse:
    response: groups_pb2.ListGroupsResponse = connection.ask(
        lambda: connection.groups.ListGroups(request, timeout=CHANGE_SECONDS_MAX)
    )
    return response


def _topic_page(
    connection: BrokerConnection, request: groups_pb2.ListGroupTopicsRequest
) -> groups_pb2.ListGroupTopicsResponse:
    response: groups_pb2.ListGroupTopicsResponse = connection.ask(
        lambda: connection.groups.ListGroupTopics(request, timeout=CHANGE_SECONDS_MAX)
    )
    return response


def _client_page(
    connection: BrokerConnection, request: groups_pb2.ListClientsRequest
) -> groups_pb2.ListClientsResponse:
    response: groups_pb2.ListClientsResponse = connection.ask(
        lambda: connection.groups.ListClients(request, timeout=REQUEST_SECONDS_MAX)
    )
    return response


def _update(
    connection: BrokerConnection, group: str, settings: GroupSettings, *, create_only: bool
) -> GroupDetails:
    given: dict[str, Any] = dict(settings.fields)
    request = groups_pb2.UpdateGroupRequest(
        config=groups_pb2.GroupConfig(consumer_group=group, **given), create_only=create_only
    )
    connection.ask(lambda: connection.groups.UpdateGroup(request, timeout=REQUEST_SECONDS_MAX))
    return get_group(connection, group)


def _summary(summary: groups_pb2.GroupSummary) -> GroupSummary:
    has_members = summary.member_count > 0
    return GroupSummary(
        summary.consumer_group,
        summary.is_configured,
        summary.member_count,
        groups_pb2.ConsumeType.Name(summary.consume_type) if has_members else None,
        groups_pb2.MessageModel.Name(summary.message_model) if has_members else None,
        summary.topic_count,
        list(summary.topics),
        summary.lag,
    )


def _settings(config: groups_pb2.GroupConfig) -> dict[str, bool | int]:
    return {camel(name): getattr(config, name) for name in FIELDS}


def camel(name: str) -> str:
    """Returns a field's name in camel case, as RocketMQ writes it."""
    first, *rest = name.split("_")
    return first + "".join(map(str.title, rest))
