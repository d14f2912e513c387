"""`rocketpy clean`: cleanup of a running broker's store."""

from __future__ import annotations

from typing import Annotated

import typer

from rocketpy_broker.cli import output
from rocketpy_broker.cli.broker.status_fields import waiting_line
from rocketpy_broker.cli.broker_client import DEFAULT_ENDPOINT, Endpoint, asking
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.contract_json import json_of
from rocketpy_proto.counts import counted
from rocketpy_proto.rocketpy.v1 import admin_pb2

CLEAN_SECONDS = 600.0


def clean(
    unused_topics: Annotated[
        bool,
        typer.Option(
            "--unused-topics", help="Remove the messages of topics that are not configured."
        ),
    ] = False,
    as_json: output.AsJson = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Remove expired log segments now, whatever the hour."""
    with asking(endpoint) as connection:
        if unused_topics:
            _clean_unused_topics(connection, as_json=as_json)
            return
        response = connection.ask(
            connection.admin.CleanExpiredFiles, admin_pb2.CleanExpiredFilesRequest(), CLEAN_SECONDS
        )
    if as_json:
        output.print_json(json_of(response))
        return
    typer.echo(
        f"removed {counted(response.removed_file_count, 'log segment')}; "
        f"the log begins at {response.log_begin_offset}"
    )
    for each in response.waiting_segments:
        typer.echo(waiting_line(each))
    if not response.waiting_segments:
        typer.echo("no other segment waits for removal; the broker keeps the newest one")


def _clean_unused_topics(connection: BrokerConnection, *, as_json: bool) -> None:
    response = connection.ask(
        connection.admin.CleanUnusedTopics, admin_pb2.CleanUnusedTopicsRequest(), CLEAN_SECONDS
    )
    if as_json:
        output.print_json(json_of(response))
        return
    typer.echo(f"removed the messages of {counted(len(response.topics), 'topic')}")
