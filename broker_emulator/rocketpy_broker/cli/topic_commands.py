"""`rocketpy topic …` and `rocketpy lag`: queries and orders to a running broker.

Holds no state.
"""

from __future__ import annotations

from typing import Annotated

import typer

from rocketpy_broker.cli import output
from rocketpy_broker.cli.broker_client import DEFAULT_ENDPOINT, Endpoint, asking
from rocketpy_broker.client import topics
from rocketpy_broker.client.offsets import GroupLag, query_lag

NOT_COMMITTED = "none"
# What the protocol's numbers hold; the broker's own limit is lower.
INT_MAX = (1 << 31) - 1
topic_app = typer.Typer(
    help="Create, list and delete topics.", no_args_is_help=True, rich_markup_mode=None
)

Topic = Annotated[str, typer.Argument(help="Name of the topic.")]


@topic_app.command()
def create(
    topic: Topic,
    queues: Annotated[
        int, typer.Option(max=INT_MAX, help="Number of queues to read and to write.")
    ] = topics.QUEUES_DEFAULT,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Create a topic; refuses one that exists."""
    with asking(endpoint) as connection:
        topics.create_topic(connection, topic, queues)
    typer.echo(f"created topic {topic} with {queues} queues")


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
                output.print_json(
                    {
                        "topic": topic.topic,
                        "readQueueNums": topic.read_queue_nums,
                        "writeQueueNums": topic.write_queue_nums,
                        "perm": topic.perm,
                    }
                )
            return
        output.print_table(
            ("topic", "read queues", "write queues", "perm"),
            [
                (topic.topic, topic.read_queue_nums, topic.write_queue_nums, topic.perm)
                for topic in found
            ],
        )


def lag(
    topic: Topic,
    group: Annotated[str, typer.Option(help="Consumer group.")],
    as_json: output.AsJson = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Show how far a consumer group is behind in each queue of a topic.

    A group that the broker has never heard of is called unknown; all messages are ahead of it.
    """
    with asking(endpoint) as connection:
        found = query_lag(connection, topic, group)
        if as_json:
            output.print_json(_lag_json(found))
        else:
            _show_lag(found)


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
