"""`rocketpy topic …`: topics of a running broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from rocketpy_broker.cli import output
from rocketpy_broker.cli.broker_client import DEFAULT_ENDPOINT, Endpoint, asking
from rocketpy_broker.cli.confirm import Yes, confirm
from rocketpy_broker.cli.key_value_options import key_value_options
from rocketpy_broker.cli.topics.views import TOPICS, message_count, show_topic
from rocketpy_broker.client import topics
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.offsets import topic_groups
from rocketpy_broker.client.statistics import list_statistics
from rocketpy_proto.counts import counted
from rocketpy_proto.rocketpy.v1 import admin_pb2

PUT_NUMS = "TOPIC_PUT_NUMS"
# The protocol's maximum; the broker's own limit is lower.
INT_MAX = (1 << 31) - 1
topic_app = typer.Typer(
    help="Create, change, list and delete topics.", no_args_is_help=True, rich_markup_mode=None
)

Topic = Annotated[str, typer.Argument(help="Name of the topic.")]
Perm = Annotated[
    int | None,
    typer.Option(max=INT_MAX, help="6: read and write, 4: read, 2: write; add 1: a template."),
]
Order = Annotated[bool | None, typer.Option(help="Clients consume it in order.")]
Attributes = Annotated[
    list[str] | None,
    typer.Option(
        "--attribute",
        metavar="NAME=VALUE",
        help="An attribute such as message.type=FIFO; may be repeated.",
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
    as_json: output.AsJson = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Create a topic; refuses one that exists."""
    given = key_value_options(attributes, "--attribute")
    with asking(endpoint) as connection:
        topics.create_topic(connection, topic, queues, perm=perm, order=order, attributes=given)
        if as_json:
            output.print_json(output.json_of(TOPICS, topics.get_topic(connection, topic)))
            return
    typer.echo(f"created topic {topic} with {counted(queues, 'queue')}")


@topic_app.command()
def update(
    topic: Topic,
    queues: Annotated[
        int | None,
        typer.Option(
            max=INT_MAX,
            help="Number of queues to read and to write; a smaller number hides queues.",
        ),
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
        typer.Option(
            "--remove-attribute",
            metavar="NAME",
            help="Name of an attribute to remove; may be repeated.",
        ),
    ] = None,
    make: Annotated[bool, typer.Option("--create", help="Create it if it does not exist.")] = False,
    as_json: output.AsJson = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Change a topic; settings without an option stay as they are.

    With fewer queues to read, the messages of the other queues stay in the store, and no client
    reads them. The command shows their number.
    """
    settings = topics.settings(
        topic,
        key_value_options(attributes, "--attribute"),
        removed or (),
        read_queue_nums=queues if read_queues is None else read_queues,
        write_queue_nums=queues if write_queues is None else write_queues,
        perm=perm,
        order=order,
    )
    if settings == topics.settings(topic) and not make:
        raise typer.BadParameter(
            "name a setting to change, such as --queues, --perm or --attribute"
        )
    with asking(endpoint) as connection:
        hidden = _hidden_by(connection, settings)
        change = topics.set_topic if make else topics.update_topic
        changed = change(connection, settings)
    if as_json:
        hidden_count = {"hiddenMessages": hidden.message_count} if hidden else {}
        output.print_json({**output.json_of(TOPICS, changed), **hidden_count})
        return
    typer.echo(
        f"topic {topic} has {counted(changed.read_queue_nums, 'queue')} to read and "
        f"{changed.write_queue_nums} to write"
    )
    if hidden:
        typer.echo(f"rocketpy: {hidden.text(topic)}", err=True)


@dataclass(frozen=True, slots=True)
class _HiddenQueues:
    """Queues that an update hides: the topic's old queue count, and the hidden messages."""

    queue_count: int
    message_count: int

    def text(self, topic: str) -> str:
        """Returns the warning about hidden messages."""
        hidden = counted(self.message_count, "message is", "messages are")
        return (
            f"{hidden} hidden, not deleted: topic {topic} now has fewer read queues. Give it the "
            "old number of read queues to read them (`rocketpy topic update "
            f"{topic} --read-queues {self.queue_count}`)"
        )


def _hidden_by(
    connection: BrokerConnection, settings: admin_pb2.TopicConfig
) -> _HiddenQueues | None:
    """Returns the queues that fewer read queues would hide; None without messages in them."""
    topic, queue_nums = settings.topic, settings.read_queue_nums
    if not settings.HasField("read_queue_nums") or not topics.topic_exists(connection, topic):
        return None
    queues = list(topics.topic_queues(connection, topic))
    count = sum(message_count(queue) for queue in queues if queue.queue_id >= queue_nums)
    return _HiddenQueues(len(queues), count) if count else None


@topic_app.command()
def describe(
    topic: Topic, as_json: output.AsJson = False, endpoint: Endpoint = DEFAULT_ENDPOINT
) -> None:
    """Show a topic: settings, queues with their messages, and the groups with progress in it."""
    with asking(endpoint) as connection:
        put = list_statistics(connection, [PUT_NUMS], topic=topic)
        show_topic(
            topics.get_topic(connection, topic),
            list(topics.topic_queues(connection, topic)),
            list(topic_groups(connection, topic)),
            put[0].minute.tps if put else 0.0,
            as_json=as_json,
        )


topic_app.command("show", hidden=True)(describe)


@topic_app.command()
def delete(
    topic: Topic,
    yes: Yes = False,
    as_json: output.AsJson = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Delete a topic with all its messages, and all progress in it."""
    with asking(endpoint) as connection:
        topics.get_topic(connection, topic)
        confirm(f"Delete topic {topic} with all its messages?", yes=yes)
        topics.delete_topic(connection, topic)
    if as_json:
        output.print_json({"topic": topic, "deleted": True})
        return
    typer.echo(f"deleted topic {topic}")


@topic_app.command()
def empty(
    topic: Topic,
    yes: Yes = False,
    as_json: output.AsJson = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Remove the messages that a topic has now; its settings, offsets and groups' progress stay.

    Consumers continue with the next message. A Spark query that has not read all reports a loss.
    """
    with asking(endpoint) as connection:
        count = sum(map(message_count, topics.topic_queues(connection, topic)))
        confirm(f"Remove {counted(count, 'message')} of topic {topic} for good?", yes=yes)
        topics.empty_topic(connection, topic)
    if as_json:
        output.print_json({"topic": topic, "removedMessages": count})
        return
    typer.echo(f"removed {counted(count, 'message')} of topic {topic}")


@topic_app.command("list")
def list_topics(
    system: Annotated[
        bool, typer.Option("--system", help="Also the broker's own topics and retry topics.")
    ] = False,
    as_json: output.AsJsonLines = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """List the topics."""
    with asking(endpoint) as connection:
        found = topics.each_topic(connection, include_system=system)
        output.print_entries(TOPICS, found, as_json=as_json)
