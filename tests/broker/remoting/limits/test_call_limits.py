"""Limits of running requests: their number, their memory, and the requests of one pass."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest

from rocketpy_broker.server.remoting import buffer_limiter
from rocketpy_broker.server.remoting.buffer_limiter import LARGE_ANSWER_BYTES, SUM_MS
from rocketpy_broker.server.remoting.connection import (
    REQUESTS_PER_TURN,
    SENT_BYTES_MIN,
    UNREAD_BYTES_MAX,
    RemotingConnection,
)
from rocketpy_broker.server.remoting.server import PASS_MS, RemotingServer
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting import EXCHANGES, ONE_WAY_FLAG, RemotingCommand, encode_frame
from rocketpy_proto.remoting.headers.offsets import GetMaxOffsetRequest
from rocketpy_proto.remoting.headers.pulls import SUBSCRIPTION, SUSPEND
from tests.broker.remoting.test_sends_and_pulls import pull_header, send
from tests.support.broker.clients.remoting_client import RemotingBroker
from tests.support.broker.running_broker import until

ANSWER_BYTES = 60_000


def held_pull(opaque: int, **more: str) -> RemotingCommand:
    header = pull_header(sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_ms=20_000)
    fields = EXCHANGES[Code.PULL_MESSAGE].request.encode(header)
    return RemotingCommand(Code.PULL_MESSAGE, opaque, ext_fields={**fields, **more})


class Socket(asyncio.Transport):
    """A peer that sends and never reads."""

    def get_extra_info(self, _name: str, _default: Any = None) -> Any:
        return "127.0.0.1", 1

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def test_n14_requests_that_need_no_wait_are_served_beyond_the_limit_of_calls(
    remoting: RemotingBroker,
) -> None:
    await remoting.running.create_topic("T")
    guard = remoting.running.broker.server.guard
    async with remoting.another() as holder:
        for opaque in range(3):
            holder.tell(held_pull(opaque))
        await until(lambda: guard.running == 3)
        guard._calls_max, guard._calls.connection_max = 3, 0
        header = GetMaxOffsetRequest("T", 0)
        assert (await remoting.client.ask(Code.GET_MAX_OFFSET, header)).code == 0
        remoting.client.tell(held_pull(9))
        busy = await remoting.client.next()
        assert busy.code == ResponseCode.SYSTEM_BUSY
    await until(lambda: guard.running == 0)
    assert guard.memory.shares.total == 0


async def test_n14_a_held_pull_is_charged_its_header(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("T")
    guard = remoting.running.broker.server.guard
    async with remoting.another() as holder:
        holder.tell(held_pull(1, unknown="x" * 100_000))
        await until(lambda: guard.memory.shares.total > 100_000)
    await until(lambda: guard.memory.shares.total == 0)


class Owner:
    """A server that counts its requests, which run on."""

    def __init__(self, count_max: int = 1_000) -> None:
        self.count, self.count_max = 0, count_max

    def has_time(self) -> bool:
        return self.count < self.count_max

    def opened(self, _connection: RemotingConnection) -> bool:
        return True

    def received(self, connection: RemotingConnection, _command: RemotingCommand, _: int) -> None:
        self.count += 1
        connection.started()


def frames_of(commands: Iterable[RemotingCommand]) -> bytes:
    return b"".join(bytes(piece) for command in commands for piece in encode_frame(command))


def connection_with(owner: Any, count: int) -> RemotingConnection:
    """Returns a connection that has got requests in one piece."""
    connection = RemotingConnection(owner, bytearray(1 << 16), 1_000)
    connection.connection_made(Socket())
    frames = frames_of(RemotingCommand(Code.GET_MAX_OFFSET, opaque) for opaque in range(count))
    connection.get_buffer(-1)[: len(frames)] = frames
    connection.buffer_updated(len(frames))
    return connection


async def test_n14_a_connection_gets_one_turn_in_a_pass_of_the_loop() -> None:
    owner = Owner()
    connection = connection_with(owner, 3 * REQUESTS_PER_TURN)
    for turn in (1, 2, 3):
        assert owner.count == turn * REQUESTS_PER_TURN
        for _ in range(5):
            connection.ended()
        await asyncio.sleep(0)


async def test_n14_connections_without_time_hand_over_one_request_in_a_pass() -> None:
    owner = Owner(count_max=5)
    connection_with(owner, 9)
    assert owner.count == 5
    connection_with(owner, 9)
    assert owner.count == 6
    await asyncio.sleep(0)
    assert owner.count == 8


async def test_n14_the_time_of_a_pass_is_shared_and_begins_again(remoting: RemotingBroker) -> None:
    server, clock = remoting.server, remoting.running.clock
    assert server.has_time()
    clock.advance(PASS_MS)
    assert not server.has_time()
    await asyncio.sleep(0)
    assert server.has_time()


async def test_n14_one_way_pulls_are_not_held(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("T")
    guard = remoting.running.broker.server.guard
    for opaque in range(3):
        remoting.client.tell(msgspec.structs.replace(held_pull(opaque), flag=ONE_WAY_FLAG))
    assert (await remoting.client.ask(Code.GET_MAX_OFFSET, GetMaxOffsetRequest("T", 0))).code == 0
    await until(lambda: guard.running == 0)


async def test_n14_a_connection_that_reads_no_pulls_keeps_few_bytes(
    remoting: RemotingBroker,
) -> None:
    await remoting.running.create_topic("T")
    await send(remoting.client, bytes(ANSWER_BYTES))
    async with remoting.another() as hostile:
        hostile.writer.write(frames_of(pulls(REQUESTS_PER_TURN)) * 10)
        server = remoting.server
        await until(lambda: any(not each.is_drained for each in server._connections))
        assert unread_bytes(server) < UNREAD_BYTES_MAX + SENT_BYTES_MIN + 2 * ANSWER_BYTES


async def test_n14_connections_that_read_no_pulls_are_refused_more_and_others_read(
    remoting: RemotingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffer_limiter, "UNREAD_BYTES_MAX", UNREAD_BYTES_MAX)
    await remoting.running.create_topic("T")
    await send(remoting.client, bytes(ANSWER_BYTES))
    server = remoting.server
    async with AsyncExitStack() as stack:
        hostile = [await stack.enter_async_context(remoting.another()) for _ in range(3)]

        def is_full() -> bool:
            """Lets the server sum up, and asks for more than the operating system keeps."""
            remoting.running.clock.advance(SUM_MS)
            for each in hostile:
                each.writer.write(frames_of(pulls(REQUESTS_PER_TURN)))
            return unread_bytes(server) > UNREAD_BYTES_MAX // 2

        await until(is_full)
        for _ in range(100):
            remoting.running.clock.advance(SUM_MS)
            answer = await remoting.client.ask(Code.PULL_MESSAGE, pull_header(max_msg_nums=1))
            assert answer.code == ResponseCode.SUCCESS
            assert unread_bytes(server) < 2 * UNREAD_BYTES_MAX + 3 * LARGE_ANSWER_BYTES


def unread_bytes(server: RemotingServer) -> int:
    return sum(each.unread_bytes for each in server._connections)


def pulls(count: int) -> Iterator[RemotingCommand]:
    fields = EXCHANGES[Code.PULL_MESSAGE].request.encode(pull_header())
    return (RemotingCommand(Code.PULL_MESSAGE, each, ext_fields=fields) for each in range(count))
