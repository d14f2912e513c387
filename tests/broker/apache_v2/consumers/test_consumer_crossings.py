"""Consumers of `apache.rocketmq.v2` beside other protocols, under load, and over kills."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from rocketpy_broker.services.receipts.handle import Receipt
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting.headers import pop as headers
from tests.broker.remoting.test_pops import ack as ack_by_remoting
from tests.broker.remoting.test_pops import pop as pop_by_remoting
from tests.broker.remoting.test_pops import receipt, records
from tests.broker.remoting.test_sends_and_pulls import send
from tests.support.blocks import wire_block
from tests.support.broker.clients.apache_consumers import Consumer, Received, duration
from tests.support.broker.clients.remoting_client import RemotingBroker
from tests.support.broker.pops import (
    INVISIBLE_MS,
    RETRY_TOPIC,
    REVIVE_MS,
    TOPIC,
    pass_time,
    with_messages,
)
from tests.support.broker.running_broker import (
    RunningBroker,
    StartBroker,
    another_connection,
    until,
)

LATER_MS = INVISIBLE_MS + REVIVE_MS


async def test_a_message_sent_by_remoting_is_received_with_its_properties(
    remoting: RemotingBroker,
) -> None:
    await remoting.running.create_topic(TOPIC, 1)
    properties = "TAGS\x01A\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01ID\x02own\x01value\x02WAIT\x01true"
    await send(remoting.client, b"body", topic=TOPIC, properties=properties)
    (message,) = (await Consumer(remoting.running).receive()).messages
    system = message.system_properties
    assert (message.body, dict(message.user_properties)) == (b"body", {"own": "value"})
    assert (system.tag, [*system.keys], system.message_id) == ("A", ["k1", "k2"], "ID")
    assert (system.born_host, system.born_timestamp.ToMilliseconds()) == ("127.0.0.1", 7)


async def test_one_group_is_shared_with_pops_by_remoting(remoting: RemotingBroker) -> None:
    running = remoting.running
    async with in_one_queue(running, b"a", b"b", b"c") as consumer:
        popped = await pop_by_remoting(remoting, max_msg_nums=1)
        received = await consumer.receive(batch_size=1)
        assert ([each.body for each in records(popped)], received.bodies) == ([b"a"], [b"b"])
        answer = await ack_by_remoting(remoting, str(receipt(popped)))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        # Each takes what the other has not acknowledged.
        await pass_time(running, LATER_MS)
        again = await pop_by_remoting(remoting, max_msg_nums=2)
        assert sorted(each.body for each in records(again)) == [b"b", b"c"]
        await pass_time(running, LATER_MS)
        last = await consumer.receive()
        assert sorted(zip(last.bodies, last.attempts, strict=True)) == [(b"b", 3), (b"c", 2)]
        await consumer.acked(*last.handles)
        await pass_time(running, LATER_MS)
        await consumer.receive_nothing()


async def test_a_revived_message_without_space_for_its_receipt_is_popped(
    remoting: RemotingBroker,
) -> None:
    running = remoting.running
    async with in_one_queue(running) as consumer:
        properties = {"big": ["x" * 32_700]}
        await running.append_block(TOPIC, 0, wire_block(TOPIC, [b"a"], properties=properties))
        await running.append(TOPIC, 0, b"b")
        await consumer.receive()
        await pass_time(running, LATER_MS)
        popped = await pop_by_remoting(remoting)
        assert popped.code == ResponseCode.SUCCESS, popped.remark
        found = {each.body: each for each in records(popped)}
        assert found[b"a"].topic == RETRY_TOPIC
        assert (found[b"b"].topic, "POP_CK" in found[b"b"].properties) == (TOPIC, True)


@contextlib.asynccontextmanager
async def in_one_queue(running: RunningBroker, *bodies: bytes) -> AsyncIterator[Consumer]:
    await running.create_topic(TOPIC, 1)
    await running.append(TOPIC, 0, *bodies)
    yield Consumer(running)


async def test_a_receipt_of_remoting_is_no_handle(remoting: RemotingBroker) -> None:
    async with in_one_queue(remoting.running, b"a") as consumer:
        popped = await pop_by_remoting(remoting)
        response = await consumer.ack(str(receipt(popped)))
        assert response.status.code == v2.INVALID_RECEIPT_HANDLE
        handle = (await pop_of_two(remoting, consumer)).handles[0]
        text = str(Receipt.parse(handle))
        header = headers.AckMessageRequest("g2", TOPIC, 0, text, 0)
        answer = await remoting.client.ask(Code.ACK_MESSAGE, header)
        assert answer.code == ResponseCode.SUCCESS, answer.remark


async def pop_of_two(remoting: RemotingBroker, consumer: Consumer) -> Received:
    return await Consumer(remoting.running, group="g2").receive()


async def test_a_thousand_messages_are_received_once_by_several_receivers(
    start_broker: StartBroker,
) -> None:
    count, queues, each = 1_000, 8, 125
    async with with_messages(start_broker, queues=queues) as running:
        for begin in range(0, count, each):
            bodies = [b"%d" % i for i in range(begin, begin + each)]
            await running.append(TOPIC, begin // each % queues, *bodies)
        seen: Counter[bytes] = Counter()
        is_complete = asyncio.Event()

        async def work(number: int) -> None:
            async with another_connection(running) as own:
                consumer = Consumer(own, client_id=f"c{number}")
                while not is_complete.is_set():
                    received = await consumer.receive()
                    await consumer.acked(*received.handles)
                    seen.update(received.bodies)
                    if len(seen) == count:
                        is_complete.set()

        workers = [asyncio.ensure_future(work(number)) for number in range(4)]
        await is_complete.wait()
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        assert len(seen) == count
        assert set(seen.values()) == {1}
        await pass_time(running, LATER_MS)
        await Consumer(running).receive_nothing()


@pytest.mark.parametrize("flush", [FlushDiskType.SYNC_FLUSH])
async def test_a_kill_amid_receives_loses_nothing_and_repeats_only_what_was_in_flight(
    start_crashed: StartBroker, flush: FlushDiskType
) -> None:
    count = 400
    bodies = [b"%d" % i for i in range(count)]
    acked: set[bytes] = set()
    received_before: set[bytes] = set()
    async with with_messages(start_crashed, *bodies, flush=flush) as running:
        clock = running.clock

        async def work(number: int) -> None:
            consumer = Consumer(running, client_id=f"c{number}")
            while True:
                received = await consumer.receive(batch_size=7, invisible_duration=duration(60_000))
                received_before.update(received.bodies)
                await consumer.acked(*received.handles)
                acked.update(received.bodies)

        workers = [asyncio.ensure_future(work(number)) for number in range(3)]
        await until(lambda: len(acked) >= count // 2)
        # The kill comes while these run.
        known = set(acked)
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    async with start_crashed(flush, clock=clock) as running:
        consumer = Consumer(running)
        after: Counter[bytes] = Counter()
        # Inside their invisible time, received messages do not come again.
        while received := await some(consumer):
            after.update(received.bodies)
            await consumer.acked(*received.handles)
        assert known.isdisjoint(after)
        await pass_time(running, 60_000 + REVIVE_MS)
        while received := await some(consumer):
            after.update(received.bodies)
            await consumer.acked(*received.handles)
        assert set(after.values()) == {1}
        assert known.isdisjoint(after)
        assert received_before | set(after) == set(bodies)


async def some(consumer: Consumer) -> Received | None:
    """Returns messages, or None if there are none now."""
    receiving = asyncio.ensure_future(consumer.receive())
    calls = consumer.running.broker.services.long_polling.calls
    await until(lambda: receiving.done() or len(calls) > 0)
    if not receiving.done():
        consumer.running.clock.advance(5_000)
    received = await receiving
    return received if received.messages else None
