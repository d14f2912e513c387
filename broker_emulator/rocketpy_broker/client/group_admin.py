"""Administration of consumer groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.contract_json import camel
from rocketpy_broker.runtime.time_format import ms_of_time
from rocketpy_proto.rocketpy.v1 import groups_pb2

# The broker may have to search each queue by time, or remove a topic's files.
CHANGE_SECONDS_MAX = 120.0
Group = groups_pb2.GetGroupResponse
NAMED_TARGETS = ("earliest", "latest")
FIELDS = tuple(
    each.name
    for each in groups_pb2.GroupConfig.DESCRIPTOR.fields
    if each.name not in {"consumer_group", "attributes"}
)
BOOL_FIELDS = frozenset(
    each.name
    for each in groups_pb2.GroupConfig.DESCRIPTOR.fields
    if each.type == FieldDescriptor.TYPE_BOOL
)


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

    @classmethod
    def of(cls, group: str, answer: Group) -> GroupDetails:
        """Returns the details that an answer has."""
        config = answer.config if answer.HasField("config") else None
        return cls(
            group,
            None if config is None else {camel(name): getattr(config, name) for name in FIELDS},
            dict(sorted(answer.config.attributes.items())),
            answer.member_count,
            answer.retry_message_count,
            answer.dead_letter_count,
        )


@dataclass(frozen=True, slots=True)
class ResetQueue:
    """The group's next offset in a queue before a reset (None: not committed) and after it."""

    queue_id: int
    old_offset: int | None
    new_offset: int


def list_groups(
    connection: BrokerConnection, *, include_system: bool = False
) -> Iterator[groups_pb2.GroupSummary]:
    """Returns all groups, sorted by name.

    Raises UnreachableError, CallFailedError, RefusedError.
    """
    request = groups_pb2.ListGroupsRequest(include_system=include_system)
    listing = connection.groups.ListGroups
    return connection.entries(listing, request, "groups", "consumer_group", CHANGE_SECONDS_MAX)


def get_group(connection: BrokerConnection, group: str) -> Group:
    """Returns a group.

    Raises UnreachableError, CallFailedError, RefusedError also for a missing group.
    """
    request = groups_pb2.GetGroupRequest(consumer_group=group)
    answer: Group = connection.ask(connection.groups.GetGroup, request)
    return answer


def group_topics(connection: BrokerConnection, group: str) -> Iterator[groups_pb2.GroupTopic]:
    """Returns a group's topics, sorted by name.

    Raises UnreachableError, CallFailedError, RefusedError.
    """
    request = groups_pb2.ListGroupTopicsRequest(consumer_group=group)
    listing = connection.groups.ListGroupTopics
    return connection.entries(listing, request, "topics", "topic", CHANGE_SECONDS_MAX)


def create_group(connection: BrokerConnection, group: str, settings: Mapping[str, Any]) -> Group:
    """Creates a group; `settings` are fields of GroupConfig.

    Raises UnreachableError, CallFailedError, RefusedError also for an existing group.
    """
    return _update(connection, group, settings, create_only=True)


def update_group(connection: BrokerConnection, group: str, settings: Mapping[str, Any]) -> Group:
    """Changes a group and returns it.

    Raises UnreachableError, CallFailedError, RefusedError also for a missing group.
    """
    get_group(connection, group)
    return set_group(connection, group, settings)


def set_group(connection: BrokerConnection, group: str, settings: Mapping[str, Any]) -> Group:
    """Changes or creates a group and returns it.

    Raises UnreachableError, CallFailedError, RefusedError.
    """
    return _update(connection, group, settings, create_only=False)


def _update(
    connection: BrokerConnection, group: str, settings: Mapping[str, Any], *, create_only: bool
) -> Group:
    config = groups_pb2.GroupConfig(consumer_group=group, **settings)
    request = groups_pb2.UpdateGroupRequest(config=config, create_only=create_only)
    connection.ask(connection.groups.UpdateGroup, request)
    return get_group(connection, group)


def delete_group(
    connection: BrokerConnection, group: str, *, keep_topics: bool = False, force: bool = False
) -> list[str]:
    """Deletes a group with its progress and its own topics; returns the deleted topics.

    Raises UnreachableError, CallFailedError, RefusedError. Without `force` a group with members is
    refused.
    """
    request = groups_pb2.DeleteGroupRequest(
        consumer_group=group, keep_topics=keep_topics, force=force
    )
    return list(connection.ask(connection.groups.DeleteGroup, request, CHANGE_SECONDS_MAX).topics)


def reset_offsets(
    connection: BrokerConnection,
    group: str,
    topic: str,
    to: str | datetime | int,
    **given: Any,
) -> list[ResetQueue]:
    """Resets a group's offsets in a topic; returns each queue's old and new offset.

    `to` is one of NAMED_TARGETS, a time for the first message stored then or later, or an offset.
    `given` are other fields of ResetOffsetsRequest.
    Raises UnreachableError, CallFailedError, RefusedError. Without `force` a group with members is
    refused.
    """
    request = groups_pb2.ResetOffsetsRequest(consumer_group=group, topic=topic, **given)
    if isinstance(to, str):
        setattr(request, to, True)
    elif isinstance(to, datetime):
        request.timestamp_ms = ms_of_time(to)
    else:
        request.offset = to
    answer = connection.ask(connection.groups.ResetOffsets, request, CHANGE_SECONDS_MAX)
    return [
        ResetQueue(each.queue_id, None if each.old_offset < 0 else each.old_offset, each.new_offset)
        for each in answer.offsets
    ]


def list_clients(connection: BrokerConnection) -> Iterator[groups_pb2.RegisteredClient]:
    """Returns the clients of all groups, sorted by client id.

    Raises UnreachableError, CallFailedError, RefusedError.
    """
    request = groups_pb2.ListClientsRequest()
    return connection.entries(connection.groups.ListClients, request, "clients", "client_id")
