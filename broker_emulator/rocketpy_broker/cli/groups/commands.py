"""`rocketpy group …`: consumer groups of a running broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any

import typer

from rocketpy_broker.cli import output
from rocketpy_broker.cli.broker_client import DEFAULT_ENDPOINT, Endpoint, asking
from rocketpy_broker.cli.confirm import Yes, confirm
from rocketpy_broker.cli.groups.views import GROUPS, offset_or_none, show_group, show_settings
from rocketpy_broker.cli.output import Column
from rocketpy_broker.client import group_admin
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.groups import list_connections
from rocketpy_broker.runtime.time_format import parsed_time
from rocketpy_proto.counts import counted

# The protocol's maxima; the broker's own limits may be lower.
INT_MAX, LONG_MAX = (1 << 31) - 1, (1 << 63) - 1
Settings = Mapping[str, bool | int]
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
    typer.Option("--orderly/--no-orderly", help="consumeMessageOrderly: SDKs consume in order."),
]
RetryQueues = Annotated[
    int | None,
    typer.Option(
        "--retry-queues",
        max=INT_MAX,
        help="retryQueueNums; 0: drop messages that the group sends back.",
    ),
]
RetryMaxTimes = Annotated[
    int | None,
    typer.Option(
        max=INT_MAX, help="retryMaxTimes: redeliveries before a message becomes a dead letter."
    ),
]
BrokerId = Annotated[
    int | None, typer.Option(max=LONG_MAX, help="brokerId: the broker to pull from; 0: the master.")
]
SlowBrokerId = Annotated[
    int | None,
    typer.Option(
        "--slow-broker-id",
        max=LONG_MAX,
        help="whichBrokerWhenConsumeSlowly: the same for old messages.",
    ),
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
        output.print_entries(GROUPS, found, as_json=as_json)


@group_app.command()
def describe(
    group: Group, as_json: output.AsJson = False, endpoint: Endpoint = DEFAULT_ENDPOINT
) -> None:
    """Show a consumer group: settings, members, subscriptions, lag, retries and dead letters."""
    with asking(endpoint) as connection:
        show_group(
            group,
            group_admin.get_group(connection, group),
            list_connections(connection, group),
            list(group_admin.group_topics(connection, group)),
            as_json=as_json,
        )


@group_app.command()
def create(
    group: Group,
    consume_enable: ConsumeEnable = None,
    consume_from_min_enable: FromMin = None,
    consume_broadcast_enable: Broadcast = None,
    consume_message_orderly: Orderly = None,
    retry_queue_nums: RetryQueues = None,
    retry_max_times: RetryMaxTimes = None,
    broker_id: BrokerId = None,
    which_broker_when_consume_slowly: SlowBrokerId = None,
    notify_consumer_ids_changed_enable: Notify = None,
    as_json: output.AsJson = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Create a consumer group; refuses one that exists. A group's first use creates it, too."""
    settings = _settings(locals())
    _change(group, settings, group_admin.create_group, endpoint, as_json=as_json)


@group_app.command()
def update(
    group: Group,
    consume_enable: ConsumeEnable = None,
    consume_from_min_enable: FromMin = None,
    consume_broadcast_enable: Broadcast = None,
    consume_message_orderly: Orderly = None,
    retry_queue_nums: RetryQueues = None,
    retry_max_times: RetryMaxTimes = None,
    broker_id: BrokerId = None,
    which_broker_when_consume_slowly: SlowBrokerId = None,
    notify_consumer_ids_changed_enable: Notify = None,
    make: Annotated[bool, typer.Option("--create", help="Create it if it does not exist.")] = False,
    as_json: output.AsJson = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Change a consumer group; settings without an option stay as they are."""
    settings = _settings(locals())
    if not (settings or make):
        raise typer.BadParameter(
            "name a setting to change, such as --retry-max-times or --no-consume"
        )
    change = group_admin.set_group if make else group_admin.update_group
    _change(group, settings, change, endpoint, as_json=as_json)


def _settings(options: Mapping[str, Any]) -> Settings:
    """Returns the options that are given; they have the names of GroupConfig's fields."""
    return {name: options[name] for name in group_admin.FIELDS if options.get(name) is not None}


def _change(
    group: str,
    settings: Settings,
    change: Callable[[BrokerConnection, str, Settings], group_admin.Group],
    endpoint: str,
    *,
    as_json: bool,
) -> None:
    with asking(endpoint) as connection:
        show_settings(group, change(connection, group, settings), as_json=as_json)


@group_app.command()
def reset(
    group: Group,
    topic: Annotated[str, typer.Option(help="Name of the topic.")],
    to: Annotated[
        str,
        typer.Option(
            metavar="earliest|latest|TIME|OFFSET",
            help="The new position: the first message, the end, an offset, or the first message "
            "stored since a time such as 2026-05-01T08:00:00Z.",
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
    """Reset a consumer group's offsets in a topic; shows the old and new offset of each queue.

    With --force, members that are online continue there with their next pull. The broker ignores
    their commits until then. A Spark query uses its checkpoint, which this command does not change.
    """
    target = _target(to)
    with asking(endpoint) as connection:
        if not dry_run:
            confirm(f"Reset group {group} in topic {topic} to {to}?", yes=yes)
        found = group_admin.reset_offsets(
            connection, group, topic, target, queue_id=queue, force=force, dry_run=dry_run
        )
    columns = (
        Column("consumerGroup", "", lambda _queue: group),
        Column("topic", "", lambda _queue: topic),
        Column("queueId", "queue", "queue_id", str),
        Column("oldOffset", "old offset", "old_offset", offset_or_none),
        Column("newOffset", "new offset", "new_offset"),
        Column("dryRun", "", lambda _queue: dry_run),
    )
    output.print_entries(columns, found, as_json=as_json)
    if dry_run and not as_json:
        typer.echo("rocketpy: nothing was changed", err=True)


def _target(text: str) -> str | datetime | int:
    if text in group_admin.NAMED_TARGETS:
        return text
    if text.isascii() and text.isdecimal():
        if (offset := int(text)) <= LONG_MAX:
            return offset
        raise typer.BadParameter(f"{text} is no offset, limit {LONG_MAX}", param_hint="--to")
    try:
        return parsed_time(text)
    except ValueError as error:
        reason = f"{error}, earliest, latest or an offset"
        raise typer.BadParameter(reason, param_hint="--to") from error


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

    With --force, the next heartbeat of a member that is online recreates the group with defaults.
    """
    with asking(endpoint) as connection:
        found = group_admin.get_group(connection, group)
        letters = "" if keep_topics else f" and {counted(found.dead_letter_count, 'dead letter')}"
        confirm(f"Delete group {group} with its progress{letters}?", yes=yes)
        topics = group_admin.delete_group(connection, group, keep_topics=keep_topics, force=force)
    if as_json:
        output.print_json({"consumerGroup": group, "deletedTopics": topics})
        return
    with_topics = f" and {' and '.join(topics)}" if topics else ""
    typer.echo(output.printable(f"deleted consumer group {group}{with_topics}"))
