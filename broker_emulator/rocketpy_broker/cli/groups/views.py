"""Consumer groups as JSON objects and as tables."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from rocketpy_broker.cli import output
from rocketpy_broker.client.group_admin import GroupDetails, GroupSummary, GroupTopic
from rocketpy_broker.client.groups import Connections
from rocketpy_broker.runtime.time_format import time_of_ms

GroupTopics = Sequence[GroupTopic]


def summary_json(summary: GroupSummary) -> dict[str, object]:
    """Returns a group of a list as JSON."""
    return {
        "consumerGroup": summary.group,
        "isConfigured": summary.is_configured,
        "members": summary.member_count,
        "consumeType": summary.consume_type,
        "messageModel": summary.message_model,
        "topicCount": summary.topic_count,
        "topics": list(summary.topics),
        "lag": summary.lag,
    }


def details_json(
    details: GroupDetails, members: Connections, topics: GroupTopics
) -> dict[str, object]:
    """Returns a group with its members and topics as JSON."""
    return {
        "consumerGroup": details.group,
        "settings": None if details.settings is None else dict(details.settings),
        "attributes": dict(details.attributes),
        "consumeType": members.consume_type,
        "messageModel": members.message_model,
        "consumeFromWhere": members.consume_from_where,
        "members": [
            {
                "clientId": each.client_id,
                "address": each.address,
                "lastUpdateTimestamp": time_of_ms(each.last_update_ms),
            }
            for each in members.consumers
        ],
        "subscriptions": [
            {
                "topic": each.topic,
                "expressionType": each.expression_type,
                "expression": each.expression,
                "subVersion": each.sub_version,
            }
            for each in members.subscriptions
        ],
        "topics": [
            {
                "topic": each.topic,
                "isSubscribed": each.is_subscribed,
                "queues": each.queue_count,
                "committedQueues": each.committed_queue_count,
                "lag": each.lag,
            }
            for each in topics
        ],
        "lag": sum(each.lag for each in topics),
        "retryMessages": details.retry_message_count,
        "deadLetters": details.dead_letter_count,
    }


def show_details(details: GroupDetails, members: Connections, topics: GroupTopics) -> None:
    """Prints a group as tables, with an empty line between them."""
    fields: list[list[output.Cell]] = [["consumer group", details.group]]
    fields += _setting_fields(details)
    for name, value in (
        ("consume type", members.consume_type),
        ("message model", members.message_model),
        ("consume from where", members.consume_from_where),
    ):
        fields.append([name, value or output.ABSENT])
    fields += [
        ["members", details.member_count],
        ["lag", sum(each.lag for each in topics)],
        ["retry messages", details.retry_message_count],
        ["dead letters", details.dead_letter_count],
    ]
    output.print_table(("field", "value"), fields)
    if members.consumers:
        typer.echo()
        output.print_table(
            ("client", "address", "last heartbeat"),
            [
                (each.client_id, each.address, time_of_ms(each.last_update_ms))
                for each in members.consumers
            ],
        )
    if members.subscriptions:
        typer.echo()
        output.print_table(
            ("subscribed topic", "type", "expression"),
            [(each.topic, each.expression_type, each.expression) for each in members.subscriptions],
        )
    if topics:
        typer.echo()
        output.print_table(
            ("topic", "queues", "committed queues", "lag"),
            [
                (each.topic, each.queue_count, each.committed_queue_count, each.lag)
                for each in topics
            ],
        )


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
