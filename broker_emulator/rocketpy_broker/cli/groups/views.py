"""Columns of consumer groups, and the tables of one group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from rocketpy_broker.cli import output
from rocketpy_broker.cli.output import Column
from rocketpy_broker.client.group_admin import GroupDetails
from rocketpy_broker.runtime.time_format import time_of_ms
from rocketpy_proto.rocketpy.v1 import groups_pb2

NOT_COMMITTED = "none"
Connections = groups_pb2.ConnectionsResponse


def _name(kind: Any, value: int) -> str | None:
    """Returns RocketMQ's name of a value; None for a group without members."""
    return kind.Name(value) if value else None


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
    Column("", "members", "member_count"),
    Column("", "type", lambda each: _name(groups_pb2.ConsumeType, each.consume_type)),
    Column("", "model", lambda each: _name(groups_pb2.MessageModel, each.message_model)),
    Column("", "topics", _listed),
    Column("", "lag", "lag"),
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
    details: GroupDetails,
    members: Connections,
    topics: Sequence[groups_pb2.GroupTopic],
    *,
    as_json: bool,
) -> None:
    """Prints a group with its members and topics, as tables with an empty line between them."""
    data, lag = members.consumer_data, sum(each.lag for each in topics)
    subscriptions = sorted(data.subscriptions, key=lambda each: each.topic)
    consumed = {
        "consumeType": _name(groups_pb2.ConsumeType, data.consume_type),
        "messageModel": _name(groups_pb2.MessageModel, data.message_model),
        "consumeFromWhere": _name(groups_pb2.ConsumeFromWhere, data.consume_from_where),
    }
    lists: list[tuple[str, output.Columns, Sequence[object]]] = [
        ("members", MEMBERS, members.consumers),
        ("subscriptions", SUBSCRIPTIONS, subscriptions),
        ("topics", GROUP_TOPICS, topics),
    ]
    if as_json:
        output.print_json(
            {
                "consumerGroup": details.group,
                "settings": None if details.settings is None else dict(details.settings),
                "attributes": dict(details.attributes),
                **consumed,
                **{
                    key: [output.json_of(columns, each) for each in entries]
                    for key, columns, entries in lists
                },
                "lag": lag,
                "retryMessages": details.retry_message_count,
                "deadLetters": details.dead_letter_count,
            }
        )
        return
    fields: list[list[output.Cell]] = [
        ["consumer group", details.group],
        *_setting_fields(details),
        ["consume type", consumed["consumeType"] or output.ABSENT],
        ["message model", consumed["messageModel"] or output.ABSENT],
        ["consume from where", consumed["consumeFromWhere"] or output.ABSENT],
        ["members", details.member_count],
        ["lag", lag],
        ["retry messages", details.retry_message_count],
        ["dead letters", details.dead_letter_count],
    ]
    output.print_table(("field", "value"), fields)
    for _, columns, entries in lists:
        if entries:
            typer.echo()
            output.print_entries(columns, entries)


def show_settings(details: GroupDetails, *, as_json: bool) -> None:
    """Prints the settings of a group that was created or changed."""
    if as_json:
        settings = dict(details.settings or {})
        output.print_json({"consumerGroup": details.group, "settings": settings})
        return
    fields: list[list[output.Cell]] = [["consumer group", details.group]]
    output.print_table(("field", "value"), [*fields, *_setting_fields(details)])


def _setting_fields(details: GroupDetails) -> list[list[output.Cell]]:
    if details.settings is None:
        return [["settings", "none: it is not configured, and has progress only"]]
    shown: list[list[output.Cell]] = [
        [name, ("yes" if value else "no") if isinstance(value, bool) else value]
        for name, value in details.settings.items()
    ]
    return shown + [[f"attribute {name}", value] for name, value in details.attributes.items()]
