"""Receives whose messages do not reach their client: they come again soon."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from rocketpy_broker.runtime import scheduler
from rocketpy_broker.services.deliveries.left_work import MESSAGES_MAX, MESSAGES_OF_CONNECTION
from rocketpy_broker.services.deliveries.service import RELEASED_MS
from rocketpy_broker.services.filters.service import FilterText
from rocketpy_broker.services.pull.response_buffer import UNREAD_BYTES_LIMIT
from rocketpy_broker.services.receipts.popped import PopRequest
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.model import TAG
from tests.support.blocks import wire_block
from tests.support.broker.clients.apache_consumers import Consumer, Received, duration
from tests.support.broker.pops import GROUP, REVIVE_MS, TOPIC, pass_time, with_messages
from tests.support.broker.running_broker import (
    NARROW,
    StartBroker,
    another_connection,
    until,
)


async def test_a_cancelled_receive_holds_nothing_and_loses_nothing(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker) as running:
        consumer = Consumer(running)
        call = consumer.receiving()
        reading = asyncio.ensure_future(call.read())
        await running.held(1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await running.held(0)
        assert running.broker.services.receipts.pops.polling_count("g", TOPIC, -1) == 0
        await running.append(TOPIC, 0, b"a")
        assert (await consumer.receive()).bodies == [b"a"]


async def test_messages_that_a_client_did_not_take_come_again_soon(
    start_broker: StartBroker,
) -> None:
    # The first pop starts at queue 1.
    small, large = b"a", b"b" * (3 << 20)
    async with (
        with_messages(start_broker, queues=2, commit_log_segment_bytes=16 << 20) as running,
        another_connection(running, NARROW) as narrow,
    ):
        for queue_id, body in [(1, small), (0, large)]:
            await running.append(TOPIC, queue_id, body)
        call = Consumer(narrow).receiving(invisible_duration=duration(3_600_000))
        received = Received()
        for _ in range(2):
            received.take(await call.read())
        assert (received.status.code, received.bodies) == (v2.OK, [small])
        unread = running.broker.services.pull.pulls.unread
        assert unread.total > len(large)
        call.cancel()
        await until(lambda: unread.total == 0)
        again = await Consumer(running).receive_soon()
        assert (again.bodies, again.attempts) == ([large], [2])


@pytest.mark.parametrize("tags", [["Aa"], ["Aa", "BB"]], ids=["wanted", "also unwanted"])
async def test_a_receive_cancelled_at_any_step_releases_its_messages(
    start_broker: StartBroker, tags: list[str]
) -> None:
    async with with_messages(start_broker) as running:
        deliveries, consumer = running.broker.services.deliveries, Consumer(running)
        await consumer.receive_nothing()
        # The tags have equal codes, so the pop finds both, and the delivery ends the second.
        wanted = FilterText(TAG, "Aa")
        request = PopRequest(GROUP, TOPIC, invisible_ms=3_600_000, filter_text=wanted)
        for number, passes in enumerate((1, 2, 3, 5, 8, 13)):
            for tag in tags:
                block = wire_block(TOPIC, [b"%d" % number], tags=tag)
                await running.append_block(TOPIC, 0, block)
            call = asyncio.ensure_future(deliveries.receive(request, "c", is_renewed=False))
            for _ in range(passes):
                await asyncio.sleep(0)
            call.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                deliveries.release(GROUP, TOPIC, [each.handle for each in await call])
            await pass_time(running, RELEASED_MS + REVIVE_MS)
        expression = v2.FilterExpression(type=v2.TAG, expression="Aa")
        bodies: list[bytes] = []
        while len(bodies) < 6:
            found = (await consumer.receive_soon(filter_expression=expression)).bodies
            assert found, bodies
            bodies += found
        assert sorted(bodies) == [b"%d" % number for number in range(6)]


async def test_lost_messages_beyond_a_limit_do_not_come_again_soon(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker, b"a", b"b", b"c", b"d", b"e") as running:
        deliveries, over = running.broker.services.deliveries, asyncio.Event()

        async def other_work() -> None:
            await over.wait()

        # It leaves room for two messages of the first connection, and for three in all.
        of_broker = MESSAGES_MAX - MESSAGES_OF_CONNECTION - 1
        for connection, count in (("one", MESSAGES_OF_CONNECTION - 2), ("", of_broker)):
            scheduler.connection.set(connection)
            deliveries.left_work.begin(count, other_work())
        request = PopRequest(GROUP, TOPIC, invisible_ms=60_000)
        popped = await deliveries.receive(request, "c", is_renewed=False)
        for connection, row in (("one", 0), ("one", 1), ("one", 2), ("two", 3), ("two", 4)):
            scheduler.connection.set(connection)
            deliveries.release(GROUP, TOPIC, [popped[row].handle])
        assert len(deliveries.left_work) == MESSAGES_MAX
        over.set()
        await until(lambda: len(deliveries.left_work) == 0)
        consumer = Consumer(running)
        await pass_time(running, RELEASED_MS + REVIVE_MS)
        soon: list[bytes] = []
        while len(soon) < 3:
            soon += (await consumer.receive_soon(invisible_duration=duration(3_600_000))).bodies
        assert sorted(soon) == [b"a", b"b", b"d"]


async def test_a_full_response_buffer_refuses_and_releases_messages(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker, b"a") as running:
        consumer = Consumer(running)
        await consumer.acked(*(await consumer.receive()).handles)
        held = asyncio.ensure_future(consumer.receive(invisible_duration=duration(3_600_000)))
        await running.held(1)
        with running.broker.services.pull.pulls.unread.reserve(UNREAD_BYTES_LIMIT):
            await running.append(TOPIC, 0, b"b")
            received = await held
        assert (received.status.code, received.messages) == (v2.TOO_MANY_REQUESTS, [])
        assert (await consumer.receive_soon()).bodies == [b"b"]


async def test_receives_of_a_full_response_buffer_cost_no_attempt(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker, b"a") as running:
        consumer = Consumer(running)
        with running.broker.services.pull.pulls.unread.reserve(UNREAD_BYTES_LIMIT):
            for _ in range(3):
                assert (await consumer.receive()).status.code == v2.TOO_MANY_REQUESTS
        received = await consumer.receive()
        assert (received.bodies, received.attempts) == ([b"a"], [1])
