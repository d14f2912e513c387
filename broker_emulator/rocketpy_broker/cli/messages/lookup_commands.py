"""`rocketpy message query`, `view`, `resend` and `recall`: single messages.

`resend` finds all messages before it sends the first. Messages that were sent before a crash stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from rocketpy_broker.cli import output
from rocketpy_broker.cli.broker_client import DEFAULT_ENDPOINT, Endpoint, asking, refuse
from rocketpy_broker.cli.messages.commands import COUNT_MAX, delivery_time
from rocketpy_broker.cli.messages.views import (
    fields_of,
    json_of_resent,
    line_of_resent,
)
from rocketpy_broker.cli.times import time_option
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.messages.lookup import message_at, query_messages, view_message
from rocketpy_broker.client.messages.recall import recall_handle, recall_message
from rocketpy_broker.client.messages.resend import resend_messages
from rocketpy_broker.messages.json_form import json_of
from rocketpy_broker.messages.outgoing_message import delivery_ms
from rocketpy_broker.messages.stored import Message

OFFSET_MAX = (1 << 63) - 1
# The messages of a query are in memory together.
QUERY_COUNT_MAX = 10_000

Topic = Annotated[str, typer.Argument(help="Name of the topic.")]
Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="Offset message ids; with --topic, also unique ids."),
]
OfTopic = Annotated[str | None, typer.Option("--topic", help="Topic of the messages.")]
OfQueue = Annotated[
    int | None,
    typer.Option("--queue", min=0, max=COUNT_MAX, help="In place of ids: the queue of --offset."),
]
AtOffsets = Annotated[
    list[int] | None,
    typer.Option("--offset", min=0, max=OFFSET_MAX, help="An offset in --queue; may be repeated."),
]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Messages that a command line names by ids, or by offsets of a topic's queue."""

    ids: Sequence[str]
    topic: str | None
    queue_id: int | None
    offsets: Sequence[int]

    @classmethod
    def of(
        cls,
        ids: Sequence[str] | None,
        topic: str | None,
        queue_id: int | None,
        offsets: Sequence[int] | None,
    ) -> Chosen:
        """Returns the choice. Raises typer.BadParameter unless exactly one way is used."""
        if bool(ids) == bool(offsets):
            raise typer.BadParameter("give ids, or --topic, --queue and --offset")
        if offsets and (topic is None or queue_id is None):
            raise typer.BadParameter("--offset needs --topic and --queue")
        if queue_id is not None and not offsets:
            raise typer.BadParameter("--queue needs --offset")
        return cls(ids or (), topic, queue_id, offsets or ())

    def find(self, connection: BrokerConnection) -> list[Message]:
        """Returns all messages; ends the command if one is not found."""
        found = [self._by_id(connection, each) for each in self.ids]
        return found + [self._at(connection, each) for each in self.offsets]

    def _by_id(self, connection: BrokerConnection, msg_id: str) -> Message:
        if self.topic is not None:
            for message in query_messages(connection, self.topic, msg_id, 0):
                if message.msg_id == msg_id:
                    return message
        message = view_message(connection, msg_id)
        if self.topic not in {None, message.topic}:
            refuse(f"message {msg_id} is in topic {message.topic}, not in {self.topic}")
        return message

    def _at(self, connection: BrokerConnection, offset: int) -> Message:
        topic, queue_id = self.topic or "", self.queue_id or 0
        message = message_at(connection, topic, queue_id, offset)
        if message is None:
            refuse(
                f"no message is at offset {offset} of queue {queue_id} of topic {topic}; see "
                f"`rocketpy topic describe {topic}` for its offsets"
            )
        return message


def query(
    topic: Topic,
    key: Annotated[
        str | None, typer.Argument(help="One of the KEYS, or the UNIQ_KEY.", show_default=False)
    ] = None,
    tag: Annotated[str | None, typer.Option(help="In place of a key: the tag.")] = None,
    count: Annotated[
        int,
        typer.Option(min=1, max=QUERY_COUNT_MAX, help="Limit of shown messages, 10000 at most."),
    ] = 32,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Only messages stored since this time, such as 2026-05-01T08:00:00Z.",
        ),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option("--to", metavar="TIME", help="Only messages stored until this time."),
    ] = None,
    as_json: output.AsJsonLines = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Show the newest messages of a topic that have a key, or a tag, oldest first."""
    if (key is None) == (tag is None):
        raise typer.BadParameter("give either a key or --tag")
    since = None if begin is None else time_option(begin, "--from")
    until = None if end is None else time_option(end, "--to")
    if since and until and until < since:
        raise typer.BadParameter("--to is before --from; exchange them")
    with asking(endpoint) as connection:
        found = query_messages(
            connection, topic, key or "", count, tag=tag or "", since=since, until=until
        )
        if not found:
            of_time = " was stored in this time" if since or until else " is in the topic"
            refuse(
                f"no message with this {'key' if tag is None else 'tag'}{of_time}. "
                "Delayed messages are found after their delivery"
            )
        _show(found, as_json=as_json)


def view(
    ids: Ids = None,
    topic: OfTopic = None,
    queue: OfQueue = None,
    offset: AtOffsets = None,
    as_json: output.AsJsonLines = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Show messages by their ids, or by their offsets in a queue."""
    chosen = Chosen.of(ids, topic, queue, offset)
    with asking(endpoint) as connection:
        _show(chosen.find(connection), as_json=as_json)


def resend(
    ids: Ids = None,
    topic: OfTopic = None,
    queue: OfQueue = None,
    offset: AtOffsets = None,
    to: Annotated[
        str | None, typer.Option(help="Topic to send to. Default: the topic of each message.")
    ] = None,
    as_json: output.AsJsonLines = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Send messages again, as new ones with the same body, tags, keys and properties.

    The command finds all messages before it sends the first. They get new unique ids and the
    topic's message type. A topic of type DELAY gets them without a delay.
    """
    chosen = Chosen.of(ids, topic, queue, offset)
    with asking(endpoint) as connection:
        for resent in resend_messages(connection, chosen.find(connection), to):
            offset_msg_id = resent.message.offset_msg_id
            if as_json:
                output.print_json({"offsetMsgId": offset_msg_id, **json_of_resent(resent)})
            else:
                typer.echo(line_of_resent(f"message {offset_msg_id}", resent))


def recall(
    topic: Topic,
    msg_id: Annotated[str, typer.Argument(help="The unique id that `message send` printed.")],
    deliver_at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="The delivery time that `message send` was given."),
    ] = None,
    deliver_ms: Annotated[
        int | None,
        typer.Option(
            min=1, help="The delivery time in ms since 1970, as in property TIMER_DELIVER_MS."
        ),
    ] = None,
    as_json: output.AsJson = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Take back a message that waits for its delivery time.

    The broker does not say whether the message still waited.
    """
    if (deliver_at is None) == (deliver_ms is None):
        raise typer.BadParameter("give either --deliver-at or --deliver-ms")
    due_ms = deliver_ms or delivery_ms(delivery_time(deliver_at)) or 0
    with asking(endpoint) as connection:
        handle = recall_handle(connection, topic, due_ms, msg_id)
        recalled = recall_message(connection, topic, handle)
        if as_json:
            output.print_json({"topic": topic, "msgId": recalled, "recalled": True})
            return
        typer.echo(f"recalled {recalled}, if it still waited")


def _show(messages: Sequence[Message], *, as_json: bool) -> None:
    for index, message in enumerate(messages):
        if as_json:
            output.print_json(json_of(message))
            continue
        if index:
            typer.echo()
        output.print_table(("field", "value"), fields_of(message))
