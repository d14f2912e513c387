"""A hundred clients of a real broker with large requests that stay incomplete."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from contextlib import ExitStack
from pathlib import Path

import psutil

from rocketpy_broker import LocalBroker
from rocketpy_broker.config import KIB, MIB
from rocketpy_broker.server.remoting.connection import SMALL_FRAME_BYTES
from rocketpy_broker.server.remoting.server import LARGE_FRAMES_MAX
from rocketpy_proto.model.codes import RequestCode, ResponseCode
from rocketpy_proto.remoting import FRAME_BYTES_MAX
from tests.support.broker.clients.remoting_client import RemotingClient, connected

CLIENTS = 100
# Each place for a large frame, twice: a frame that grows is copied, and the process keeps the old
# copy's memory. And a small part of each client's frame.
GROWTH_BYTES_MAX = 2 * LARGE_FRAMES_MAX * FRAME_BYTES_MAX + CLIENTS * SMALL_FRAME_BYTES + 8 * MIB
# The largest frame without its last byte.
STALLED = struct.pack(">i", FRAME_BYTES_MAX - 4) + bytes(FRAME_BYTES_MAX - 5)
STEADY_SECONDS = 1.0


async def test_n14_a_hundred_clients_of_rocketmq_that_stall_take_bounded_memory(
    tmp_path: Path,
) -> None:
    """Asserts the bound for clients that stall one after the other, too.

    The C library need not return freed memory to the system, so later clients must find it.
    """
    with LocalBroker(tmp_path / "store") as broker:
        process = psutil.Process(broker.pid)
        host, _, port = broker.remoting_endpoint.rpartition(":")
        async with connected(int(port)) as probe:
            await probe.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
            before = process.memory_info().rss
            for _ in range(2):
                enough = before + 128 * MIB
                most = await _most_with_stalled_clients(process, probe, (host, int(port)), enough)
                assert most - before <= GROWTH_BYTES_MAX


async def _most_with_stalled_clients(
    process: psutil.Process, probe: RemotingClient, address: tuple[str, int], enough: int
) -> int:
    """Returns the most memory of the broker, `enough` or more, while new clients stall.

    `probe` gets answers meanwhile.
    """
    loop = asyncio.get_running_loop()
    with ExitStack() as closing:
        for _ in range(CLIENTS):
            stalled = closing.enter_context(socket.create_connection(address))
            stalled.setblocking(False)
            closing.callback(asyncio.ensure_future(loop.sock_sendall(stalled, STALLED)).cancel)
        most, grown = 0, time.monotonic()
        while most < enough or time.monotonic() - grown < STEADY_SECONDS:
            answer = await probe.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
            assert answer.code == ResponseCode.SUCCESS
            rss = process.memory_info().rss
            if rss > most + 256 * KIB:
                most, grown = rss, time.monotonic()
            await asyncio.sleep(0.01)
        return most
