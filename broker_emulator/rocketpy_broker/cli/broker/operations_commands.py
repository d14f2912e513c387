"""`rocketpy clean`: cleanup of a running broker's store. `rocketpy console`: its pages."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from rocketpy_broker.cli import output
from rocketpy_broker.cli.broker.status_fields import waiting_line
from rocketpy_broker.cli.broker_client import (
    DEFAULT_ENDPOINT,
    Endpoint,
    asking,
    refuse,
    tls_config,
)
from rocketpy_broker.client.brokers import broker_info
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.contract_json import json_of
from rocketpy_broker.server.bind_address import console_url
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


def console(
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address, and open no browser.")
    ] = False,
    as_json: output.AsJson = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Open a running broker's console in the browser, and print its address."""
    with asking(endpoint) as connection:
        port = broker_info(connection).console_port
        if not port:
            refuse("the broker has no console; start it with --http-port and --console on")
    url = console_url(endpoint.rpartition(":")[0], port, is_tls=tls_config() is not None)
    if as_json:
        output.print_json({"consoleUrl": url})
    else:
        typer.echo(url)
    if not no_browser and not webbrowser.open(url):
        typer.echo("rocketpy: no browser can be started here; open the address yourself", err=True)


def _clean_unused_topics(connection: BrokerConnection, *, as_json: bool) -> None:
    response = connection.ask(
        connection.admin.CleanUnusedTopics, admin_pb2.CleanUnusedTopicsRequest(), CLEAN_SECONDS
    )
    if as_json:
        output.print_json(json_of(response))
        return
    typer.echo(f"removed the messages of {counted(len(response.topics), 'topic')}")
