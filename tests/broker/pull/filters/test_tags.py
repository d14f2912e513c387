"""Pulls that want certain tags codes, through real gRPC."""

from __future__ import annotations

import asyncio

import pytest

from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.queues.readers.candidates import SCAN_UNITS_MAX
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record.java_hash import java_hash
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.support.blocks import bodies_of, wire_block
from tests.support.broker.running_broker import LONG_QUEUE, RunningBroker, StartBroker

A, B = java_hash("TagA"), java_hash("TagB")


async def append(running: RunningBroker, tag: str | None, *bodies: bytes) -> None:
    response = await running.append_block("T", 0, wire_block("T", bodies, tags=tag))
    assert response.status.code == ResponseCode.SUCCESS


def found(responses: list[broker_pb2.PullResponse]) -> list[bytes]:
    bodies: list[bytes] = []
    for response in responses:
        if response.record_sizes:
            bodies += bodies_of(response.records, response.record_sizes)
    return bodies


def told(response: broker_pb2.PullResponse) -> tuple[int, int]:
    return response.status.code, response.next_offset


async def test_c03_a_pull_by_tags_gives_only_theirs(running: RunningBroker) -> None:
    await running.create_topic("T")
    await append(running, "TagA", b"0", b"1")
    await append(running, "TagB", b"2")
    await append(running, None, b"3")
    await append(running, "TagA", b"4")
    assert found(await running.pull(topic="T", tags_codes=[A])) == [b"0", b"1", b"4"]
    assert found(await running.pull(topic="T", tags_codes=[B, 0])) == [b"2", b"3"]
    responses = await running.pull(topic="T", tags_codes=[A], response_bytes_max=1)
    assert [response.next_offset for response in responses] == [1, 4, 5]
    assert found(responses) == [b"0", b"1", b"4"]


async def test_c03_a_range_without_a_match_is_read_successfully(running: RunningBroker) -> None:
    await running.create_topic("T")
    await append(running, "TagA", *[b"x"] * 10)
    await append(running, "TagB", b"behind the range")
    [response] = await running.pull(topic="T", offset=2, offset_end=10, tags_codes=[B])
    assert told(response) == (ResponseCode.SUCCESS, 10)
    assert response.pull_status == broker_pb2.NO_MATCHED_MESSAGE
    assert not response.records


async def test_c03_a_range_that_ends_without_a_match_is_exhausted_with_its_last_records(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    await append(running, "TagB", b"wanted")
    await append(running, "TagA", *[b"x"] * 10)
    [response] = await running.pull(topic="T", offset_end=8, tags_codes=[B])
    assert told(response) == (ResponseCode.SUCCESS, 8)
    assert found([response]) == [b"wanted"]


async def test_c03_a_long_range_is_looked_at_in_steps_that_tell_where_they_are(
    start_broker: StartBroker,
) -> None:
    step = SCAN_UNITS_MAX
    async with start_broker(**LONG_QUEUE) as running:
        await running.create_topic("T")
        for _ in range(2):
            await append(running, "TagA", *[b""] * step)
        await append(running, "TagA", b"")
        await append(running, "TagB", b"wanted")
        await append(running, "TagA", *[b""] * (step + 3))
        responses = await running.pull(topic="T", offset_end=3 * step + 2, tags_codes=[B])
        again = ResponseCode.PULL_RETRY_IMMEDIATELY
        assert [told(response) for response in responses] == [
            (again, step),
            (again, 2 * step),
            (ResponseCode.SUCCESS, 3 * step),
            (ResponseCode.SUCCESS, 3 * step + 2),
        ]
        assert found(responses) == [b"wanted"]


async def test_c05_no_match_up_to_the_end_of_the_queue_is_to_be_asked_for_again(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    await append(running, "TagA", b"x")
    [response] = await running.pull(topic="T", offset_end=5, tags_codes=[B])
    assert told(response) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 1)
    [response] = await running.pull(topic="T", offset=1, offset_end=5, tags_codes=[B])
    assert told(response) == (ResponseCode.PULL_NOT_FOUND, 1)


@pytest.mark.parametrize("flush", list(FlushDiskType))
async def test_c03_a_held_pull_passes_silently_over_other_tags(
    start_broker: StartBroker, flush: FlushDiskType
) -> None:
    async with start_broker(flush) as running:
        await running.create_topic("T")
        await append(running, "TagA", b"x")
        pull = asyncio.ensure_future(running.pull(topic="T", wait_ms_max=30_000, tags_codes=[B]))
        await running.held(1)
        await append(running, "TagA", b"y", b"z")
        await running.held(1)
        assert not pull.done()
        await append(running, "TagB", b"wanted")
        [response] = await pull
        assert (found([response]), response.next_offset) == ([b"wanted"], 4)
        assert len(running.broker.services.long_polling.calls) == 0


async def test_c03_a_held_pull_tells_at_its_deadline_what_it_has_passed_over(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    await append(running, "TagA", b"x")
    pull = asyncio.ensure_future(running.pull(topic="T", wait_ms_max=30_000, tags_codes=[B]))
    await running.held(1)
    await append(running, "TagA", b"y", b"z")
    await running.held(1)
    running.clock.advance(30_000)
    [response] = await pull
    assert told(response) == (ResponseCode.PULL_NOT_FOUND, 3)


async def test_c03_a_held_pull_is_answered_when_its_range_is_exhausted(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    pull = asyncio.ensure_future(
        running.pull(topic="T", offset_end=2, wait_ms_max=30_000, tags_codes=[B])
    )
    await running.held(1)
    await append(running, "TagA", b"x", b"y")
    [response] = await pull
    assert told(response) == (ResponseCode.SUCCESS, 2)
