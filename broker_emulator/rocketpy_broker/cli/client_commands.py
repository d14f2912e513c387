"""`rocketpy client …`: who consumes and who produces with a group. Holds no state."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated

import typer

from rocketpy_broker.cli import output
from rocketpy_broker.cli.broker_client import DEFAULT_ENDPOINT, Endpoint, asking
from rocketpy_broker.client.groups import Client, list_clients

CONSUMER, PRODUCER = "consumer", "producer"
client_app = typer.Typer(
    help="Show the clients of a group.", no_args_is_help=True, rich_markup_mode=None
)


@client_app.callback()
def client() -> None:
    """Show the clients of a group."""


@client_app.command("list")
def list_of_group(
    group: Annotated[str, typer.Option(help="Consumer group, or producer group.")],
    as_json: output.AsJsonLines = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """List the clients that consume or produce with a group, and their last heartbeats."""
    with asking(endpoint) as connection:
        found = list_clients(connection, group)
        rows = [
            *((CONSUMER, client) for client in found.consumers),
            *((PRODUCER, client) for client in found.producers),
        ]
        if as_json:
            for role, client in rows:
                output.print_json(_json(role, client))
            return
        output.print_table(
            ("role", "client", "address", "last heartbeat"),
            [
                (role, client.client_id, client.address, _time(client.last_update_ms))
                for role, client in rows
            ],
        )
        if not rows:
            typer.echo(f"rocketpy: group {group!r} has no clients at this broker", err=True)


def _json(role: str, client: Client) -> dict[str, object]:
    return {
        "role": role,
        "clientId": client.client_id,
        "address": client.address,
        "lastUpdateTimestamp": _time(client.last_update_ms),
    }


def _time(time_ms: int) -> str:
    return output.time_text(datetime.fromtimestamp(time_ms / 1000, tz=timezone.utc))
