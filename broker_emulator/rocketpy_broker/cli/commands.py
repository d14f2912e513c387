"""All commands of `rocketpy`, in their groups."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from rocketpy_broker.cli.broker import (
    backup_command,
    health_command,
    operations_commands,
    statistics_commands,
    store_commands,
)
from rocketpy_broker.cli.broker import command_group as broker_group
from rocketpy_broker.cli.groups import client_commands, dlq_commands, lag_command
from rocketpy_broker.cli.groups import commands as group_commands
from rocketpy_broker.cli.messages import commands as message_commands
from rocketpy_broker.cli.messages import lookup_commands, transaction_commands
from rocketpy_broker.cli.mqadmin.aliases import WithMqadminNames
from rocketpy_broker.cli.topics import commands as topic_commands

app = typer.Typer(
    name="rocketpy",
    cls=WithMqadminNames,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    # Rich help would break long options and words at 80 columns.
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rocketpy {version('pyspark-rocketpy')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """A RocketMQ-compatible broker for laptops, tests and notebooks."""


app.add_typer(broker_group.broker_app, name="broker")
app.command("health")(health_command.health)
app.command("lag")(lag_command.lag)
app.command("stats")(statistics_commands.stats)
app.command("clean")(operations_commands.clean)
for _command in (
    lookup_commands.query,
    lookup_commands.view,
    lookup_commands.resend,
    lookup_commands.recall,
):
    message_commands.message_app.command()(_command)
topic_commands.topic_app.command("stats")(statistics_commands.topic_stats)
store_commands.store_app.command("backup")(backup_command.backup)
app.add_typer(client_commands.client_app, name="client")
app.add_typer(dlq_commands.dlq_app, name="dlq")
app.add_typer(group_commands.group_app, name="group")
app.add_typer(message_commands.message_app, name="message")
app.add_typer(topic_commands.topic_app, name="topic")
app.add_typer(transaction_commands.transaction_app, name="transaction")
app.add_typer(store_commands.store_app, name="store")
