"""Each mode of TLS at each port, for clients of each kind."""

from __future__ import annotations

import logging
import socket
from contextlib import closing

import pytest

from rocketpy_broker.config import TlsMode
from rocketpy_broker.embedded.process import ReservedPort
from rocketpy_broker.server.bind_address import PortInUseError
from rocketpy_broker.server.calls import failure_log
from rocketpy_broker.server.grpc import foreign_protocols
from tests.broker.remoting.test_sends_and_pulls import bodies, pull, send
from tests.broker.security.tls.callers import (
    Ask,
    ask_grpc,
    ask_http,
    ask_remoting,
    is_served,
    opened,
    tls_port,
)
from tests.support.broker.clients.remoting_client import RemotingClient, StartNameServer
from tests.support.broker.running_broker import RunningBroker, StartBroker, until
from tests.support.broker.tls_files import TlsFiles

ALL = {"remoting_port": 0, "name_server_port": 0, "http_port": 0}
MODES = [
    (TlsMode.DISABLED, False),
    (TlsMode.PERMISSIVE, False),
    (TlsMode.PERMISSIVE, True),
    (TlsMode.ENFORCING, False),
    (TlsMode.ENFORCING, True),
]


def is_welcome(mode: TlsMode, name: str, *, is_mutual: bool) -> bool:
    if name == "plaintext":
        return mode is not TlsMode.ENFORCING
    if mode is TlsMode.DISABLED or name == "trusting another authority":
        return False
    return name == "with a certificate" or not is_mutual


def ports(running: RunningBroker, *, is_tls: bool) -> dict[str, tuple[Ask, int | None]]:
    ready = running.ready
    return {
        "gRPC": (ask_grpc, tls_port(ready) if is_tls else ready.port),
        "remoting": (ask_remoting, ready.remoting_port),
        "name server": (ask_remoting, ready.name_server_port),
        "HTTP": (ask_http, ready.http_port),
    }


@pytest.mark.parametrize(("mode", "is_mutual"), MODES)
async def test_n9_each_port_serves_the_clients_of_its_mode_alone(
    start_broker: StartBroker, tls_files: TlsFiles, mode: TlsMode, is_mutual: bool
) -> None:
    served, expected = {}, {}
    async with start_broker(tls=tls_files.tls(mode, is_mutual=is_mutual), **ALL) as running:
        assert (running.ready.tls_port is None) == (mode is not TlsMode.PERMISSIVE)
        for name, tls in tls_files.clients.items():
            for port_name, (ask, port) in ports(running, is_tls=tls is not None).items():
                served[name, port_name] = await is_served(ask, port, tls)
                expected[name, port_name] = is_welcome(mode, name, is_mutual=is_mutual)
        assert not running.broker.server.guard.running
    assert served == expected


@pytest.mark.parametrize(("mode", "is_mutual"), MODES[1:])
async def test_n9_a_name_server_in_its_own_process_serves_the_same_clients(
    start_name_server: StartNameServer, tls_files: TlsFiles, mode: TlsMode, is_mutual: bool
) -> None:
    async with start_name_server(tls=tls_files.tls(mode, is_mutual=is_mutual)) as running:
        for name, tls in tls_files.clients.items():
            is_expected = is_welcome(mode, name, is_mutual=is_mutual)
            assert await is_served(ask_remoting, running.port, tls) == is_expected, name


async def test_a_chosen_tls_port_is_bound(start_broker: StartBroker, tls_files: TlsFiles) -> None:
    with closing(ReservedPort()) as port:
        async with start_broker(tls=tls_files.tls(port=port.number)) as running:
            assert running.ready.tls_port == port.number
            assert await is_served(ask_grpc, port.number, tls_files.authority.client())


async def test_a_tls_port_in_use_is_an_error_with_its_option(
    start_broker: StartBroker, tls_files: TlsFiles
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        tls = tls_files.tls(port=taken.getsockname()[1])
        with pytest.raises(PortInUseError, match="choose another --tls-port"):
            async with start_broker(tls=tls):
                pass


async def test_connections_of_both_grpc_ports_are_counted(
    start_broker: StartBroker, tls_files: TlsFiles
) -> None:
    async with (
        start_broker(tls=tls_files.tls()) as running,
        opened(tls_port(running.ready), None),
        opened(running.ready.port, None),
    ):
        while await running.broker.server.connection_count() < 2:
            pass


@pytest.mark.parametrize("port_name", ["remoting", "name server", "HTTP"])
async def test_plaintext_at_an_enforcing_port_is_closed_and_logged_once(
    start_broker: StartBroker,
    tls_files: TlsFiles,
    caplog: pytest.LogCaptureFixture,
    port_name: str,
) -> None:
    async with start_broker(tls=tls_files.tls(TlsMode.ENFORCING), **ALL) as running:
        ask, port = ports(running, is_tls=True)[port_name]
        for _ in range(5):
            assert not await is_served(ask, port, None)
    (line,) = [each.getMessage() for each in caplog.records if each.name == failure_log.__name__]
    assert "it sent plaintext, and --tls-mode is enforcing: connect with TLS" in line


@pytest.mark.parametrize("port_name", ["remoting", "name server", "HTTP"])
async def test_tls_at_a_plaintext_port_is_closed_and_logged_once(
    start_broker: StartBroker,
    tls_files: TlsFiles,
    caplog: pytest.LogCaptureFixture,
    port_name: str,
) -> None:
    async with start_broker(**ALL) as running:
        ask, port = ports(running, is_tls=True)[port_name]
        for _ in range(5):
            assert not await is_served(ask, port, tls_files.authority.client())
    (line,) = [each.getMessage() for each in caplog.records if "TLS" in each.getMessage()]
    assert "start the" in line
    assert "--tls-certificate or --tls-self-signed" in line


@pytest.mark.parametrize("mode", [TlsMode.PERMISSIVE, TlsMode.ENFORCING])
async def test_plaintext_at_a_tls_port_of_grpc_is_logged_once(
    start_broker: StartBroker, tls_files: TlsFiles, caplog: pytest.LogCaptureFixture, mode: TlsMode
) -> None:
    def lines() -> list[str]:
        name = foreign_protocols.__name__
        return [each.getMessage() for each in caplog.records if each.name == name]

    async with start_broker(tls=tls_files.tls(mode)) as running:
        for _ in range(3):
            assert not await is_served(ask_grpc, tls_port(running.ready), None)
        running.clock.advance(foreign_protocols.LOG_INTERVAL_MS)
        await until(lambda: bool(lines()))
    assert "connect with TLS" in lines()[0]
    assert len(lines()) == 1


async def test_a_failed_handshake_is_logged_with_its_reason(
    start_broker: StartBroker, tls_files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with start_broker(tls=tls_files.tls(is_mutual=True), **ALL) as running:
            port = running.ready.remoting_port
            assert not await is_served(ask_remoting, port, tls_files.authority.client())
    (line,) = [each.getMessage() for each in caplog.records if each.name == failure_log.__name__]
    assert "PEER_DID_NOT_RETURN_A_CERTIFICATE" in line
    assert "--tls-client-ca" in line


async def test_large_frames_go_both_ways_in_tls(
    start_broker: StartBroker, tls_files: TlsFiles
) -> None:
    body = bytes(range(256)) * (12 << 10)
    large = {"commit_log_segment_bytes": 8 << 20}
    async with start_broker(tls=tls_files.tls(), **large, **ALL) as running:
        await running.create_topic("T")
        port = running.ready.remoting_port or 0
        async with opened(port, tls_files.authority.client()) as (reader, writer):
            client = RemotingClient(reader, writer)
            for _ in range(2):
                await send(client, body)
            answers = [await pull(client, queue_offset=offset) for offset in range(2)]
    assert [bodies(answer) for answer in answers] == [[body], [body]]
