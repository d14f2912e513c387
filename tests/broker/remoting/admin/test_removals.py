"""Cleaning by RocketMQ's tools: codes 306, 316 and 329."""

from __future__ import annotations

import pytest

from rocketpy_broker.store.cleaner import CleanPolicy
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from tests.broker.remoting.requests import answered, update_topic
from tests.broker.remoting.test_sends_and_pulls import send
from tests.support.blocks import wire_block
from tests.support.broker.clients.remoting_client import RemotingBroker
from tests.support.broker.running_broker import StartBroker


@pytest.mark.parametrize("code", [Code.CLEAN_EXPIRED_CONSUMEQUEUE, Code.DELETE_EXPIRED_COMMITLOG])
async def test_expired_segments_are_removed_with_their_units(
    start_broker: StartBroker, code: Code
) -> None:
    policy = CleanPolicy(reserved_ms=1_000, confirm_ms=0)
    async with (
        start_broker(
            remoting_port=0,
            commit_log_segment_bytes=1 << 20,
            clean_policy=policy,
            flush=FlushDiskType.SYNC_FLUSH,
        ) as running,
        RemotingBroker.of(running) as remoting,
    ):
        await update_topic(remoting.client)
        for _ in range(2):
            await send(remoting.client, bytes(800_000))
        await answered(remoting.client, code)
        assert running.broker.store.positions().log_begin == 0
        [wait] = running.broker.store.segment_waits(manual=True)
        assert wait.until_ms is not None
        running.clock.advance(wait.until_ms - running.clock.now_ms() + 60_000)
        # The time has ended the first connection.
        async with remoting.another() as later:
            await answered(later, code)
        assert running.broker.store.positions().log_begin == 1 << 20
        bounds = running.broker.services.offsets.offsets.bounds(QueueKey("T", 0))
        assert (bounds.min_offset, bounds.max_offset) == (1, 2)


async def test_queues_of_a_topic_without_configuration_are_removed(
    remoting: RemotingBroker,
) -> None:
    store = remoting.running.broker.store
    await update_topic(remoting.client)
    await send(remoting.client, b"kept")
    store.append(QueueKey("gone", 0), wire_block("gone", [b"x"]).parsed())
    answer = await remoting.client.ask(Code.CLEAN_UNUSED_TOPIC)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert {queue.topic for queue in store.queues()} == {"T"}
