"""The commands and their options. Holds no state; `rocketpy broker` keeps its own in --data."""

from __future__ import annotations

import typer

from rocketpy_broker.cli import broker_command, message_commands, store_commands, topic_commands

app = typer.Typer(
    name="rocketpy",
    help="A RocketMQ-compatible broker for laptops, tests and notebooks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("broker")(broker_command.broker)
app.command("lag")(topic_commands.lag)
app.command("stats")(message_commands.stats)
app.command("clean")(message_commands.clean)
app.add_typer(message_commands.message_app, name="message")
app.add_typer(topic_commands.topic_app, name="topic")
app.add_typer(store_commands.store_app, name="store")
