"""`rocketpy topic …` and `rocketpy lag`: questions and orders to a running broker.

Holds no state.
"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from rocketpy_broker.cli.broker_client import (
    DEFAULT_ENDPOINT,
    TIMEOUT_SECONDS,
    Endpoint,
    asking,
    check,
)
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2

topic_app = typer.Typer(help="Create, list and delete topics.", no_args_is_help=True)

Topic = Annotated[str, typer.Argument(help="Name of the topic.")]


@topic_app.command()
def create(
    topic: Topic,
    queues: Annotated[int, typer.Option(help="Number of queues to read and to write.")] = 8,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Create a topic; refuses one that exists."""
    config = admin_pb2.TopicConfig(
        topic=topic, read_queue_nums=queues, write_queue_nums=queues, perm=6
    )
    request = admin_pb2.UpdateTopicRequest(config=config, create_only=True)
    with asking(endpoint) as stubs:
        check(stubs.admin.UpdateTopic(request, timeout=TIMEOUT_SECONDS).status)
    typer.echo(f"created topic {topic} with {queues} queues")


@topic_app.command()
def delete(topic: Topic, endpoint: Endpoint = DEFAULT_ENDPOINT) -> None:
    """Delete a topic with all its messages."""
    request = admin_pb2.DeleteTopicRequest(topic=topic)
    with asking(endpoint) as stubs:
        check(stubs.admin.DeleteTopic(request, timeout=TIMEOUT_SECONDS).status)
    typer.echo(f"deleted topic {topic}")


@topic_app.command("list")
def list_topics(
    system: Annotated[bool, typer.Option("--system", help="The broker's own topics, too.")] = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """List the topics."""
    request = admin_pb2.ListTopicsRequest(include_system=system)
    table = Table("topic", "read queues", "write queues", "perm")
    with asking(endpoint) as stubs:
        response = stubs.admin.ListTopics(request, timeout=TIMEOUT_SECONDS)
    check(response.status)
    for config in response.configs:
        queue_nums = (config.read_queue_nums, config.write_queue_nums)
        table.add_row(config.topic, *map(str, queue_nums), str(config.perm))
    Console().print(table)


def lag(
    topic: Topic,
    group: Annotated[str, typer.Option(help="Consumer group.")],
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Show how far a consumer group is behind in each queue of a topic."""
    request = broker_pb2.QueryOffsetsRequest(topics=[topic], consumer_group=group)
    table = Table("queue", "minimum", "maximum", "committed", "lag")
    with asking(endpoint) as stubs:
        response = stubs.broker.QueryOffsets(request, timeout=TIMEOUT_SECONDS)
    check(response.topics[0].status)
    for queue in response.topics[0].queues:
        committed = queue.committed_offset
        begin = max(committed, queue.min_offset)
        table.add_row(
            str(queue.queue_id),
            str(queue.min_offset),
            str(queue.max_offset),
            "none" if committed < 0 else str(committed),
            str(queue.max_offset - begin),
        )
    Console().print(table)
