"""Append and Pull through real gRPC."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator

import pytest

from rocketpy_broker.config import Limits
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.support.blocks import WireBlock, bodies_of, wire_block
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.store.disk_calls import LOG, DiskCall, before_call, failing


def found(responses: list[broker_pb2.PullResponse]) -> list[bytes]:
    """Returns the bodies in the responses of one pull."""
    bodies: list[bytes] = []
    for response in responses:
        bodies += bodies_of(response.records, response.record_sizes)
    return bodies


@pytest.mark.parametrize("flush", list(FlushDiskType))
async def test_p01_an_acknowledged_block_is_pulled_as_it_was_sent(
    start_broker: StartBroker, flush: FlushDiskType
) -> None:
    async with start_broker(flush) as running:
        await running.create_topic("T")
        response = await running.append("T", 1, b"a", b"bb")
        assert response.status.code == ResponseCode.SUCCESS
        assert (response.queue_id, response.queue_offset, response.record_count) == (1, 0, 2)
        assert response.store_timestamp_ms == running.clock.now_ms()
        [pulled] = await running.pull(topic="T", queue_id=1)
        assert found([pulled]) == [b"a", b"bb"]
        assert (pulled.next_offset, pulled.min_offset, pulled.max_offset) == (2, 0, 2)
        assert pulled.pull_status == broker_pb2.FOUND


async def test_p01_many_blocks_in_one_stream_are_answered_in_order(
    start_broker: StartBroker,
) -> None:
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")

        async def requests() -> AsyncIterator[broker_pb2.AppendRequest]:
            for number in range(200):
                block = wire_block("T", [b"%d" % number])
                yield broker_pb2.AppendRequest(
                    topic="T",
                    queue_id=number % 4,
                    records=block.records,
                    record_sizes=block.record_sizes,
                )

        offsets = [
            (response.queue_id, response.queue_offset)
            async for response in running.data.Append(requests())
        ]
        assert offsets == [(number % 4, number // 4) for number in range(200)]


async def test_p06_the_broker_picks_a_queue_when_asked_to(running: RunningBroker) -> None:
    await running.create_topic("T", queues=3)
    picked = [(await running.append("T", -1, b"x")).queue_id for _ in range(6)]
    assert sorted(picked) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("topic", "queue_id", "code", "words"),
    [
        ("Unknown", 0, ResponseCode.TOPIC_NOT_EXIST, "'Unknown' does not exist"),
        ("T", 4, ResponseCode.INVALID_PARAMETER, "queue id 4"),
        ("T", -3, ResponseCode.INVALID_PARAMETER, "queue id -3"),
        ("SCHEDULE_TOPIC_XXXX", 0, ResponseCode.NO_PERMISSION, "SCHEDULE_TOPIC_XXXX"),
    ],
)
async def test_p04_p06_a_wrong_topic_or_queue_is_named(
    topic: str, queue_id: int, code: ResponseCode, words: str, running: RunningBroker
) -> None:
    await running.create_topic("T")
    response = await running.append(topic, queue_id, b"x")
    assert response.status.code == code
    assert words in response.status.remark


def broken_blocks() -> list[tuple[str, WireBlock]]:
    """Returns blocks that may not be stored, each with a word of the reason."""
    good = wire_block("T", [b"one", b"two"])
    flipped = bytearray(good.records)
    flipped[good.records.index(b"two")] ^= 1
    return [
        ("at least one", WireBlock(good.records, b"")),
        ("at least one", WireBlock(good.records, good.record_sizes[:-1])),
        ("malformed", WireBlock(good.records[:-1], good.record_sizes)),
        ("malformed", WireBlock(good.records, good.record_sizes[4:])),
        ("malformed", WireBlock(bytes(flipped), good.record_sizes)),
        ("malformed", WireBlock(b"garbage" * 20, (140).to_bytes(4, "big"))),
        ("other topics", wire_block("U", [b"x"])),
        ("limit 100", wire_block("T", [bytes(101)])),
    ]


@pytest.mark.parametrize(("words", "block"), broken_blocks())
async def test_s02_a_block_that_may_not_be_stored_is_refused_whole(
    start_broker: StartBroker, words: str, block: WireBlock
) -> None:
    async with start_broker(limits=Limits(body_bytes_max=100)) as running:
        await running.create_topic("T")
        refused = await running.append_block("T", 0, block)
        assert refused.status.code == ResponseCode.MESSAGE_ILLEGAL
        assert words in refused.status.remark
        accepted = await running.append("T", 0, b"next")
        assert (accepted.queue_offset, accepted.physical_offset) == (0, 0)


async def test_c05_offsets_outside_the_queue_are_answered_with_the_corrected_one(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    await running.append("T", 0, b"a", b"b")
    [at_end] = await running.pull(topic="T", queue_id=0, offset=2)
    assert at_end.status.code == ResponseCode.PULL_NOT_FOUND
    [beyond] = await running.pull(topic="T", queue_id=0, offset=9)
    assert (beyond.status.code, beyond.next_offset) == (ResponseCode.PULL_OFFSET_MOVED, 2)
    [empty] = await running.pull(topic="T", queue_id=1, offset=0)
    assert empty.status.code == ResponseCode.PULL_NOT_FOUND
    [moved] = await running.pull(topic="T", queue_id=1, offset=3)
    assert (moved.status.code, moved.next_offset) == (ResponseCode.PULL_OFFSET_MOVED, 0)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"topic": "Unknown"}, "Unknown"),
        ({"topic": "T", "queue_id": 7}, "queue id 7"),
        ({"topic": "T", "offset": -1}, "offset is -1"),
        ({"topic": "T", "offset": 5, "offset_end": 5}, "offset_end is 5"),
        ({"topic": "T", "wait_ms_max": 60_001}, "wait_ms_max is 60001"),
        ({"topic": "T", "response_bytes_max": -1}, "response_bytes_max is -1"),
    ],
)
async def test_c01_a_wrong_pull_request_is_named(
    fields: dict[str, object], words: str, running: RunningBroker
) -> None:
    await running.create_topic("T")
    [response] = await running.pull(**fields)
    assert response.status.code != ResponseCode.SUCCESS
    assert words in response.status.remark


async def test_a_pull_streams_a_range_in_responses_of_bounded_size(running: RunningBroker) -> None:
    await running.create_topic("T")
    bodies = [b"%04d" % number + bytes(996) for number in range(100)]
    await running.append("T", 0, *bodies)
    responses = await running.pull(
        topic="T", queue_id=0, offset=10, offset_end=90, response_bytes_max=20_000
    )
    assert found(responses) == bodies[10:90]
    assert len(responses) > 1
    assert all(len(response.records) <= 20_000 for response in responses)
    assert responses[-1].next_offset == 90


async def test_a_first_record_larger_than_the_response_is_sent_whole(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    await running.append("T", 0, bytes(5000), b"small")
    responses = await running.pull(topic="T", queue_id=0, response_bytes_max=100)
    assert [len(body) for body in found(responses)] == [5000, 5]


async def test_c08_a_held_pull_is_answered_when_a_message_arrives(
    start_broker: StartBroker,
) -> None:
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        pull = asyncio.ensure_future(running.pull(topic="T", queue_id=2, wait_ms_max=30_000))
        await running.held(1)
        await running.append("T", 1, b"other queue")
        assert len(running.broker.services.long_polling.calls) == 1
        await running.append("T", 2, b"wanted")
        assert found(await pull) == [b"wanted"]
        assert len(running.broker.services.long_polling.calls) == 0


async def test_c08_a_held_pull_is_answered_at_its_deadline(running: RunningBroker) -> None:
    await running.create_topic("T")
    pull = asyncio.ensure_future(running.pull(topic="T", queue_id=0, wait_ms_max=30_000))
    await running.held(1)
    running.clock.advance(29_999)
    assert not pull.done()
    running.clock.advance(1)
    [response] = await pull
    assert response.status.code == ResponseCode.PULL_NOT_FOUND


async def test_c08_a_held_pull_whose_client_went_away_is_dropped(running: RunningBroker) -> None:
    await running.create_topic("T")
    call = running.data.Pull(broker_pb2.PullRequest(topic="T", wait_ms_max=30_000))
    waiting = asyncio.ensure_future(call.read())
    await running.held(1)
    call.cancel()
    await running.held(0)
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_stopping_broker_answers_held_pulls(running: RunningBroker) -> None:
    await running.create_topic("T")
    pull = asyncio.ensure_future(running.pull(topic="T", queue_id=0, wait_ms_max=30_000))
    await running.held(1)
    running.broker.services.long_polling.calls.stop()
    [response] = await pull
    assert response.status.code == ResponseCode.PULL_NOT_FOUND


async def test_s09_acknowledged_messages_are_there_after_a_restart(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        await running.append("T", 0, b"before")
    async with start_broker() as running:
        await running.append("T", 0, b"after")
        assert found(await running.pull(topic="T", queue_id=0)) == [b"before", b"after"]


async def test_f8_after_a_failed_flush_nothing_is_acknowledged_and_reading_goes_on(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        await running.append("T", 0, b"durable")
        flushes: list[int] = []

        def fail(call: DiskCall) -> None:
            flushes.append(1)
            failing(errno.EIO)(call)

        before_call(monkeypatch, "fdatasync", LOG, fail)
        for body in (b"first", b"second"):
            refused = await running.append("T", 0, body)
            assert refused.status.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "read-only" in refused.status.remark
        assert len(flushes) == 1
        assert found(await running.pull(topic="T", queue_id=0)) == [b"durable"]


async def test_s15_a_full_disk_is_an_answer_and_sends_go_on_when_there_is_space(
    monkeypatch: pytest.MonkeyPatch, running: RunningBroker
) -> None:
    await running.create_topic("T")

    def full(_descriptor: int, _offset: int, _length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        refused = await running.append("T", 0, b"too much")
        assert refused.status.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "No space left" in refused.status.remark
    accepted = await running.append("T", 0, b"fits")
    assert accepted.status.code == ResponseCode.SUCCESS
    assert found(await running.pull(topic="T", queue_id=0)) == [b"fits"]
