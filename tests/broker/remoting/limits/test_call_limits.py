"""Limits of running requests: their number, their memory, and the requests of one pass."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import msgspec

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.server.remoting import buffer_limiter
from rocketpy_broker.server.remoting.buffer_limiter import (
    LARGE_ANSWER_BYTES,
    SUM_MS,
    RemotingBufferLimiter,
)
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
from rocketpy_proto.remoting.headers.pulls import SUBSCRIPTION, SUSPEND, PullMessageRequest
from tests.broker.remoting.test_sends_and_pulls import pull_header, send
from tests.support.broker.clients.remoting_client import RemotingBroker
from tests.support.broker.running_broker import until

ANSWER_BYTES = 60_000


def held_pull(opaque: int, **more: str) -> RemotingCommand:
    header = pull_header(sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_ms=20_000)
    fields = EXCHANGES[Code.PULL_MESSAGE].request.encode(header)
    return RemotingCommand(Code.PULL_MESSAGE, opaque, ext_fields={**fields, **more})


class Socket(asyncio.Transport):
    """A peer that sends, and has not read `unread_bytes`."""

    unread_bytes = 0

    def get_extra_info(self, _name: str, _default: Any = None) -> Any:
        return "127.0.0.1", 1

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

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


def connection_with(owner: Any, count: int, socket: Socket | None = None) -> RemotingConnection:
    """Returns a connection that has got requests in one piece."""
    connection = RemotingConnection(owner, bytearray(1 << 16), 1_000)
    connection.connection_made(socket or Socket())
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
        hostile.writer.write(frames_of(pulls(REQUESTS_PER_TURN, pull_header())) * 10)
        server = remoting.server
        await until(lambda: any(not each.is_drained for each in server._connections))
        assert unread_bytes(server) < UNREAD_BYTES_MAX + SENT_BYTES_MIN + 2 * ANSWER_BYTES


async def test_n14_connections_that_read_no_pulls_are_refused_more_and_others_read(
    remoting: RemotingBroker,
) -> None:
    await remoting.running.create_topic("T")
    for _ in range(2):
        await send(remoting.client, bytes(ANSWER_BYTES))
    server, header = remoting.server, pull_header(max_msg_nums=1)
    async with AsyncExitStack() as stack:
        hostile = [await stack.enter_async_context(remoting.another()) for _ in range(3)]
        # It counts until the next sum, and the clock stands still.
        [one, *_] = server._connections
        server._buffer_limiter.try_reserve(one, buffer_limiter.UNREAD_BYTES_MAX + 1)

        def are_stalled() -> bool:
            """Asks for more than the operating system keeps."""
            for each in hostile:
                each.writer.write(frames_of(pulls(8, header)))
            return sum(each.unread_bytes > ANSWER_BYTES // 2 for each in server._connections) == 3

        await until(are_stalled)
        for each in hostile:
            each.writer.write(frames_of(pulls(REQUESTS_PER_TURN, header)))
        for _ in range(100):
            answer = await remoting.client.ask(Code.PULL_MESSAGE, header)
            assert answer.code == ResponseCode.SUCCESS
            assert unread_bytes(server) < 4 * 2 * LARGE_ANSWER_BYTES
        remoting.running.clock.advance(SUM_MS)
        # What is unread counts beside it.
        assert not server._buffer_limiter.try_reserve(one, buffer_limiter.UNREAD_BYTES_MAX)
        busy = await remoting.client.ask(Code.PULL_MESSAGE, pull_header())
        assert busy.code == ResponseCode.SYSTEM_BUSY
        remoting.running.clock.advance(SUM_MS)
        both = await remoting.client.ask(Code.PULL_MESSAGE, pull_header())
        assert both.code == ResponseCode.SUCCESS
        assert len(both.body) > LARGE_ANSWER_BYTES


async def test_n14_large_answers_are_refused_while_too_much_is_unread_in_all() -> None:
    clock, sockets = ManualClock(), [Socket() for _ in range(4)]
    connections = [connection_with(Owner(), 0, socket) for socket in sockets]
    limiter, size = RemotingBufferLimiter(connections, clock), buffer_limiter.UNREAD_BYTES_MAX // 3
    reader, *hostile = connections
    for _ in range(9):
        assert limiter.try_reserve(reader, size)
        clock.advance(SUM_MS)
    for socket in sockets[1:]:
        socket.unread_bytes = size
    assert not limiter.try_reserve(reader, size)
    assert not limiter.try_reserve(reader, LARGE_ANSWER_BYTES + 1)
    assert limiter.try_reserve(reader, LARGE_ANSWER_BYTES)
    assert not any(limiter.try_reserve(each, 1) for each in hostile)
    for socket in sockets:
        socket.unread_bytes = 0
    assert not limiter.try_reserve(reader, size)
    clock.advance(SUM_MS)
    assert all(limiter.try_reserve(each, size) for each in hostile)


def unread_bytes(server: RemotingServer) -> int:
    return sum(each.unread_bytes for each in server._connections)


def pulls(count: int, header: PullMessageRequest) -> Iterator[RemotingCommand]:
    fields = EXCHANGES[Code.PULL_MESSAGE].request.encode(header)
    return (RemotingCommand(Code.PULL_MESSAGE, each, ext_fields=fields) for each in range(count))
