"""`rocketpy message …`: sending and following of messages.

`send` checks all lines of a file before it sends the first. Messages sent before a crash stay.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Annotated

import typer

from rocketpy_broker.cli import output
from rocketpy_broker.cli.broker_client import (
    DEFAULT_ENDPOINT,
    Endpoint,
    asking,
    leave_pipe,
    refuse,
)
from rocketpy_broker.cli.key_value_options import key_value_options
from rocketpy_broker.cli.messages.lines import (
    STANDARD_INPUT,
    MessageLineError,
    open_lines,
    standard_input,
)
from rocketpy_broker.cli.messages.views import line_of, place_of_sent
from rocketpy_broker.cli.times import time_option
from rocketpy_broker.client.errors import MessageIllegalError
from rocketpy_broker.client.messages import retries
from rocketpy_broker.client.messages.group_reader import GroupReader
from rocketpy_broker.client.messages.sender import ANY_QUEUE, MessageSender
from rocketpy_broker.client.messages.topic_reader import TopicReader
from rocketpy_broker.messages.json_form import json_of, json_of_sent
from rocketpy_broker.messages.outgoing_message import OutgoingMessage, SentMessage
from rocketpy_broker.messages.stored import Message
from rocketpy_proto.counts import counted
from rocketpy_proto.model import dead_letter_topic, retry_topic
from rocketpy_proto.record.properties import DELAY, TRAN_MSG, WAITING_NAMES

TAIL_COUNT_DEFAULT = 10
COUNT_MAX = (1 << 31) - 1
_IN_PLACE_OF = {DELAY: "--delay-level", TRAN_MSG: "`rocketpy transaction send`"}
# Held calls are short, so that the command notices a closed pipe.
FOLLOW_WAIT_MS = 1_000
# The pause after an answer without messages, for a broker that does not hold calls.
FOLLOW_PAUSE_MS = 20
message_app = typer.Typer(
    help="Send, follow and look up messages.", no_args_is_help=True, rich_markup_mode=None
)

Topic = Annotated[str, typer.Argument(help="Name of the topic.")]
Queues = Annotated[
    list[int] | None,
    typer.Option("--queue", min=0, max=COUNT_MAX, help="Only this queue; may be repeated."),
]


EARLIEST, LATEST = "earliest", "latest"


@message_app.command("send")
def send(
    topic: Topic,
    body: Annotated[
        str | None, typer.Option(help="Content of the message; - reads it from standard input.")
    ] = None,
    tag: Annotated[str | None, typer.Option(help="Tag of the message.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="A key; may be repeated.")] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME=VALUE", help="A property; may be repeated."),
    ] = None,
    queue_id: Annotated[
        int | None, typer.Option(min=0, help="Queue. Default: the broker chooses.")
    ] = None,
    delay_level: Annotated[int, typer.Option(min=0, help="Delay level: 1 is 1 s, 18 is 2 h.")] = 0,
    deliver_at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Delivery time, such as 2026-05-01T08:00:00Z."),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            help="Instead of the options above: a file with one JSON object a line, or - for "
            "standard input. Fields: body or bodyBase64, tags, keys (a list), properties (an "
            "object), queueId, delayLevel, deliverAt."
        ),
    ] = None,
    lines: Annotated[
        str | None,
        typer.Option(
            help="Instead of --body: a file with one body a line, or - for standard input. A pipe "
            "is also read if none of --body, --lines and --file is given. Empty lines are skipped."
        ),
    ] = None,
    as_json: output.AsJson = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Send one message, or all of a file or a pipe; checks all before it sends the first."""
    sources = [body, file, lines]
    is_piped = sources == [None] * 3 and not sys.stdin.isatty()
    if sources.count(None) != 2 and not is_piped:
        raise typer.BadParameter("give one of --body, --lines and --file")
    if file is not None:
        if (
            tag is not None
            or key
            or properties
            or queue_id is not None
            or delay_level
            or deliver_at
        ):
            raise typer.BadParameter(
                "with --file, each line has its tags, keys, properties, queue and delay; leave out "
                "their options"
            )
        _send_lines(topic, file, endpoint, as_json=as_json)
        return
    if delay_level and deliver_at is not None:
        raise typer.BadParameter("give either --delay-level or --deliver-at")
    # The body has the shell's bytes, which need not be UTF-8.
    message = OutgoingMessage(
        os.fsencode(body or ""),
        tag,
        tuple(key or ()),
        _sent_properties(properties),
        queue_id,
        delay_level,
        delivery_time(deliver_at),
    )
    if body is None:
        _send_lines(topic, lines, endpoint, template=message, as_json=as_json)
        return
    with asking(endpoint) as connection:
        if body == STANDARD_INPUT:
            message = replace(message, body=standard_input(connection.limits.body_bytes_max))
        try:
            (sent,) = MessageSender(connection, topic, turn=ANY_QUEUE).send([message])
        except MessageIllegalError as error:
            refuse(error.reason)
        _print_sent(topic, 1, sent, as_json=as_json)


def _sent_properties(texts: list[str] | None) -> dict[str, str]:
    """Returns the properties; refuses properties that delay a message.

    A send leaves these properties out, so the broker would deliver the message at once.
    """
    properties = key_value_options(texts, "--property")
    for name in WAITING_NAMES.intersection(properties):
        instead = _IN_PLACE_OF.get(name, "--deliver-at")
        reason = f"{name!r} is not sent as a property; use {instead}"
        raise typer.BadParameter(reason, param_hint="--property")
    return properties


def delivery_time(text: str | None) -> datetime | None:
    """Returns the time of --deliver-at. Raises typer.BadParameter."""
    return None if text is None else time_option(text, "--deliver-at")


def _send_lines(
    topic: str,
    path: str | None,
    endpoint: str,
    *,
    as_json: bool,
    template: OutgoingMessage | None = None,
) -> None:
    """Sends the messages of a file, or of standard input if `path` is None.

    `open_lines` describes the lines.
    """
    with asking(endpoint) as connection:
        sender = MessageSender(connection, topic)
        with open_lines(STANDARD_INPUT if path is None else path, template) as lines:
            if not lines.check(sender.checker.fault) and path is None:
                raise typer.BadParameter("give one of --body, --lines and --file, or pipe lines in")
            try:
                last = deque(sender.send(lines.messages()), maxlen=1)
            except MessageLineError as error:
                sent = counted(sender.sent_count, "message was", "messages were")
                refuse(f"{error.remark}; {sent} sent")
        _print_sent(topic, sender.sent_count, last[0] if last else None, as_json=as_json)


def _print_sent(topic: str, count: int, last: SentMessage | None, *, as_json: bool) -> None:
    """Prints the number of messages that were sent, and the place of a single message."""
    single = last if count == 1 else None
    if as_json:
        place = json_of_sent(single) if single else {}
        output.print_json({"topic": topic, "sent": count, **place})
        return
    place_text = ""
    if single is not None:
        place_text = f": {place_of_sent(single)}"
    typer.echo(f"sent {counted(count, 'message')} to {topic}{place_text}")


Whole = Annotated[bool, typer.Option("--whole", help="Show long bodies, tags and keys in full.")]


@message_app.command("tail")
def tail(
    topic: Topic,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show new messages, too, until interrupted.")
    ] = False,
    count: Annotated[
        int | None,
        typer.Option(
            "--count",
            "-n",
            min=0,
            max=COUNT_MAX,
            help="Number of messages. Default: 10 of the latest, else all.",
        ),
    ] = None,
    beginning: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="latest|earliest|TIME",
            help="latest: the last messages; earliest: from the first one. A time such as "
            "2026-05-01T08:00:00Z: from the first one stored since then.",
        ),
    ] = LATEST,
    queue: Queues = None,
    whole: Whole = False,
    as_json: output.AsJsonLines = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Show messages of a topic, in the order of their storage.

    A line has store time, queue, offset, tags, keys and body. A body that is no printable text is
    shown in base64. Texts of more than 200 characters are cut without --whole or --json.
    """
    if follow and beginning != LATEST and count is not None:
        raise typer.BadParameter("--follow with --from takes no -n; leave one of them out")
    since = None if beginning in {EARLIEST, LATEST} else time_option(beginning, "--from")
    with asking(endpoint) as connection:
        reader = TopicReader(connection, topic, queue or ())
        if beginning == LATEST:
            shown = reader.last(TAIL_COUNT_DEFAULT if count is None else count)
        else:
            shown = reader.first(count, since=since)
        _print_messages(shown, is_whole=whole, as_json=as_json)
        printed = 0
        while follow:
            output.flush()
            if output.is_abandoned(0 if printed else FOLLOW_PAUSE_MS):
                leave_pipe()
            new = reader.next_messages(FOLLOW_WAIT_MS)
            printed = _print_messages(new, is_whole=whole, as_json=as_json)


@message_app.command("pull")
def pull(
    topic: Topic,
    group: Annotated[str, typer.Option(help="The consumer group.")],
    count: Annotated[
        int | None,
        typer.Option(
            "--count", "-n", min=0, max=COUNT_MAX, help="Number of messages. Default: all."
        ),
    ] = None,
    commit: Annotated[
        bool, typer.Option("--commit/--no-commit", help="Commit the offsets of the shown messages.")
    ] = True,
    whole: Whole = False,
    as_json: output.AsJsonLines = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Show the messages that a consumer group has not consumed, and commit its progress.

    The lines are as in `message tail`, one queue after another. After an interrupt, the
    command may show the last messages again.
    """
    with asking(endpoint) as connection:
        reader = GroupReader(connection, topic, group, is_committing=commit)
        _print_messages(reader.messages(count), is_whole=whole, as_json=as_json)


def _print_messages(messages: Iterable[Message], *, is_whole: bool, as_json: bool) -> int:
    """Prints the messages and returns their number."""
    count = 0
    for message in messages:
        count += 1
        if as_json:
            output.print_json(json_of(message))
        else:
            output.print_columns(line_of(message, is_whole=is_whole))
    return count


@message_app.command("send-back")
def send_back_to_group(
    offset_msg_id: Annotated[str, typer.Argument(help="The offset message id.")],
    group: Annotated[str, typer.Option(help="The consumer group that gets it again.")],
    delay_level: Annotated[
        int,
        typer.Option(
            min=-1,
            max=18,
            help="Delay level: 1 is 1 s, 18 is 2 h; 0: by the message's number of failures; -1: a "
            "dead letter.",
        ),
    ] = 0,
    as_json: output.AsJson = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Send a message to a consumer group once more, or to its dead letters."""
    with asking(endpoint) as connection:
        to = retries.send_back(connection, group, offset_msg_id, delay_level)
        if as_json:
            output.print_json({"offsetMsgId": offset_msg_id, "group": group, "sentBackTo": to})
            return
        destinations = {
            retries.RETRY: f"is delivered again in {retry_topic(group)}",
            retries.DEAD_LETTER: f"is a dead letter in {dead_letter_topic(group)}",
            retries.DROPPED: f"is dropped: group {group} has no retry queues",
        }
        typer.echo(f"{offset_msg_id} {destinations[to]}")
