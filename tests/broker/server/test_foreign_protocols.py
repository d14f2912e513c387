"""Clients of other protocols at the port: a sentence for the client, a line in the log."""

from __future__ import annotations

import json
import logging
import socket
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.server.calls.failure_log import PeerLines
from rocketpy_broker.server.grpc import foreign_protocols
from rocketpy_broker.server.grpc.connection_table import closed_peers
from tests.support.broker.running_broker import RunningBroker, StartBroker, until

# RocketMQ's interface has this service; no SDK calls it.
ADMIN = "/apache.rocketmq.v2.Admin"
# The frame of a classic client that asks for a topic's route.
HEADER = json.dumps({"code": 105, "language": "JAVA", "version": 477, "opaque": 1, "flag": 0})
FRAME = (len(HEADER) + 4).to_bytes(4, "big") + len(HEADER).to_bytes(4, "big") + HEADER.encode()
STRANGERS = {
    "remoting": FRAME,
    "HTTP/1": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(195),
}
is_listed = pytest.mark.skipif(
    not Path("/proc/net/tcp").exists(), reason="this system lists no connections"
)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == foreign_protocols.__name__]


async def refusal(running: RunningBroker, path: str) -> str:
    channel: Any = running.channel
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await channel.unary_unary(path)(b"")
    assert ended.value.code() is grpc.StatusCode.UNIMPLEMENTED
    return str(ended.value.details())


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/rocketpy.v1.Broker/NewInAnotherVersion", "client and broker are of different versions"),
        ("/rocketpy.v1.Admin/Other", "Install the same version of rocketpy at both"),
        ("/rocketpy.v2.Broker/Pull", "this broker serves grpc.health.v1.Health"),
        ("/other.Service/Method", "rocketpy.v1.Broker"),
        (f"{ADMIN}/VerifyMessage", "apache.rocketmq.v2.MessagingService"),
    ],
)
async def test_b12_a_method_that_is_not_there_is_refused_by_a_sentence(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture, path: str, words: str
) -> None:
    async with start_broker() as running:
        reason = await refusal(running, path)
    assert reason.startswith(f"{path[1:]} is not served: ")
    assert words in reason
    assert len(lines(caplog)) == 1


async def test_b12_refused_calls_have_one_line_a_minute(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with start_broker() as running:
        for _ in range(5):
            await refusal(running, f"{ADMIN}/GetTopicRoute")
        assert len(lines(caplog)) == 1
        running.clock.advance(60_000)
        await refusal(running, f"{ADMIN}/{'x' * 4_000}")
    assert [each.rpartition("; ")[2][:6] for each in lines(caplog)] == ["0 more", "4 more"]
    assert len(lines(caplog)[1]) < 600


def send_to(running: RunningBroker, data: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", running.ready.port))
    connection.setblocking(False)
    connection.sendall(data)
    return connection


async def closed_by_the_broker(running: RunningBroker, connection: socket.socket) -> None:
    """Waits for the end of a connection, and for its line in the system's table."""

    def is_over() -> bool:
        try:
            return connection.recv(4096) == b""
        except BlockingIOError:
            return False

    await until(is_over)
    peer = "ipv4:{}:{}".format(*connection.getsockname())
    connection.close()
    while peer not in await closed_peers(running.ready.port):
        pass


@is_listed
@pytest.mark.parametrize("name", STRANGERS)
async def test_b12_a_connection_of_another_protocol_is_closed_and_logged(
    caplog: pytest.LogCaptureFixture, name: str, running: RunningBroker
) -> None:
    await closed_by_the_broker(running, send_to(running, STRANGERS[name]))
    running.clock.advance(foreign_protocols.LOG_INTERVAL_MS)
    await until(lambda: bool(lines(caplog)))
    (line,) = lines(caplog)
    assert line.startswith("closed a connection of ipv4:127.0.0.1: it sent no gRPC")
    assert name in line
    assert "need the name server at --name-server-port" in line
    # The same connection is not logged again; another one is, a minute later.
    running.clock.advance(60_000)
    await running.broker.server.unserved.log_closed()
    assert len(lines(caplog)) == 1
    await closed_by_the_broker(running, send_to(running, STRANGERS[name]))
    await running.broker.server.unserved.log_closed()
    assert len(lines(caplog)) == 2


@is_listed
async def test_b12_connections_with_calls_and_probes_are_not_logged(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with start_broker() as running:
        health: Any = health_pb2_grpc.HealthStub(running.channel)
        await health.Check(health_pb2.HealthCheckRequest())
        # A probe of the port, which sends nothing and leaves.
        send_to(running, b"").close()
        await running.channel.close()
        await running.broker.server.unserved.log_closed()
    assert not lines(caplog)


async def test_b12_a_connection_that_had_calls_is_not_logged_when_the_broker_closes_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def closed() -> set[str]:
        return {"ipv4:10.0.0.1:1", "ipv4:10.0.0.2:1"}

    lines_ = PeerLines(ManualClock())
    looking = foreign_protocols.ForeignConnections(
        *(ManualClock(), lines_, closed, lambda peer: peer == "ipv4:10.0.0.1:1"),
        foreign_protocols.PLAINTEXT_PORT,
    )
    with caplog.at_level(logging.WARNING):
        await looking.log_closed()
    assert ["10.0.0.2" in each for each in lines(caplog)] == [True]


@is_listed
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_b12_peers_in_the_system_s_table_are_named_as_grpc_names_them(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip(f"this system has no {host}")
    with listening:
        port = listening.getsockname()[1]
        client = socket.create_connection((host, port))
        connection, _ = listening.accept()
        own = client.getsockname()[1]
        peer = f"ipv6:%5B::1%5D:{own}" if ":" in host else f"ipv4:127.0.0.1:{own}"
        assert peer not in await closed_peers(port)
        connection.close()
        assert peer in await closed_peers(port)
        client.close()
        assert peer in await closed_peers(port)
