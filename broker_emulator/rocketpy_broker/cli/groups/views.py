"""Columns of consumer groups, and the tables of one group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from rocketpy_broker.cli import output
from rocketpy_broker.cli.output import Column
from rocketpy_broker.client.group_admin import Group
from rocketpy_broker.contract_json import json_of
from rocketpy_broker.runtime.time_format import time_of_ms
from rocketpy_proto.rocketpy.v1 import groups_pb2

NOT_COMMITTED = "none"
Connections = groups_pb2.ConnectionsResponse


def _name(kind: Any, value: int) -> str | None:
    """Returns RocketMQ's name of a value; None for a group without members."""
    return kind.Name(value) if value else None


def _seen(count: int) -> int | None:
    """Returns a count; None for one that the user may not see."""
    return None if count < 0 else count


def _listed(summary: groups_pb2.GroupSummary) -> str:
    count = summary.topic_count
    more = f", … ({count})" if count > len(summary.topics) else ""
    return ", ".join(summary.topics) + more


def offset_or_none(offset: int | None) -> output.Cell:
    """Returns the cell of a committed offset."""
    return NOT_COMMITTED if offset is None else offset


def last_heartbeat(member: groups_pb2.Connection | groups_pb2.Registration) -> str:
    """Returns the time of a member's last heartbeat."""
    return time_of_ms(member.last_update_ms)


GROUPS = (
    Column("", "consumer group", "consumer_group"),
    Column("", "members", lambda each: _seen(each.member_count)),
    Column("", "type", lambda each: _name(groups_pb2.ConsumeType, each.consume_type)),
    Column("", "model", lambda each: _name(groups_pb2.MessageModel, each.message_model)),
    Column("", "topics", _listed),
    Column("", "lag", lambda each: _seen(each.lag)),
)
MEMBERS = (
    Column("", "client", "client_id"),
    Column("", "address", "address"),
    Column("", "last heartbeat", last_heartbeat),
)
SUBSCRIPTIONS = (
    Column("", "subscribed topic", "topic"),
    Column("", "type", "expression_type"),
    Column("", "expression", "expression"),
)
GROUP_TOPICS = (
    Column("", "topic", "topic"),
    Column("", "queues", "queue_count"),
    Column("", "committed queues", "committed_queue_count"),
    Column("", "lag", "lag"),
)


def show_group(
    group: str,
    found: Group,
    clients: Connections,
    topics: Sequence[groups_pb2.GroupTopic],
    *,
    as_json: bool,
) -> None:
    """Prints a group with its members and topics, as tables with an empty line between them."""
    lag = sum(each.lag for each in topics)
    if as_json:
        output.print_json(
            {
                "consumerGroup": group,
                **json_of(found),
                "lag": lag,
                "topics": [json_of(each) for each in topics],
                "clients": json_of(clients),
            }
        )
        return
    data = clients.consumer_data
    consumed = {
        "consume type": _name(groups_pb2.ConsumeType, data.consume_type),
        "message model": _name(groups_pb2.MessageModel, data.message_model),
        "consume from where": _name(groups_pb2.ConsumeFromWhere, data.consume_from_where),
    }
    fields: list[Sequence[output.Cell]] = [
        ["consumer group", group],
        *_setting_fields(found),
        *((name, value or output.ABSENT) for name, value in consumed.items()),
        ["members", found.member_count],
        ["lag", lag],
        ["retry messages", found.retry_message_count],
        ["dead letters", found.dead_letter_count],
    ]
    output.print_table(("field", "value"), fields)
    subscriptions = sorted(data.subscriptions, key=lambda each: each.topic)
    lists: list[tuple[output.Columns, Sequence[object]]] = [
        (MEMBERS, clients.consumers),
        (SUBSCRIPTIONS, subscriptions),
        (GROUP_TOPICS, topics),
    ]
    for columns, entries in lists:
        if entries:
            typer.echo()
            output.print_entries(columns, entries)


def show_settings(group: str, found: Group, *, as_json: bool) -> None:
    """Prints the settings of a group that was created or changed."""
    if as_json:
        output.print_json(json_of(found.config))
        return
    fields: list[list[output.Cell]] = [["consumer group", group]]
    output.print_table(("field", "value"), [*fields, *_setting_fields(found)])


def _setting_fields(found: Group) -> list[list[output.Cell]]:
    if not found.HasField("config"):
        return [["settings", "none: the group is not configured; it only has committed offsets"]]
    settings = json_of(found.config)
    attributes: Any = settings.pop("attributes")
    del settings["consumerGroup"]
    shown: list[list[output.Cell]] = [
        [name, ("yes" if value else "no") if isinstance(value, bool) else str(value)]
        for name, value in settings.items()
    ]
    return shown + [[f"attribute {name}", value] for name, value in attributes.items()]
