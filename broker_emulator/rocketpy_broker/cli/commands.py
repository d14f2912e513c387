"""All commands of `rocketpy`, in their groups.

A function here is the entry of a command or of a group in the help. It imports what it returns, so
that a command imports no module of another one.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from rocketpy_broker.cli.exits import interrupts_end_at_once
from rocketpy_broker.cli.user_credentials import sign_in


class Commands(TyperGroup):
    """The commands by name; each is imported when it runs or completes a word."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Returns a command's name, the command, and its arguments."""
        name, entry, left = super().resolve_command(ctx, args)
        if entry is None or entry.name is None:
            return name, entry, left
        return name, get_group(imported(entry.name)).commands[entry.name], left


app = typer.Typer(
    name="rocketpy",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    # Rich help would break long options and words at 80 columns.
    rich_markup_mode=None,
)


def imported(*names: str) -> typer.Typer:
    """Returns the commands and groups of these names, or all."""
    found = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)
    for each in app.registered_commands:
        if each.callback is not None and (not names or each.name in names):
            with interrupts_end_at_once():
                command = each.callback()
            if isinstance(command, typer.Typer):
                found.add_typer(command, name=each.name)
            else:
                found.command(each.name)(command)
    _add_connection_options(found)
    return found


def _add_connection_options(group: typer.Typer) -> None:
    """Adds the options of a connection to each command that connects to a broker."""
    from rocketpy_broker.cli.broker_client import with_connection_options

    for each in group.registered_commands:
        if each.callback is not None:
            each.callback = with_connection_options(each.callback)
    for below in group.registered_groups:
        if below.typer_instance is not None:
            _add_connection_options(below.typer_instance)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"rocketpy {version('pyspark-rocketpy')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[  # noqa: ARG001 (its callback ends the program)
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    access_key: Annotated[
        str,
        typer.Option(
            envvar="ROCKETPY_ACCESS_KEY", help="The user's access key, for a broker with users."
        ),
    ] = "",
    secret_key: Annotated[
        str,
        typer.Option(
            envvar="ROCKETPY_SECRET_KEY",
            help="The user's secret key. As an option, other users of this machine see it; in the "
            "environment, they do not.",
        ),
    ] = "",
) -> None:
    """Run a broker with RocketMQ's files, for laptops, tests and notebooks."""
    sign_in(access_key, secret_key)


@app.command("health")
def _health() -> Any:
    """Say whether a broker serves: exit code 0 if it does, else 1 and a line that says why."""
    from rocketpy_broker.cli.broker.health_command import health

    return health


@app.command("nameserver")
def _nameserver() -> Any:
    """Run a name server for brokers and clients of RocketMQ."""
    from rocketpy_broker.cli.broker.nameserver_command import nameserver

    return nameserver


@app.command("lag")
def _lag() -> Any:
    """Show the lag of consumer groups in topics."""
    from rocketpy_broker.cli.groups.lag_command import lag

    return lag


@app.command("stats")
def _stats() -> Any:
    """Show what the broker's store has counted since its start."""
    from rocketpy_broker.cli.broker.statistics_commands import stats

    return stats


@app.command("clean")
def _clean() -> Any:
    """Remove expired log segments now, whatever the hour."""
    from rocketpy_broker.cli.broker.operations_commands import clean

    return clean


@app.command("console")
def _console() -> Any:
    """Open a running broker's console in the browser, and print its address."""
    from rocketpy_broker.cli.broker.operations_commands import console

    return console


@app.command("broker")
def _broker() -> Any:
    """Start a broker, or show its status."""
    from rocketpy_broker.cli.broker.command_group import broker_app

    return broker_app


@app.command("client")
def _client() -> Any:
    """Show clients."""
    from rocketpy_broker.cli.groups.client_commands import client_app

    return client_app


@app.command("dlq")
def _dlq() -> Any:
    """Show dead letters of groups, and send them again."""
    from rocketpy_broker.cli.groups.dlq_commands import dlq_app

    return dlq_app


@app.command("group")
def _group() -> Any:
    """Show, change, reset and delete consumer groups."""
    from rocketpy_broker.cli.groups.commands import group_app

    return group_app


@app.command("message")
@cache
def _message() -> Any:
    """Send, follow and look up messages."""
    from rocketpy_broker.cli.messages import lookup_commands
    from rocketpy_broker.cli.messages.commands import message_app

    for command in (
        lookup_commands.query,
        lookup_commands.view,
        lookup_commands.resend,
        lookup_commands.recall,
    ):
        message_app.command()(command)
    return message_app


@app.command("topic")
@cache
def _topic() -> Any:
    """Create, change, list and delete topics."""
    from rocketpy_broker.cli.broker.statistics_commands import topic_stats
    from rocketpy_broker.cli.topics.commands import topic_app

    topic_app.command("stats")(topic_stats)
    return topic_app


@app.command("transaction")
def _transaction() -> Any:
    """Send messages in transactions, and end them."""
    from rocketpy_broker.cli.messages.transaction_commands import transaction_app

    return transaction_app


@app.command("user")
def _user() -> Any:
    """Create, change, list and remove users."""
    from rocketpy_broker.cli.broker.user_commands import user_app

    return user_app


@app.command("store")
@cache
def _store() -> Any:
    """Back up a store; check or export the store of a stopped broker."""
    from rocketpy_broker.cli.broker.backup_command import backup
    from rocketpy_broker.cli.broker.store_commands import store_app

    store_app.command("backup")(backup)
    return store_app
