"""`rocketpy topic …` and `rocketpy lag`: queries and orders to a running broker.

Holds no state.
"""

from __future__ import annotations

from typing import Annotated

import typer

from rocketpy_broker.cli import output
from rocketpy_broker.cli.broker_client import DEFAULT_ENDPOINT, Endpoint, asking
from rocketpy_broker.cli.named_values import named_values
from rocketpy_broker.client import topics
from rocketpy_broker.client.offsets import GroupLag, query_lag, topic_groups

NOT_COMMITTED = "none"
# What the protocol's numbers hold; the broker's own limit is lower.
INT_MAX = (1 << 31) - 1
topic_app = typer.Typer(
    help="Create, change, list and delete topics.", no_args_is_help=True, rich_markup_mode=None
)

Topic = Annotated[str, typer.Argument(help="Name of the topic.")]
Perm = Annotated[
    int | None,
    typer.Option(max=INT_MAX, help="6: read and write, 4: read, 2: write; 1 more: a template."),
]
Order = Annotated[bool | None, typer.Option(help="Whether clients consume it in order.")]
Attributes = Annotated[
    list[str] | None,
    typer.Option(
        "--attribute",
        metavar="NAME=VALUE",
        help="Such as message.type=FIFO; may be given again.",
    ),
]


@topic_app.command()
def create(
    topic: Topic,
    queues: Annotated[
        int, typer.Option(max=INT_MAX, help="Number of queues to read and to write.")
    ] = topics.QUEUES_DEFAULT,
    perm: Perm = None,
    order: Order = None,
    attributes: Attributes = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Create a topic; refuses one that exists."""
    settings = topics.TopicSettings(
        perm=perm, order=order, attributes=named_values(attributes, "--attribute")
    )
    with asking(endpoint) as connection:
        topics.create_topic(connection, topic, queues, settings)
    typer.echo(f"created topic {topic} with {queues} queues")


@topic_app.command()
def update(
    topic: Topic,
    queues: Annotated[
        int | None,
        typer.Option(max=INT_MAX, help="Number of queues to read and to write; fewer hide some."),
    ] = None,
    read_queues: Annotated[
        int | None, typer.Option(max=INT_MAX, help="Number of queues to read.")
    ] = None,
    write_queues: Annotated[
        int | None, typer.Option(max=INT_MAX, help="Number of queues to write.")
    ] = None,
    perm: Perm = None,
    order: Order = None,
    attributes: Attributes = None,
    removed: Annotated[
        list[str] | None,
        typer.Option("--remove-attribute", metavar="NAME", help="May be given again."),
    ] = None,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Change a topic; what no option names stays as it is."""
    settings = topics.TopicSettings(
        queues if read_queues is None else read_queues,
        queues if write_queues is None else write_queues,
        perm,
        order,
        named_values(attributes, "--attribute"),
        tuple(removed or ()),
    )
    if settings == topics.TopicSettings():
        raise typer.BadParameter("say what to change: --queues, --perm, --attribute and so on")
    with asking(endpoint) as connection:
        changed = topics.update_topic(connection, topic, settings)
    typer.echo(
        f"topic {topic} has {changed.read_queue_nums} queues to read and "
        f"{changed.write_queue_nums} to write"
    )


@topic_app.command()
def show(
    topic: Topic, as_json: output.AsJson = False, endpoint: Endpoint = DEFAULT_ENDPOINT
) -> None:
    """Show a topic with all its settings."""
    with asking(endpoint) as connection:
        found = topics.get_topic(connection, topic)
        if as_json:
            output.print_json(_topic_json(found))
            return
        output.print_table(("field", "value"), _topic_fields(found))


def _topic_fields(topic: topics.Topic) -> list[list[output.Cell]]:
    fields: list[list[output.Cell]] = [
        ["topic", topic.topic],
        ["read queues", topic.read_queue_nums],
        ["write queues", topic.write_queue_nums],
        ["perm", f"{topic.perm} ({_letters(topic.perm)})"],
        ["order", "yes" if topic.order else "no"],
        ["filter type", topic.topic_filter_type],
        ["system flag", topic.topic_sys_flag],
    ]
    return fields + [[f"attribute {name}", value] for name, value in topic.attributes.items()]


def _letters(perm: int) -> str:
    """RocketMQ's text of a permission, such as RW-."""
    return "".join(letter if perm & bit else "-" for letter, bit in (("R", 4), ("W", 2), ("X", 1)))


def _topic_json(topic: topics.Topic) -> dict[str, object]:
    return {
        "topic": topic.topic,
        "readQueueNums": topic.read_queue_nums,
        "writeQueueNums": topic.write_queue_nums,
        "perm": topic.perm,
        "order": topic.order,
        "topicFilterType": topic.topic_filter_type,
        "topicSysFlag": topic.topic_sys_flag,
        "attributes": dict(topic.attributes),
    }


@topic_app.command()
def delete(topic: Topic, endpoint: Endpoint = DEFAULT_ENDPOINT) -> None:
    """Delete a topic with all its messages."""
    with asking(endpoint) as connection:
        topics.delete_topic(connection, topic)
    typer.echo(f"deleted topic {topic}")


@topic_app.command("list")
def list_topics(
    system: Annotated[
        bool, typer.Option("--system", help="The broker's own topics and retry topics, too.")
    ] = False,
    as_json: output.AsJsonLines = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """List the topics."""
    with asking(endpoint) as connection:
        found = topics.list_topics(connection, include_system=system)
        if as_json:
            for topic in found:
                output.print_json(_topic_json(topic))
            return
        output.print_table(
            ("topic", "read queues", "write queues", "perm", "message type"),
            [
                (
                    topic.topic,
                    topic.read_queue_nums,
                    topic.write_queue_nums,
                    topic.perm,
                    topic.message_type or output.ABSENT,
                )
                for topic in found
            ],
        )


def lag(
    topic: Topic,
    group: Annotated[
        str | None, typer.Option(help="Consumer group; without it all with progress in the topic.")
    ] = None,
    as_json: output.AsJson = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Show how far a consumer group is behind in each queue of a topic, or how far each group is.

    A group that the broker has never heard of is called unknown; all messages are ahead of it.
    """
    with asking(endpoint) as connection:
        if group is None:
            names = list(topic_groups(connection, topic))
            lags = [query_lag(connection, topic, name) for name in names]
            _show_groups(topic, lags, as_json=as_json)
            return
        found = query_lag(connection, topic, group)
        if as_json:
            output.print_json(_lag_json(found))
        else:
            _show_lag(found)


def _show_groups(topic: str, lags: list[GroupLag], *, as_json: bool) -> None:
    if as_json:
        found = [{"consumerGroup": lag.consumer_group, "lag": lag.total} for lag in lags]
        output.print_json({"topic": topic, "groups": found})
        return
    output.print_table(("consumer group", "lag"), [(lag.consumer_group, lag.total) for lag in lags])
    if not lags:
        typer.echo(f"rocketpy: no consumer group has progress in topic {topic!r} yet", err=True)


def _show_lag(found: GroupLag) -> None:
    rows: list[list[output.Cell]] = [
        [
            str(queue.queue_id),
            queue.min_offset,
            queue.max_offset,
            NOT_COMMITTED if queue.committed_offset is None else queue.committed_offset,
            queue.lag,
        ]
        for queue in found.queues
    ]
    rows.append(["total", output.ABSENT, output.ABSENT, output.ABSENT, found.total])
    output.print_table(("queue", "minimum", "maximum", "committed", "lag"), rows)
    if not found.is_known:
        typer.echo(
            f"rocketpy: consumer group {found.consumer_group!r} is unknown to this broker", err=True
        )


def _lag_json(found: GroupLag) -> dict[str, object]:
    return {
        "topic": found.topic,
        "consumerGroup": found.consumer_group,
        "isKnown": found.is_known,
        "lag": found.total,
        "queues": [
            {
                "queueId": queue.queue_id,
                "minOffset": queue.min_offset,
                "maxOffset": queue.max_offset,
                "committedOffset": queue.committed_offset,
                "lag": queue.lag,
            }
            for queue in found.queues
        ],
    }
