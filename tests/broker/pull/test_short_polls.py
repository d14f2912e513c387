"""Brokers without long polling, and calls of clients that disconnect."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2, broker_pb2_grpc
from tests.support.broker.running_broker import RunningBroker, StartBroker

WAIT_MS = 30_000
SHORT: dict[str, Any] = {"long_polling_enable": False, "short_polling_time_ms": 700}


async def hold(running: RunningBroker, **fields: Any) -> asyncio.Future[list[Any]]:
    """Starts a pull that the broker holds."""
    pull = asyncio.ensure_future(running.pull(**{"topic": "T", "wait_ms_max": WAIT_MS, **fields}))
    await running.held(1)
    return pull


@pytest.mark.parametrize("group", ["", "g"])
async def test_c08_short_polling_looks_again_after_its_time_and_not_before(
    start_broker: StartBroker, group: str
) -> None:
    async with start_broker(**SHORT) as running:
        await running.create_topic("T")
        pull = await hold(running, consumer_group=group)
        await running.append("T", 0, b"x")
        running.clock.advance(699)
        await asyncio.sleep(0)
        assert len(running.broker.services.long_polling.calls) == 1
        running.clock.advance(1)
        [answer] = await pull
        assert answer.status.code == ResponseCode.SUCCESS


async def test_c08_short_polling_answers_after_one_look(start_broker: StartBroker) -> None:
    async with start_broker(**SHORT) as running:
        await running.create_topic("T")
        pull = await hold(running)
        running.clock.advance(700)
        [answer] = await pull
        assert answer.status.code == ResponseCode.PULL_NOT_FOUND


async def test_c08_short_polling_holds_no_longer_than_the_client_wants(
    start_broker: StartBroker,
) -> None:
    async with start_broker(**SHORT) as running:
        await running.create_topic("T")
        [at_once] = await running.pull(topic="T")
        assert at_once.status.code == ResponseCode.PULL_NOT_FOUND
        pull = await hold(running, wait_ms_max=10)
        running.clock.advance(10)
        await pull


async def test_c08_short_polling_is_of_queries_as_well(start_broker: StartBroker) -> None:
    async with start_broker(**SHORT) as running:
        await running.create_topic("T", queues=1)
        known = [broker_pb2.KnownOffset(topic="T", queue_id=0, max_offset=0)]
        request = broker_pb2.QueryOffsetsRequest(topics=["T"], known=known, wait_ms_max=WAIT_MS)
        query = asyncio.ensure_future(running.data.QueryOffsets(request).code())
        await running.held(1)
        await running.append("T", 0, b"x")
        await running.held(1)
        running.clock.advance(700)
        assert await query is grpc.StatusCode.OK


async def test_c08_a_stopping_broker_answers_calls_of_short_polling(
    start_broker: StartBroker,
) -> None:
    async with start_broker(**SHORT) as running:
        await running.create_topic("T")
        pull = await hold(running)
        running.broker.services.long_polling.calls.stop()
        [answer] = await pull
        assert answer.status.code == ResponseCode.PULL_NOT_FOUND


async def test_c08_calls_of_a_connection_that_is_closed_are_dropped(running: RunningBroker) -> None:
    await running.create_topic("T", queues=1)
    known = [broker_pb2.KnownOffset(topic="T", queue_id=0, max_offset=0)]
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{running.ready.port}")
    stub = broker_pb2_grpc.BrokerStub(channel)
    pull = broker_pb2.PullRequest(topic="T", consumer_group="g", wait_ms_max=WAIT_MS)
    query = broker_pb2.QueryOffsetsRequest(topics=["T"], known=known, wait_ms_max=WAIT_MS)
    calls = [stub.Pull(pull), stub.Pull(pull), stub.QueryOffsets(query)]
    waiting = [asyncio.ensure_future(call.code()) for call in calls]
    await running.held(3)
    await channel.close()
    await running.held(0)
    held = running.broker.services.long_polling.calls
    assert not any((held._by_queue, held._by_topic, held._by_table))
    assert set(await asyncio.gather(*waiting)) == {grpc.StatusCode.CANCELLED}
