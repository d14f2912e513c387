"""`rocketpy broker …`: a broker's start and its status."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from rocketpy_broker.cli import output
from rocketpy_broker.cli.broker.start_command import broker
from rocketpy_broker.cli.broker.status_fields import status_fields
from rocketpy_broker.cli.broker_client import DEFAULT_ENDPOINT, Endpoint, asking, refuse
from rocketpy_broker.client.brokers import await_master, broker_info, broker_status
from rocketpy_broker.client.brokers import promote as promote_slave
from rocketpy_broker.client.statistics import list_statistics, store_counters
from rocketpy_broker.config import BrokerRole

START, HELP = "start", "--help"
# Counters of all topics, the broker's own included.
COUNTED = ("BROKER_PUT_NUMS", "BROKER_GET_NUMS")


class StartByDefault(TyperGroup):
    """A command group with `start` as its default command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Inserts `start` if the arguments begin with an option other than --help."""
        is_named = bool(args) and (args[0] == HELP or not args[0].startswith("-"))
        return super().parse_args(ctx, args if is_named else [START, *args])


broker_app = typer.Typer(
    cls=StartByDefault,
    help="Start a broker, or show its status. Without a command, start a broker with the options "
    "of `rocketpy broker start`.",
    rich_markup_mode=None,
)
broker_app.command(START)(broker)


@broker_app.command("status")
def status(as_json: output.AsJson = False, endpoint: Endpoint = DEFAULT_ENDPOINT) -> None:
    """Show the status of a running broker: store, disk, speeds, waiting messages, clients."""
    with asking(endpoint) as connection:
        fields: dict[str, Any] = status_fields(
            broker_info(connection),
            broker_status(connection),
            store_counters(connection),
            {each.name: each for each in list_statistics(connection, COUNTED)},
        )
        if as_json:
            output.print_json(fields)
            return
        folders = {f"{each['role']} directory": each["path"] for each in fields.pop("directories")}
        shown = {**fields, **folders}
        output.print_fields({name: _shown(shown[name]) for name in sorted(shown)})


@broker_app.command("promote")
def promote(
    force: Annotated[
        bool, typer.Option("--force", help="Promote even while the master serves the slave.")
    ] = False,
    broker_role: Annotated[
        str, typer.Option(help="ASYNC_MASTER, or SYNC_MASTER, which waits for a slave.")
    ] = BrokerRole.ASYNC_MASTER.value,
    as_json: output.AsJson = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Make a slave the master, after its master was stopped for good.

    The command ends when the broker serves as the master. Clients connect again. The old master may
    come back as a slave of this broker. Before that run `rocketpy store align`: it removes messages
    that only the old master has, and keeps a copy of them.
    """
    with asking(endpoint) as connection:
        found = promote_slave(connection, role=broker_role, force=force)
        fields = {
            "epoch": found.epoch,
            "logEndOffset": found.log_end_offset,
            "missingBytes": found.missing_bytes,
        }
        show = output.print_json if as_json else output.print_fields
        show(fields)
        if not await_master(connection):
            refuse(
                f"the broker at {endpoint} is promoted, but does not serve as the master yet. Its "
                "log has the reason; `rocketpy health` succeeds once it serves"
            )


def _shown(value: object) -> output.Cell:
    if value is None:
        return output.ABSENT
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(part)}" for name, part in value.items())
    if isinstance(value, list):
        return _shown_list(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4f}"
    return value if isinstance(value, int) else str(value)


def _shown_list(value: list[Any]) -> str:
    if all(isinstance(each, dict) for each in value):
        return ", ".join(" ".join(str(part) for part in each.values() if part) for each in value)
    return " ".join(f"{each:.2f}" for each in value)
