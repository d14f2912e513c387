"""Ordered groups: one delivery at a time for each queue, in the queue's order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rocketpy_broker.services.deliveries.renewals import RENEWED_MS
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.model import dead_letter_topic
from tests.support.broker.clients.apache_consumers import Consumer, duration, make_ordered
from tests.support.broker.pops import GROUP, INVISIBLE_MS, TOPIC, pass_time, with_messages
from tests.support.broker.running_broker import StartBroker

DEAD_LETTERS = QueueKey(dead_letter_topic(GROUP), 0)


@asynccontextmanager
async def ordered(
    start: StartBroker, *bodies: bytes, queues: int = 1, **settings: Any
) -> AsyncIterator[Consumer]:
    """Yields a consumer of an ordered group, whose topic has these messages in queue 0."""
    async with with_messages(start, *bodies, queues=queues, **settings) as running:
        await make_ordered(running)
        yield Consumer(running)


async def test_a_queue_s_next_messages_come_after_all_acknowledgements(
    start_broker: StartBroker,
) -> None:
    async with ordered(start_broker, b"a", b"b", b"c") as consumer:
        received = await consumer.receive(batch_size=2)
        assert received.bodies == [b"a", b"b"]
        await consumer.acked(received.handles[1])
        await consumer.receive_nothing()
        held = asyncio.ensure_future(consumer.receive())
        await consumer.running.held(1)
        await consumer.acked(received.handles[0])
        assert (await held).bodies == [b"c"]


async def test_unacknowledged_messages_come_again_in_order(start_broker: StartBroker) -> None:
    async with ordered(start_broker, b"a", b"b", b"c") as consumer:
        first = await consumer.receive(batch_size=2)
        await consumer.acked(first.handles[0])
        consumer.running.clock.advance(INVISIBLE_MS)
        again = await consumer.receive()
        assert (again.bodies, again.attempts) == ([b"b", b"c"], [2, 1])
        # A handle from before has expired.
        assert (await consumer.ack(first.handles[1])).status.code == v2.INVALID_RECEIPT_HANDLE
        await consumer.acked(*again.handles)
        await pass_time(consumer.running, INVISIBLE_MS)
        await consumer.receive_nothing()


async def test_a_repeated_attempt_gets_the_same_messages(start_broker: StartBroker) -> None:
    async with ordered(start_broker, b"a", b"b") as consumer:
        await consumer.receive(attempt_id="one")
        again = await consumer.receive(attempt_id="one")
        assert (again.bodies, again.attempts) == ([b"a", b"b"], [1, 1])
        await consumer.acked(*again.handles)
        await consumer.receive_nothing(attempt_id="one")


async def test_queues_do_not_wait_for_each_other(start_broker: StartBroker) -> None:
    async with ordered(start_broker, b"a", queues=2) as consumer:
        await consumer.running.append(TOPIC, 1, b"b")
        first = await consumer.receive(message_queue=consumer.queue(0))
        assert first.bodies == [b"a"]
        assert (await consumer.receive()).bodies == [b"b"]


async def test_a_change_sets_the_time_of_the_next_delivery(start_broker: StartBroker) -> None:
    async with ordered(start_broker, b"a", b"b") as consumer:
        received = await consumer.receive(batch_size=1, invisible_duration=duration(3_600_000))
        change = await consumer.change(received.handles[0], 1_000)
        assert change.status.code == v2.OK
        assert (await consumer.ack(received.handles[0])).status.code == v2.INVALID_RECEIPT_HANDLE
        consumer.running.clock.advance(1_000)
        again = await consumer.receive(batch_size=1)
        assert (again.bodies, again.attempts) == ([b"a"], [2])
        await consumer.acked(*again.handles)
        assert (await consumer.receive()).bodies == [b"b"]


async def test_a_changed_handle_counts_after_the_clock_was_set_back(
    start_broker: StartBroker,
) -> None:
    async with ordered(start_broker, b"a", b"b") as consumer:
        received = await consumer.receive(batch_size=1)
        consumer.running.clock.jump(-60_000)
        change = await consumer.change(received.handles[0], 20_000)
        await consumer.acked(change.receipt_handle)
        assert (await consumer.receive()).bodies == [b"b"]


async def test_a_renewed_message_blocks_its_queue_while_its_consumer_is_alive(
    start_broker: StartBroker,
) -> None:
    async with ordered(start_broker, b"a", b"b") as consumer:
        received = await consumer.receive(auto_renew=True, batch_size=1)
        for _ in range(5):
            await consumer.heartbeat()
            await pass_time(consumer.running, RENEWED_MS)
        await Consumer(consumer.running, client_id="other").receive_nothing()
        await consumer.acked(*received.handles)
        assert (await consumer.receive()).bodies == [b"b"]


async def test_a_forwarded_message_frees_its_queue(start_broker: StartBroker) -> None:
    async with ordered(start_broker, b"a", b"b") as consumer:
        received = await consumer.receive(batch_size=1)
        # Expired, but not delivered again: the queue still waits for this message.
        consumer.running.clock.advance(2 * INVISIBLE_MS)
        assert [await consumer.forward(received.handles[0]) for _ in range(2)] == [v2.OK, v2.OK]
        assert (await consumer.receive()).bodies == [b"b"]
        assert consumer.running.broker.store.range_of(DEAD_LETTERS).max_offset == 1


async def test_a_forward_of_an_older_delivery_has_no_effect(start_broker: StartBroker) -> None:
    async with ordered(start_broker, b"a") as consumer:
        received = await consumer.receive()
        consumer.running.clock.advance(INVISIBLE_MS)
        again = await consumer.receive()
        assert await consumer.forward(received.handles[0]) == v2.OK
        assert consumer.running.broker.store.range_of(DEAD_LETTERS).max_offset == 0
        await consumer.acked(*again.handles)
        assert await consumer.forward(received.handles[0]) == v2.OK
        assert consumer.running.broker.store.range_of(DEAD_LETTERS).max_offset == 0


async def test_a_message_after_its_last_attempt_frees_its_queue(
    start_broker: StartBroker,
) -> None:
    async with ordered(start_broker, b"a", b"b") as consumer:
        await make_ordered(consumer.running, retry_max_times=1)
        for _ in range(2):
            assert (await consumer.receive(batch_size=1)).bodies == [b"a"]
            consumer.running.clock.advance(INVISIBLE_MS)
        received = await consumer.receive(batch_size=1)
        assert (received.bodies, received.attempts) == ([b"b"], [1])
        assert consumer.running.broker.store.range_of(DEAD_LETTERS).max_offset == 1


async def test_after_a_kill_no_acknowledged_message_of_a_queue_comes_again(
    start_crashed: StartBroker,
) -> None:
    flush = FlushDiskType.SYNC_FLUSH
    async with ordered(start_crashed, b"a", b"b", b"c", flush=flush) as consumer:
        await consumer.acked(*(await consumer.receive(batch_size=2)).handles)
        clock = consumer.running.clock
    async with start_crashed(flush, clock=clock) as running:
        assert (await Consumer(running).receive()).bodies == [b"c"]
