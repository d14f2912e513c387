"""Clients that do not read what they pull: bounded, and harmless to other clients."""

from __future__ import annotations

import contextlib
from typing import Any

import grpc
import pytest

from rocketpy_broker.runtime.scheduler import connection
from rocketpy_broker.services.pull.response_buffer import (
    MIB,
    SMALL_BYTES_MAX,
    UNREAD_BYTES_LIMIT,
    UNREAD_BYTES_MAX,
    ResponseBufferFullError,
    ResponseBufferLimiter,
)
from rocketpy_broker.store.values import ReadLimits
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2, broker_pb2_grpc
from tests.support.blocks import wire_block
from tests.support.broker.running_broker import (
    NARROW,
    RunningBroker,
    StartBroker,
    another_connection,
    until,
)

STALLED = 25


def test_n14_answers_get_smaller_the_more_is_unread() -> None:
    answers = ResponseBufferLimiter()
    wanted = ReadLimits.of_bytes(4 * MIB)
    sizes = {}
    for total in (0, 16 * MIB, 32 * MIB):
        answers.total = total
        limits = answers.limits(wanted)
        sizes[total] = limits.bytes_max
        assert limits.cold_bytes_max == limits.bytes_max
    assert sizes == {0: 4 * MIB, 16 * MIB: 512 << 10, 32 * MIB: SMALL_BYTES_MAX}
    assert answers.limits(ReadLimits.of_bytes(1_000)).bytes_max == 1_000


def test_n14_at_the_bound_small_answers_and_new_connections_find_room() -> None:
    answers = ResponseBufferLimiter()
    connection.set("stalls")
    with answers.reserve(UNREAD_BYTES_MAX):
        with answers.reserve(SMALL_BYTES_MAX):
            pass
        with (
            pytest.raises(ResponseBufferFullError) as refused,
            answers.reserve(SMALL_BYTES_MAX + 1),
        ):
            pass
        assert refused.value.code == ResponseCode.SYSTEM_BUSY
        connection.set("reads")
        with answers.reserve(UNREAD_BYTES_LIMIT - UNREAD_BYTES_MAX):
            connection.set("another")
            with pytest.raises(ResponseBufferFullError), answers.reserve(1):
                pass
            connection.set("reads")
        connection.set("stalls")
    assert (answers.total, len(answers), len(answers._counts)) == (0, 0, 0)


async def fill(running: RunningBroker, topic: str) -> None:
    await running.create_topic(topic, queues=1)
    for _ in range(4):
        block = wire_block(topic, [bytes(900_000)])
        assert (await running.append_block(topic, 0, block)).status.code == 0


def pull(channel: grpc.aio.Channel, topic: str) -> Any:
    request = broker_pb2.PullRequest(
        topic=topic, offset=0, offset_end=1 << 40, response_bytes_max=4 * MIB
    )
    return broker_pb2_grpc.BrokerStub(channel).Pull(request)


async def test_n14_clients_that_never_read_take_bounded_memory_and_harm_nobody(
    start_broker: StartBroker,
) -> None:
    async with (
        start_broker(commit_log_segment_bytes=8 * MIB) as running,
        contextlib.AsyncExitStack() as closing,
    ):
        await fill(running, "T")
        answers = running.broker.services.pull.pulls.unread
        calls = []
        for _ in range(STALLED):
            narrow = await closing.enter_async_context(another_connection(running, NARROW))
            calls.append(pull(narrow.channel, "T"))
            await until(lambda: len(answers) == len(calls))
        # A message of 0.9 MB is given whatever its size.
        assert 16 * MIB < answers.total <= (16 + 4 + STALLED) * MIB
        got = [each async for each in pull(running.channel, "T")]
        assert sum(len(each.record_sizes) // 4 for each in got) == 4
        for call in calls:
            call.cancel()
        await until(lambda: len(answers) == 0)
        assert answers.total == 0
