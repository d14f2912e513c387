"""`rocketpy client …`: consumers and producers of a running broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from rocketpy_broker.cli import output
from rocketpy_broker.cli.broker_client import DEFAULT_ENDPOINT, Endpoint, asking
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.group_admin import Membership, list_memberships
from rocketpy_broker.client.groups import Client, list_clients
from rocketpy_broker.runtime.time_format import time_of_ms

CONSUMER, PRODUCER = "consumer", "producer"
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
        found = list_memberships(connection) if group is None else _of_group(connection, group)
        if as_json:
            for each in found:
                output.print_json(_json(each))
            return
        count = 0

        def rows() -> Iterator[tuple[str, str, str, str, str]]:
            nonlocal count
            for each in found:
                count += 1
                time = time_of_ms(each.last_update_ms)
                yield each.group, _role(each), each.client_id, each.address, time

        output.print_table(("group", "role", "client", "address", "last heartbeat"), rows())
        if not count:
            text = "this broker has no clients that send heartbeats"
            if group is not None:
                text = f"group {group!r} has no clients at this broker"
            typer.echo(f"rocketpy: {text}", err=True)


def _of_group(connection: BrokerConnection, group: str) -> Iterator[Membership]:
    found = list_clients(connection, group)
    for each in found.consumers:
        yield _membership(group, each, is_producer=False)
    for each in found.producers:
        yield _membership(group, each, is_producer=True)


def _membership(group: str, client: Client, *, is_producer: bool) -> Membership:
    return Membership(group, client.client_id, is_producer, client.address, client.last_update_ms)


def _role(membership: Membership) -> str:
    return PRODUCER if membership.is_producer else CONSUMER


def _json(membership: Membership) -> dict[str, object]:
    return {
        "group": membership.group,
        "role": _role(membership),
        "clientId": membership.client_id,
        "address": membership.address,
        "lastUpdateTimestamp": time_of_ms(membership.last_update_ms),
    }
