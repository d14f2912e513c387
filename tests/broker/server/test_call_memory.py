"""Memory of requests that calls keep: charged by connection, given back with the call."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from rocketpy_broker.server.rocketpy_v1 import offset_messages
from rocketpy_broker.services import call_memory
from rocketpy_broker.services.call_memory import CallMemory, KeptBytesError, decoded_bytes, keep
from rocketpy_broker.services.offsets.known import TOPIC_BYTES
from rocketpy_proto.call_limits import OFFSET_QUERY_ENTRIES_MAX
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.support.blocks import wire_block
from tests.support.broker.event_loop import counted_slots
from tests.support.broker.running_broker import (
    RunningBroker,
    StartBroker,
    another_connection,
    until,
)

WAIT_MS = 30_000
KIB, MIB = 1 << 10, 1 << 20


def memory_of(running: RunningBroker) -> CallMemory:
    return running.broker.server.guard.memory


def query(
    foreign: int = 0, queues: int = 4, wait_ms_max: int = WAIT_MS
) -> broker_pb2.QueryOffsetsRequest:
    """Returns a query that knows its own queues, and `foreign` ones of other topics."""
    others = [
        broker_pb2.KnownOffset(topic=f"other-{each % 100}", queue_id=each, max_offset=each)
        for each in range(foreign)
    ]
    own = [broker_pb2.KnownOffset(topic="T", queue_id=each) for each in range(queues)]
    return broker_pb2.QueryOffsetsRequest(topics=["T"], known=others + own, wait_ms_max=wait_ms_max)


def test_n14_a_connection_keeps_a_limited_number_of_bytes() -> None:
    memory = CallMemory(connection_max=100, total_max=200, share=20)
    memory.change("a", 60)
    with pytest.raises(KeptBytesError, match="keep 60 bytes, limit 100"):
        memory.change("a", 41)
    memory.change("a", 40)
    # One request of any size is taken; it reaches the total.
    memory.change("b", 150)
    with pytest.raises(KeptBytesError, match="keep 150 bytes, limit 20"):
        memory.change("b", 1)
    # Each connection still has its share.
    memory.change("c", 1)
    memory.change("c", 19)
    with pytest.raises(KeptBytesError, match="keep 20 bytes, limit 20"):
        memory.change("c", 1)
    memory.change("a", -100)
    memory.change("b", -150)
    memory.change("c", 21)
    assert (memory.shares.total, memory.shares.of("a"), memory.shares.of("c")) == (41, 0, 41)


async def test_n14_a_call_is_charged_until_it_ends() -> None:
    memory = CallMemory(connection_max=100)
    with memory.call("a") as first, memory.call("a") as second:
        first.set(90)
        with pytest.raises(KeptBytesError):
            second.set(20)
        first.set(10)
        second.set(20)
        # The running call is the one that was begun last.
        keep(5)
        assert (first.size, second.size, memory.shares.total) == (10, 5, 15)
    assert (memory.shares.total, memory.shares.of("a")) == (0, 0)
    keep(1 << 40)
    assert memory.shares.total == 0


async def test_n14_a_held_query_keeps_nothing_of_topics_that_it_does_not_ask_for(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    request = query(foreign=OFFSET_QUERY_ENTRIES_MAX - 4)
    assert request.ByteSize() > 600 * KIB
    calls = []
    for number in range(1, 31):
        calls.append(running.data.QueryOffsets(request))
        await running.held(number)
    assert memory_of(running).shares.total <= 30 * 3 * TOPIC_BYTES
    await running.append("T", 0, b"x")
    for call in calls:
        assert (await call).topics[0].queues[0].max_offset == 1
    await until(lambda: memory_of(running).shares.total == 0)


@pytest.mark.parametrize("pattern", ["", "T.*"])
async def test_n14_a_held_query_keeps_eight_bytes_a_queue(
    pattern: str, running: RunningBroker
) -> None:
    await running.create_topic("T", queues=5_000)
    request = query(foreign=10_000, queues=5_000)
    request.topic_pattern = pattern
    call = running.data.QueryOffsets(request)
    await running.held(1)
    await until(lambda: memory_of(running).shares.total < 100 * KIB)
    assert memory_of(running).shares.total >= 40_000
    await running.append("T", 4_999, b"x")
    running.clock.advance(1_000)
    assert (await call).topics[0].queues[4_999].max_offset == 1


async def test_n14_others_have_turns_while_a_large_query_is_read(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        async with counted_slots() as slots:
            answer = await running.data.QueryOffsets(query(20_000, wait_ms_max=0))
        assert answer.status.code == ResponseCode.SUCCESS
        assert len(slots) == 20_004 // offset_messages.KNOWN_A_SLOT


async def test_n14_a_connection_beyond_its_limit_is_refused_and_others_are_served(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    # Pulls with many tags keep their requests as long as they are held.
    tags = broker_pb2.PullRequest(topic="T", wait_ms_max=WAIT_MS, tags_codes=range(60_000))
    assert 200 * KIB < tags.ByteSize() < 512 * KIB
    most = call_memory.CONNECTION_BYTES_MAX // decoded_bytes(tags.ByteSize())
    calls = []
    for number in range(1, most + 1):
        calls.append(running.data.Pull(tags))
        await running.held(number)
    refused = await running.data.Pull(tags).read()
    assert refused.status.code == ResponseCode.SYSTEM_BUSY
    assert "of this connection keep" in refused.status.remark
    small = broker_pb2.QueryOffsetsRequest(topics=["T"])
    assert (await running.data.QueryOffsets(small)).status.code == ResponseCode.SUCCESS
    async with another_connection(running) as other:
        held = other.data.Pull(tags)
        await running.held(most + 1)
        held.cancel()
    for call in calls:
        call.cancel()
    await until(lambda: memory_of(running).shares.total == 0)
    assert (await running.pull(topic="T"))[0].status.code != ResponseCode.SYSTEM_BUSY


async def test_n14_a_block_beyond_the_limit_is_answered_in_its_place(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    memory = memory_of(running)
    block = wire_block("T", [b"x" * 100])
    request = broker_pb2.AppendRequest(
        topic="T", queue_id=0, records=block.records, record_sizes=block.record_sizes
    )
    call = running.data.Append()
    await call.write(request)
    assert (await call.read()).status.code == ResponseCode.SUCCESS
    (connection,) = running.broker.server.incomplete_requests._places
    memory.change(connection, call_memory.CONNECTION_BYTES_MAX)
    await call.write(request)
    assert (await call.read()).status.code == ResponseCode.SYSTEM_BUSY
    memory.change(connection, -call_memory.CONNECTION_BYTES_MAX)
    await call.write(request)
    assert (await call.read()).queue_offset == 1
    await call.done_writing()
    assert await call.read() == grpc.aio.EOF
    await until(lambda: memory.shares.total == 0)


async def test_n14_calls_of_all_ends_give_their_bytes_back(running: RunningBroker) -> None:
    await running.create_topic("T")
    held = [running.data.QueryOffsets(query()) for _ in range(5)]
    await running.held(5)
    await running.data.QueryOffsets(query(wait_ms_max=-1))
    for call in held[:3]:
        call.cancel()
    await running.held(2)
    running.clock.advance(WAIT_MS)
    await asyncio.gather(*held[3:])
    await until(lambda: memory_of(running).shares.total == 0)
