"""The bytes that a connection has received, as the system reports them."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.server.calls import connection_traffic
from rocketpy_broker.server.calls.connection_traffic import ConnectionTraffic, Traffic
from tests.broker.conftest import StartBroker, until

pytestmark = pytest.mark.skipif(
    not connection_traffic.is_told(ManualClock()),
    reason="this system counts no received bytes",
)


def connect(closing: ExitStack) -> tuple[socket.socket, socket.socket, str]:
    """Returns two connected sockets, and the name of the second one's peer."""
    listening = closing.enter_context(socket.create_server(("127.0.0.1", 0)))
    client = closing.enter_context(socket.create_connection(listening.getsockname()))
    connection = closing.enter_context(listening.accept()[0])
    return client, connection, "ipv4:{}:{}".format(*client.getsockname())


def received_of(traffic: ConnectionTraffic, *peers: str) -> list[int | None]:
    found = traffic.look(peers)
    return [found[peer].received if peer in found else None for peer in peers]


def test_n14_each_connection_has_what_it_sent_and_received() -> None:
    with ExitStack() as closing:
        client, connection, peer = connect(closing)
        _, _, another = connect(closing)
        traffic = ConnectionTraffic(ManualClock())
        assert received_of(traffic, peer) == [0]
        client.sendall(bytes(1_000))
        connection.recv(1_000, socket.MSG_WAITALL)
        assert received_of(traffic, peer, another) == [1_000, 0]
        connection.sendall(bytes(500))
        client.recv(500, socket.MSG_WAITALL)
        while not traffic.look([peer])[peer].sent:
            pass
        assert traffic.look([peer])[peer] == Traffic(sent=500, received=1_000)


def test_n14_looking_keeps_no_connection_open() -> None:
    with ExitStack() as closing:
        client, connection, peer = connect(closing)
        assert received_of(ConnectionTraffic(ManualClock()), peer) == [0]
        connection.close()
        client.settimeout(10)
        assert client.recv(1) == b""


def test_n14_a_descriptor_that_became_another_connection_s_tells_nothing() -> None:
    with ExitStack() as closing:
        _, connection, peer = connect(closing)
        _, other, another = connect(closing)
        traffic = ConnectionTraffic(ManualClock())
        assert received_of(traffic, peer) == [0]
        os.dup2(other.fileno(), connection.fileno())
        assert received_of(traffic, peer, another) == [None, 0]


def test_n14_a_descriptor_that_was_closed_or_became_a_file_s_tells_nothing() -> None:
    with ExitStack() as closing:
        _, connection, peer = connect(closing)
        traffic = ConnectionTraffic(ManualClock())
        assert received_of(traffic, peer) == [0]
        with Path(os.devnull).open("rb") as file:
            os.dup2(file.fileno(), connection.fileno())
        assert received_of(traffic, peer) == [None]
        connection.close()
        assert received_of(traffic, peer) == [None]


def test_n14_searches_take_no_more_than_their_share_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock()
    found = {"ipv4:10.0.0.1:1": 3}
    searches = []

    def search() -> dict[str, int]:
        clock.advance(70)
        searches.append(clock.monotonic_ms())
        return found

    monkeypatch.setattr(connection_traffic, "_connections", search)
    traffic = ConnectionTraffic(clock)
    for _ in range(10_000):
        traffic.look(["ipv4:10.0.0.1:2"])
        clock.advance(1)
    assert len(searches) == 10_000 // (70 * connection_traffic.SEARCH_SHARE) + 1


def test_n14_a_system_that_tells_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_traffic, "DESCRIPTORS", Path("/proc/self/none"))
    assert not connection_traffic.is_told(ManualClock())


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_n14_the_connections_of_grpc_are_found(start_broker: StartBroker, host: str) -> None:
    if ":" in host and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    async with start_broker(host=host) as running:
        requests = running.broker.server.unfinished
        target = f"[{host}]:{running.ready.port}" if ":" in host else f"{host}:{running.ready.port}"
        async with grpc.aio.insecure_channel(target) as channel:
            call: Any = channel.stream_unary("/rocketpy.v1.Admin/ListTopics")()
            await until(lambda: len(requests) == 1)
            [context] = requests._reads
            [count] = received_of(ConnectionTraffic(ManualClock()), context.peer())
            assert count is not None
            assert count > 0
            call.cancel()
