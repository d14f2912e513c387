"""Limits of running requests: their number, their memory, and the requests of one pass."""

from __future__ import annotations

import asyncio
from typing import Any

from rocketpy_broker.server.remoting.connection import REQUESTS_PER_TURN, RemotingConnection
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting import EXCHANGES, RemotingCommand, encode_frame
from rocketpy_proto.remoting.headers.offsets import GetMaxOffsetRequest
from rocketpy_proto.remoting.headers.pulls import SUBSCRIPTION, SUSPEND
from tests.broker.remoting.test_sends_and_pulls import pull_header
from tests.support.broker.remoting_client import RemotingBroker
from tests.support.broker.running_broker import until


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

    def __init__(self) -> None:
        self.count = 0

    def opened(self, _connection: RemotingConnection) -> bool:
        return True

    def received(self, connection: RemotingConnection, _command: RemotingCommand, _: int) -> None:
        self.count += 1
        connection.started()


async def test_n14_a_connection_gets_one_turn_in_a_pass_of_the_loop() -> None:
    owner: Any = Owner()
    connection = RemotingConnection(owner, bytearray(1 << 16), 1_000)
    connection.connection_made(Socket())
    frames = b"".join(
        bytes(piece)
        for opaque in range(3 * REQUESTS_PER_TURN)
        for piece in encode_frame(RemotingCommand(Code.GET_MAX_OFFSET, opaque))
    )
    connection.get_buffer(-1)[: len(frames)] = frames
    connection.buffer_updated(len(frames))
    for turn in (1, 2, 3):
        assert owner.count == turn * REQUESTS_PER_TURN
        for _ in range(5):
            connection.ended()
        await asyncio.sleep(0)
