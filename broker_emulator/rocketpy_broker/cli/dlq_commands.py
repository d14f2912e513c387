"""`rocketpy dlq …`: the dead letters of a consumer group. Holds no state.

A crash of `resend` leaves what it has sent; dead letters stay where they are.
"""

from __future__ import annotations

from typing import Annotated

import typer

from rocketpy_broker.cli import output
from rocketpy_broker.cli.broker_client import DEFAULT_ENDPOINT, Endpoint, asking, refuse
from rocketpy_broker.cli.message_forms import json_of, json_of_sent, line_of
from rocketpy_broker.client.retries import dead_letters, origin_topic, resend

dlq_app = typer.Typer(
    help="Show the dead letters of a group, and send them anew.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Group = Annotated[str, typer.Option(help="The consumer group that gave the messages up.")]
Keys = Annotated[
    list[str] | None,
    typer.Option("--key", help="Only those with this key or unique id; may be given again."),
]
Offsets = Annotated[
    list[int] | None,
    typer.Option("--offset", min=0, help="Only the one at this offset; may be given again."),
]


@dlq_app.command("list")
def list_of_group(
    group: Group,
    key: Keys = None,
    offset: Offsets = None,
    as_json: output.AsJsonLines = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Show dead letters, oldest first.

    A line has the topic that the message was first sent to, store time, queue, offset, tags, keys
    and body.
    """
    with asking(endpoint) as connection:
        for letter in dead_letters(connection, group, key or (), offset or ()):
            if as_json:
                output.print_json(json_of(letter))
            else:
                output.print_columns([origin_topic(letter) or output.ABSENT, *line_of(letter)])


@dlq_app.command("resend")
def resend_of_group(
    group: Group,
    key: Keys = None,
    offset: Offsets = None,
    as_json: output.AsJsonLines = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Send dead letters anew, each to the topic that it was first sent to.

    Every group of that topic reads them. They stay among the dead letters, so that a second
    command sends them a second time.
    """
    with asking(endpoint) as connection:
        letters = list(dead_letters(connection, group, key or (), offset or ()))
        if not letters:
            refuse("no dead letter is chosen; see `rocketpy dlq list`")
        for letter, topic, sent in resend(connection, group, letters):
            error = letter.body_error
            if as_json:
                origin = {"deadLetterOffset": letter.queue_offset, "topic": topic}
                fault = {} if error is None else {"bodyError": error}
                output.print_json({**origin, **json_of_sent(sent), **fault})
            else:
                place = f"queue {sent.queue_id}, offset {sent.queue_offset}, id {sent.msg_id}"
                as_stored = "" if error is None else f" (its body as stored: it {error})"
                typer.echo(f"sent dead letter {letter.queue_offset} to {topic}: {place}{as_stored}")
