"""`rocketpy nameserver`: a name server until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from rocketpy_broker.broker_program import LOG_FORMAT, LogLevelName
from rocketpy_broker.cli.broker.network_options import (
    TlsCertificate,
    TlsClientCa,
    TlsKey,
    TlsModeName,
    TlsSelfSigned,
    server_tls,
)
from rocketpy_broker.cli.broker.start_command import LogLevel
from rocketpy_broker.errors import BrokerError
from rocketpy_broker.nameserver.name_server import NameServer, NameServerConfig
from rocketpy_broker.runtime import process_tuning
from rocketpy_broker.runtime.standard_output import print_line
from rocketpy_broker.server.bind_address import ListenAddress
from rocketpy_proto.texts import address_text


def nameserver(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port; 0 for a free one.")] = 9876,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Allow a --host that other machines may reach."),
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of kvConfig.json. Default: the configuration is not kept."),
    ] = None,
    order_message_enable: Annotated[
        bool, typer.Option(help="orderMessageEnable: routes name the queues of ordered topics.")
    ] = False,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    tls_self_signed: TlsSelfSigned = False,
    tls_mode: TlsModeName = None,
    log_level: LogLevel = LogLevelName.WARNING,
) -> None:
    """Run a name server for brokers and clients of RocketMQ."""
    tls = server_tls(
        tls_mode, tls_certificate, tls_key, tls_client_ca, is_self_signed=tls_self_signed
    )
    logging.basicConfig(format=LOG_FORMAT, level=log_level.value.upper())
    process_tuning.tune()
    config = NameServerConfig(
        ListenAddress(host, port, "--port"), insecure, data, order_message_enable, tls
    )
    try:
        asyncio.run(_run(config))
    except (BrokerError, OSError) as error:
        sys.exit(f"rocketpy nameserver: {error}")


async def _run(config: NameServerConfig) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    ready: asyncio.Future[int] = loop.create_future()
    ready.add_done_callback(lambda _: process_tuning.freeze_start_objects())
    ready.add_done_callback(lambda done: _print_ready(config.address.host, done.result()))
    await NameServer(config).serve_until(stopped, ready)
    print_line("rocketpy nameserver stopped")


def _print_ready(host: str, port: int) -> None:
    print_line(f"rocketpy nameserver ready on {address_text(host, port)}")
