"""Clients of a real broker with requests that stay incomplete, or come slowly."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.config import KIB, MIB
from rocketpy_broker.server.calls.incomplete_requests import READS_MAX, UNFINISHED_MS_MAX
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import admin_pb2, admin_pb2_grpc, broker_pb2, broker_pb2_grpc
from tests.broker.server.raw_http2 import RawConnection
from tests.broker.server.slow_link import SlowLink
from tests.support.blocks import wire_block
from tests.support.broker.running_broker import RunningBroker, until

CLIENTS, BYTES_EACH, GROWTH_BYTES_MAX = 100, 8 * MIB, 320 * MIB
SLOW_CLIENTS, SLOW_BYTES_EACH, LINK_BYTES_PER_MS = 40, 256 * KIB, 2_000
LIST_TOPICS = "/rocketpy.v1.Admin/ListTopics"


def anonymous_bytes(process: psutil.Process) -> int:
    """Returns a process's memory without mapped files, whose pages come as they are read."""
    memory = process.memory_info()
    return int(memory.rss - memory.shared)


def head(size: int) -> bytes:
    """Returns gRPC's prefix of a message."""
    return b"\0" + struct.pack(">I", size)


async def test_n14_on_a_slow_link_every_request_comes(running: RunningBroker) -> None:
    """Asserts for forty clients of one link that none counts as stalled or has to send again."""
    async with AsyncExitStack() as closing:
        await running.create_topic("T")

        async def passed(count: int) -> None:
            running.clock.advance(count // LINK_BYTES_PER_MS)
            await asyncio.sleep(0.002)

        link = SlowLink(running.ready.port, passed)
        port = await closing.enter_async_context(link.opened())
        answers = await asyncio.gather(*(send_through(port) for _ in range(SLOW_CLIENTS)))
        assert {each.status.code for each in answers} == {ResponseCode.SUCCESS}
        assert running.broker.server.incomplete_requests.ended == 0


async def send_through(port: int) -> broker_pb2.AppendResponse:
    """Sends one block on a connection of its own."""
    block = wire_block("T", [bytes(SLOW_BYTES_EACH)])
    request = broker_pb2.AppendRequest(
        topic="T", records=block.records, record_sizes=block.record_sizes
    )
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        call = broker_pb2_grpc.BrokerStub(channel).Append(iter([request]))
        answer: broker_pb2.AppendResponse = await call.read()
        return answer


async def test_n14_a_client_may_take_five_seconds(running: RunningBroker) -> None:
    async with AsyncExitStack() as closing:
        slow = RawConnection()
        await slow.open(running.ready.port)
        closing.push_async_callback(slow.close)
        stream = slow.begin(LIST_TOPICS)
        await slow.send(stream, head(2) + b"\x0a")
        await until(lambda: len(running.broker.server.incomplete_requests) == 1)
        for _ in range(5):
            running.clock.advance(1_000)
        await slow.send(stream, b"\0")
        await until(lambda: stream in slow.ended)
        assert running.broker.server.incomplete_requests.ended == 0


async def test_n14_the_client_of_an_ended_request_may_repeat_it(running: RunningBroker) -> None:
    never: asyncio.Event = asyncio.Event()

    async def requests() -> AsyncIterator[broker_pb2.AppendRequest]:
        await never.wait()
        yield broker_pb2.AppendRequest()

    call = running.data.Append(requests())
    await until(lambda: len(running.broker.server.incomplete_requests) == 1)
    running.clock.advance(UNFINISHED_MS_MAX)
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        [_ async for _ in call]
    assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "SYSTEM_BUSY" in str(ended.value.details())
    await until(lambda: running.broker.server.guard.running == 0)


async def test_n14_a_call_without_a_request_is_answered(running: RunningBroker) -> None:
    method: Any = running.channel.stream_unary(
        LIST_TOPICS, response_deserializer=admin_pb2.ListTopicsResponse.FromString
    )
    answer = await method(iter(()))
    assert answer.status.code == ResponseCode.INVALID_PARAMETER


@pytest.mark.slow
async def test_n14_a_hundred_clients_that_stall_take_bounded_memory(
    tmp_path: Path,
) -> None:
    with LocalBroker(tmp_path / "store") as broker:
        process = psutil.Process(broker.pid)
        before = anonymous_bytes(process)
        most = 0
        async with AsyncExitStack() as closing:
            channel = grpc.aio.insecure_channel(broker.endpoint)
            admin = admin_pb2_grpc.AdminStub(await closing.enter_async_context(channel))
            await admin.ListTopics(admin_pb2.ListTopicsRequest())
            connections: list[RawConnection] = []
            for _ in range(CLIENTS):
                connection = RawConnection()
                await connection.open(int(broker.endpoint.rpartition(":")[2]))
                closing.push_async_callback(connection.close)
                sending = connection.send(
                    connection.begin(LIST_TOPICS), head(BYTES_EACH) + bytes(BYTES_EACH - 1)
                )
                closing.callback(asyncio.ensure_future(sending).cancel)
                connections.append(connection)
            # After the first calls have ended, the next ones take their places.
            samples_left = 20
            while samples_left:
                samples_left -= sum(len(each.ended) for each in connections) >= READS_MAX
                answer = await admin.ListTopics(admin_pb2.ListTopicsRequest())
                assert answer.status.code == ResponseCode.SUCCESS
                most = max(most, anonymous_bytes(process) - before)
                await asyncio.sleep(0.05)
        assert most <= GROWTH_BYTES_MAX
