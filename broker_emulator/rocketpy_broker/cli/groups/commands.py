"""`rocketpy group …`: consumer groups of a running broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated

import typer

from rocketpy_broker.cli import output
from rocketpy_broker.cli.broker_client import DEFAULT_ENDPOINT, Endpoint, asking
from rocketpy_broker.cli.confirm import Yes, confirm
from rocketpy_broker.cli.groups.views import (
    details_json,
    show_details,
    show_settings,
    summary_json,
)
from rocketpy_broker.cli.times import parsed_time
from rocketpy_broker.client import group_admin
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.group_admin import GroupSettings, Reset, ResetTarget, ResetTo
from rocketpy_broker.client.groups import list_connections

# The protocol's maxima; the broker's own limits may be lower.
INT_MAX, LONG_MAX = (1 << 31) - 1, (1 << 63) - 1
NOT_COMMITTED = "none"
group_app = typer.Typer(
    help="Show, change, reset and delete consumer groups.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Group = Annotated[str, typer.Argument(help="Name of the consumer group.")]
Force = Annotated[
    bool, typer.Option("--force", help="Do it also while members of the group are online.")
]
ConsumeEnable = Annotated[
    bool | None,
    typer.Option("--consume/--no-consume", help="consumeEnable: allow pulls of the group."),
]
FromMin = Annotated[
    bool | None,
    typer.Option("--from-min/--no-from-min", help="consumeFromMinEnable; kept for RocketMQ."),
]
Broadcast = Annotated[
    bool | None,
    typer.Option(
        "--broadcast/--no-broadcast",
        help="consumeBroadcastEnable: allow consumption by broadcasting.",
    ),
]
Orderly = Annotated[
    bool | None,
    typer.Option("--orderly/--no-orderly", help="consumeMessageOrderly; kept for RocketMQ."),
]
RetryQueues = Annotated[
    int | None,
    typer.Option(max=INT_MAX, help="retryQueueNums; 0: drop messages that it sends back."),
]
RetryMaxTimes = Annotated[
    int | None,
    typer.Option(max=INT_MAX, help="retryMaxTimes: deliveries before a message is a dead letter."),
]
BrokerId = Annotated[
    int | None, typer.Option(max=LONG_MAX, help="brokerId: the broker to pull from; 0: the master.")
]
SlowBrokerId = Annotated[
    int | None,
    typer.Option(max=LONG_MAX, help="whichBrokerWhenConsumeSlowly: the same for old messages."),
]
Notify = Annotated[
    bool | None,
    typer.Option(
        "--notify/--no-notify",
        help="notifyConsumerIdsChangedEnable: notify members when a member joins or leaves.",
    ),
]


@group_app.command("list")
def list_groups(
    system: Annotated[bool, typer.Option("--system", help="Also the broker's own groups.")] = False,
    as_json: output.AsJsonLines = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """List the consumer groups: members, topics, and messages that are not consumed."""
    with asking(endpoint) as connection:
        found = group_admin.list_groups(connection, include_system=system)
        if as_json:
            for each in found:
                output.print_json(summary_json(each))
            return
        output.print_table(
            ("consumer group", "members", "type", "model", "topics", "lag"),
            (
                (
                    each.group,
                    each.member_count,
                    each.consume_type or output.ABSENT,
                    each.message_model or output.ABSENT,
                    _listed(each.topics, each.topic_count),
                    each.lag,
                )
                for each in found
            ),
        )


def _listed(topics: Sequence[str], count: int) -> str:
    more = f", … ({count})" if count > len(topics) else ""
    return ", ".join(topics) + more


@group_app.command()
def describe(
    group: Group, as_json: output.AsJson = False, endpoint: Endpoint = DEFAULT_ENDPOINT
) -> None:
    """Show a consumer group: settings, members, subscriptions, lag, retries and dead letters."""
    with asking(endpoint) as connection:
        details = group_admin.get_group(connection, group)
        members = list_connections(connection, group)
        topics = list(group_admin.group_topics(connection, group))
        if as_json:
            output.print_json(details_json(details, members, topics))
        else:
            show_details(details, members, topics)


@group_app.command()
def create(
    group: Group,
    consume_enable: ConsumeEnable = None,
    from_min: FromMin = None,
    broadcast: Broadcast = None,
    orderly: Orderly = None,
    retry_queues: RetryQueues = None,
    retry_max_times: RetryMaxTimes = None,
    broker_id: BrokerId = None,
    slow_broker_id: SlowBrokerId = None,
    notify: Notify = None,
    as_json: output.AsJson = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Create a consumer group; refuses one that exists. A group's first use creates it, too."""
    settings = _settings(
        consume_enable=consume_enable,
        consume_from_min_enable=from_min,
        consume_broadcast_enable=broadcast,
        consume_message_orderly=orderly,
        retry_queue_nums=retry_queues,
        retry_max_times=retry_max_times,
        broker_id=broker_id,
        which_broker_when_consume_slowly=slow_broker_id,
        notify_consumer_ids_changed_enable=notify,
    )
    _change(group, settings, group_admin.create_group, endpoint, as_json=as_json)


@group_app.command()
def update(
    group: Group,
    consume_enable: ConsumeEnable = None,
    from_min: FromMin = None,
    broadcast: Broadcast = None,
    orderly: Orderly = None,
    retry_queues: RetryQueues = None,
    retry_max_times: RetryMaxTimes = None,
    broker_id: BrokerId = None,
    slow_broker_id: SlowBrokerId = None,
    notify: Notify = None,
    make: Annotated[bool, typer.Option("--create", help="Create it if it does not exist.")] = False,
    as_json: output.AsJson = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Change a consumer group; settings without an option stay as they are."""
    settings = _settings(
        consume_enable=consume_enable,
        consume_from_min_enable=from_min,
        consume_broadcast_enable=broadcast,
        consume_message_orderly=orderly,
        retry_queue_nums=retry_queues,
        retry_max_times=retry_max_times,
        broker_id=broker_id,
        which_broker_when_consume_slowly=slow_broker_id,
        notify_consumer_ids_changed_enable=notify,
    )
    if not (settings.fields or make):
        raise typer.BadParameter(
            "name a setting to change, such as --retry-max-times or --no-consume"
        )
    change = group_admin.set_group if make else group_admin.update_group
    _change(group, settings, change, endpoint, as_json=as_json)


def _settings(**given: bool | int | None) -> GroupSettings:
    return GroupSettings({name: value for name, value in given.items() if value is not None})


def _change(
    group: str,
    settings: GroupSettings,
    change: Callable[[BrokerConnection, str, GroupSettings], group_admin.GroupDetails],
    endpoint: str,
    *,
    as_json: bool,
) -> None:
    with asking(endpoint) as connection:
        show_settings(change(connection, group, settings), as_json=as_json)


@group_app.command()
def reset(
    group: Group,
    topic: Annotated[str, typer.Option(help="Name of the topic.")],
    to: Annotated[
        str,
        typer.Option(
            metavar="earliest|latest|TIME|OFFSET",
            help="The new position: the first message, the end, the first message stored at a "
            "time such as 2026-05-01T08:00:00Z or later, or an offset.",
        ),
    ],
    queue: Annotated[
        int | None, typer.Option(min=0, max=INT_MAX, help="Only this queue. Default: all.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the changes without making them.")
    ] = False,
    force: Force = False,
    yes: Yes = False,
    as_json: output.AsJsonLines = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Move a consumer group to another place of a topic; shows the offsets of each queue.

    With --force, members that are online get the place with their next pull. The broker ignores
    their commits until then. A Spark query uses its checkpoint, and this does not move it.
    """
    wanted = Reset(group, topic, _target(to), queue, force, dry_run)
    with asking(endpoint) as connection:
        if not dry_run:
            confirm(f"Reset group {group} in topic {topic} to {to}?", yes=yes)
        found = group_admin.reset_offsets(connection, wanted)
    if as_json:
        for each in found:
            output.print_json(
                {
                    "consumerGroup": group,
                    "topic": topic,
                    "queueId": each.queue_id,
                    "oldOffset": each.old_offset,
                    "newOffset": each.new_offset,
                    "dryRun": dry_run,
                }
            )
        return
    output.print_table(
        ("queue", "old offset", "new offset"),
        [
            (
                str(each.queue_id),
                NOT_COMMITTED if each.old_offset is None else each.old_offset,
                each.new_offset,
            )
            for each in found
        ],
    )
    if dry_run:
        typer.echo("rocketpy: nothing was changed", err=True)


def _target(text: str) -> ResetTarget:
    if text in {each.value for each in ResetTo}:
        return ResetTo(text)
    if text.isascii() and text.isdecimal():
        if (offset := int(text)) <= LONG_MAX:
            return offset
        raise typer.BadParameter(f"{text} is no offset", param_hint="--to")
    try:
        found: datetime = parsed_time(text)
    except ValueError as error:
        reason = f"{error}, earliest, latest or an offset"
        raise typer.BadParameter(reason, param_hint="--to") from error
    return found


@group_app.command()
def delete(
    group: Group,
    keep_topics: Annotated[
        bool, typer.Option("--keep-topics", help="Keep its retry topic and its dead letters.")
    ] = False,
    force: Force = False,
    yes: Yes = False,
    as_json: output.AsJson = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Delete a consumer group, its progress, its retry topic and its dead letters.

    With --force, the next heartbeat of a member that is online recreates it with defaults.
    """
    with asking(endpoint) as connection:
        details = group_admin.get_group(connection, group)
        letters = "" if keep_topics else f" and {details.dead_letter_count} dead letters"
        confirm(f"Delete group {group} with its progress{letters}?", yes=yes)
        topics = group_admin.delete_group(connection, group, keep_topics=keep_topics, force=force)
    if as_json:
        output.print_json({"consumerGroup": group, "deletedTopics": topics})
        return
    with_topics = f" and {' and '.join(topics)}" if topics else ""
    typer.echo(output.printable(f"deleted consumer group {group}{with_topics}"))
