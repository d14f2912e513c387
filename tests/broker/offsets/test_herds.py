"""Held queries over many queues: not woken once a message."""

from __future__ import annotations

import asyncio

from rocketpy_broker.services.offsets.queries import FEW_QUEUES, REST_MS
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.blocks import wire_block
from tests.broker.conftest import RunningBroker, StartBroker, until


async def ask(running: RunningBroker, queues: int, grown: int = 0) -> asyncio.Task[int]:
    """A held query that knows so many queues, and what it finds of the first one."""
    known = [
        broker_pb2.KnownOffset(topic="T", queue_id=each, max_offset=0 if each else grown)
        for each in range(queues)
    ]
    request = broker_pb2.QueryOffsetsRequest(topics=["T"], known=known, wait_ms_max=30_000)

    async def maximum() -> int:
        answer = await running.data.QueryOffsets(request)
        return int(answer.topics[0].queues[0].max_offset)

    call = asyncio.ensure_future(maximum())
    await running.held(1)
    return call


async def append(running: RunningBroker, count: int) -> None:
    for _ in range(count):
        await running.append_block("T", 0, wire_block("T", [b"x"]))


async def test_b11_messages_that_come_at_once_are_one_answer(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        await running.create_topic("T", queues=FEW_QUEUES + 1)
        call = await ask(running, FEW_QUEUES + 1)
        await append(running, 5)
        assert not call.done()
        running.clock.advance(REST_MS)
        assert await call == 5
        # One that has been held for longer is answered by the first message.
        call = await ask(running, FEW_QUEUES + 1, 5)
        running.clock.advance(REST_MS)
        await append(running, 1)
        await until(call.done)
        assert call.result() == 6


async def test_b11_a_query_over_few_queues_is_answered_at_once(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        await running.create_topic("T", queues=FEW_QUEUES)
        call = await ask(running, FEW_QUEUES)
        await append(running, 1)
        assert await call == 1
