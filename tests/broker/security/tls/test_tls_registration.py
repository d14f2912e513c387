"""A broker that registers at a name server with TLS."""

from __future__ import annotations

import logging
import re

import pytest

from rocketpy_broker.config import TlsMode
from rocketpy_proto.tls import TlsConfig
from tests.broker.registration.test_registrations import registered
from tests.support.broker.clients.remoting_client import StartNameServer
from tests.support.broker.running_broker import StartBroker, until
from tests.support.broker.tls_files import TlsFiles

ENFORCING = TlsMode.ENFORCING


async def test_a_broker_registers_with_its_certificate(
    start_broker: StartBroker, start_name_server: StartNameServer, tls_files: TlsFiles
) -> None:
    own = tls_files.authority.client(tls_files.authority.issue("broker"))
    async with start_name_server(tls=tls_files.tls(ENFORCING, is_mutual=True)) as name_server:
        address = f"127.0.0.1:{name_server.port}"
        async with start_broker(remoting_port=0, name_servers=(address,), name_server_tls=own):
            await registered(name_server)
            # The address of the broker is that of its connection.
            assert name_server.server.routes.topics


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("trusting another authority", "certificate is not accepted.*--name-server-tls-ca"),
        ("plaintext", "the connection of .* has ended"),
    ],
)
async def test_a_failed_registration_names_the_reason(
    start_broker: StartBroker,
    start_name_server: StartNameServer,
    tls_files: TlsFiles,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    reason: str,
) -> None:
    await fails(start_broker, start_name_server, tls_files, caplog, tls_files.clients[kind], reason)


async def test_a_name_server_without_tls_is_named(
    start_broker: StartBroker,
    start_name_server: StartNameServer,
    tls_files: TlsFiles,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tls = tls_files.authority.client()
    reason = "TLS handshake.*check that it serves TLS"
    await fails(start_broker, start_name_server, None, caplog, tls, reason)


async def fails(
    start_broker: StartBroker,
    start_name_server: StartNameServer,
    tls_files: TlsFiles | None,
    caplog: pytest.LogCaptureFixture,
    tls: TlsConfig | None,
    reason: str,
) -> None:
    """Registers a broker in vain, and compares the log line."""

    def lines() -> list[str]:
        texts = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
        return [text for text in texts if text.startswith("the broker is not registered")]

    server = {} if tls_files is None else {"tls": tls_files.tls(ENFORCING)}
    async with start_name_server(**server) as name_server:
        address = f"127.0.0.1:{name_server.port}"
        async with start_broker(remoting_port=0, name_servers=(address,), name_server_tls=tls):
            await until(lambda: bool(lines()))
    assert re.search(reason, lines()[0]), lines()
