"""`rocketpy dlq …`: the dead letters of consumer groups.

`resend` keeps the dead letters. After a crash in the middle, the messages that it has sent stay
sent.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, TextColumn

from rocketpy_broker.cli import output
from rocketpy_broker.cli.broker_client import DEFAULT_ENDPOINT, Endpoint, asking, refuse
from rocketpy_broker.cli.messages.commands import Queues
from rocketpy_broker.cli.messages.views import (
    json_of_resent,
    line_of,
    line_of_resent,
)
from rocketpy_broker.cli.output import Column
from rocketpy_broker.cli.times import time_option
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.messages.resend import resend_dead_letters
from rocketpy_broker.client.messages.retries import dead_letter_counts, dead_letters
from rocketpy_broker.messages.copies import origin_topic
from rocketpy_broker.messages.json_form import json_of
from rocketpy_proto.counts import counted

dlq_app = typer.Typer(
    help="Show dead letters of groups, and send them again.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
COUNTS = (
    Column("consumerGroup", "consumer group", itemgetter(0)),
    Column("deadLetters", "dead letters", itemgetter(1)),
)
GroupToResend = Annotated[
    str | None,
    typer.Argument(
        metavar="GROUP", help="The consumer group of the dead letters.", show_default=False
    ),
]
GroupToList = Annotated[
    str | None,
    typer.Argument(
        metavar="GROUP",
        help="The consumer group of the dead letters. Default: a count for each group.",
        show_default=False,
    ),
]
# The old form of GROUP, kept for scripts.
OldGroup = Annotated[str | None, typer.Option("--group", hidden=True)]
Keys = Annotated[
    list[str] | None,
    typer.Option("--key", help="Only dead letters with this key or unique id; may be repeated."),
]
Offsets = Annotated[
    list[int] | None,
    typer.Option("--offset", min=0, help="Only the dead letter at this offset; may be repeated."),
]

Begin = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="TIME",
        help="Only dead letters since this time, such as 2026-05-01T08:00:00Z.",
    ),
]


@dlq_app.command("list")
def list_of_group(
    group: GroupToList = None,
    old_group: OldGroup = None,
    key: Keys = None,
    offset: Offsets = None,
    queue: Queues = None,
    begin: Begin = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Show long bodies, tags and keys in full.")
    ] = False,
    as_json: output.AsJsonLines = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Show a group's dead letters, oldest first, or the count for each group.

    A line has the topic that the message was first sent to, store time, queue, offset, tags, keys
    and body.
    """
    group = _one_of(group, old_group)
    if group is None and (key or offset or queue or begin or whole):
        raise typer.BadParameter("--key, --offset, --queue, --from and --whole need a GROUP")
    since = None if begin is None else time_option(begin, "--from")
    with asking(endpoint) as connection:
        if group is None:
            _count(connection, as_json=as_json)
            return
        is_empty = True
        for letter in dead_letters(connection, group, key or (), offset or (), queue or (), since):
            is_empty = False
            if as_json:
                output.print_json(json_of(letter))
            else:
                line = line_of(letter, is_whole=whole)
                output.print_columns([origin_topic(letter) or output.ABSENT, *line])
        if is_empty and not as_json:
            is_chosen = bool(key or offset or queue or begin)
            typer.echo(f"rocketpy: {_none_text(group, is_chosen=is_chosen)}", err=True)


def _one_of(group: str | None, old_group: str | None) -> str | None:
    """Returns the group of the argument or of the old option. Raises typer.BadParameter."""
    if group is not None and old_group is not None:
        raise typer.BadParameter("give GROUP or --group, not both")
    return old_group if group is None else group


def _none_text(group: str, *, is_chosen: bool) -> str:
    those = "with these options; `rocketpy dlq list GROUP` shows all" if is_chosen else ""
    return f"consumer group {group!r} has no dead letters {those}".rstrip()


def _count(connection: BrokerConnection, *, as_json: bool) -> None:
    counts = dead_letter_counts(connection)
    output.print_entries(COUNTS, counts.items(), as_json=as_json)
    if not counts and not as_json:
        typer.echo("rocketpy: no consumer group has dead letters", err=True)


@dlq_app.command("resend")
def resend_of_group(
    group: GroupToResend = None,
    old_group: OldGroup = None,
    key: Keys = None,
    offset: Offsets = None,
    queue: Queues = None,
    begin: Begin = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="All dead letters; this is the default."),
    ] = False,
    to: Annotated[
        str | None,
        typer.Option(help="Topic to send them to. Default: the topic of each one's first send."),
    ] = None,
    as_json: output.AsJsonLines = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Send dead letters again, each to the topic that it was first sent to.

    Every group of that topic reads them. They are sent with the topic's message type; a topic of
    type DELAY delivers them at once. They stay dead letters, and a second command sends them a
    second time.
    """
    group = _one_of(group, old_group)
    if group is None:
        raise typer.BadParameter("name the GROUP of the dead letters")
    is_chosen = bool(key or offset or queue or begin)
    if everything and is_chosen:
        raise typer.BadParameter(
            "--all sends all dead letters; leave it out, or the options that select dead letters"
        )
    since = None if begin is None else time_option(begin, "--from")
    count = 0
    with asking(endpoint) as connection, _counting() as show_count:
        letters = dead_letters(connection, group, key or (), offset or (), queue or (), since)
        for resent in resend_dead_letters(connection, group, letters, to):
            count += 1
            place = resent.message.queue_offset
            if as_json:
                output.print_json({"deadLetterOffset": place, **json_of_resent(resent)})
            else:
                typer.echo(line_of_resent(f"dead letter {place}", resent))
            show_count(count)
        if not count:
            refuse(_none_text(group, is_chosen=is_chosen))
    if not as_json:
        typer.echo(f"sent {counted(count, 'dead letter')} again")


@contextmanager
def _counting() -> Iterator[Callable[[int], None]]:
    """Yields a function that shows a count on standard error.

    It shows the count only if standard error is a terminal and standard output is not.
    """
    console = Console(stderr=True)
    is_shown = console.is_terminal and not sys.stdout.isatty()
    column = TextColumn("dead letters sent: {task.completed}")
    with Progress(column, console=console, transient=True, disable=not is_shown) as bar:
        task = bar.add_task("", total=None)
        yield lambda count: bar.update(task, completed=count)
