"""`rocketpy client …`: consumers and producers of a running broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from rocketpy_broker.cli import output
from rocketpy_broker.cli.broker_client import DEFAULT_ENDPOINT, Endpoint, asking
from rocketpy_broker.cli.groups.views import last_heartbeat
from rocketpy_broker.cli.output import Column
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.group_admin import list_clients
from rocketpy_broker.client.groups import list_connections
from rocketpy_proto.rocketpy.v1 import groups_pb2

# A client's id, and its registration in a group.
Membership = tuple[str, groups_pb2.Registration]
CLIENTS = (
    Column("group", "group", lambda each: each[1].group),
    Column("role", "role", lambda each: "producer" if each[1].is_producer else "consumer"),
    Column("clientId", "client", lambda each: each[0]),
    Column("address", "address", lambda each: each[1].address),
    Column("lastUpdateTimestamp", "last heartbeat", lambda each: last_heartbeat(each[1])),
)
client_app = typer.Typer(help="Show clients.", no_args_is_help=True, rich_markup_mode=None)


@client_app.callback()
def client() -> None:
    """Show clients."""


@client_app.command("list")
def list_of_groups(
    group: Annotated[
        str | None, typer.Option(help="Only clients of this consumer group or producer group.")
    ] = None,
    as_json: output.AsJsonLines = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """List the clients that consume or produce, by group, and their last heartbeats."""
    with asking(endpoint) as connection:
        found = _all(connection) if group is None else _of_group(connection, group)
        count = output.print_entries(CLIENTS, found, as_json=as_json)
        if not count and not as_json:
            text = "this broker has no clients that send heartbeats"
            if group is not None:
                text = f"group {group!r} has no clients at this broker"
            typer.echo(f"rocketpy: {text}", err=True)


def _all(connection: BrokerConnection) -> Iterator[Membership]:
    for client in list_clients(connection):
        for registration in client.registrations:
            yield client.client_id, registration


def _of_group(connection: BrokerConnection, group: str) -> Iterator[Membership]:
    found = list_connections(connection, group)
    for is_producer, members in ((False, found.consumers), (True, found.producers)):
        for each in members:
            yield (
                each.client_id,
                groups_pb2.Registration(
                    group=group,
                    is_producer=is_producer,
                    address=each.address,
                    last_update_ms=each.last_update_ms,
                ),
            )
