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
from tests.support.broker.clients.remoting_client import connected

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
    loop = asyncio.get_running_loop()
    with LocalBroker(tmp_path / "store") as broker, ExitStack() as closing:
        process = psutil.Process(broker.pid)
        host, _, port = broker.remoting_endpoint.rpartition(":")
        async with connected(int(port)) as probe:
            await probe.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
            before = most = process.memory_info().rss
            for _ in range(CLIENTS):
                stalled = closing.enter_context(socket.create_connection((host, int(port))))
                stalled.setblocking(False)
                closing.callback(asyncio.ensure_future(loop.sock_sendall(stalled, STALLED)).cancel)
            grown = time.monotonic()
            while time.monotonic() - grown < STEADY_SECONDS:
                answer = await probe.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
                assert answer.code == ResponseCode.SUCCESS
                rss = process.memory_info().rss
                if rss > most + 256 * KIB:
                    most, grown = rss, time.monotonic()
                await asyncio.sleep(0.01)
            assert 128 * MIB < most - before <= GROWTH_BYTES_MAX
            closing.close()
            while process.memory_info().rss > before + 64 * MIB:
                assert (await probe.ask(RequestCode.GET_ALL_TOPIC_CONFIG)).code == 0
                await asyncio.sleep(0.01)
