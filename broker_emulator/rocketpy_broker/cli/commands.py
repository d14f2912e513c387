"""The commands and their options. Holds no state; `rocketpy broker` keeps its own in --data."""

from __future__ import annotations

import typer

from rocketpy_broker.cli import broker_command, topic_commands

app = typer.Typer(
    name="rocketpy",
    help="A RocketMQ-compatible broker for laptops, tests and notebooks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("broker")(broker_command.broker)
app.command("lag")(topic_commands.lag)
app.add_typer(topic_commands.topic_app, name="topic")
