"""Pulls and offsets of groups that keep their own progress."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.apache.rocketmq.v2 import service_pb2
from tests.support.blocks import wire_block
from tests.support.broker.clients.apache_consumers import WAIT_MS, Consumer, duration
from tests.support.broker.pops import TOPIC, with_messages
from tests.support.broker.running_broker import RunningBroker, StartBroker


@dataclass
class Pulled:
    """The responses of a pull."""

    status: v2.Status = field(default_factory=v2.Status)
    messages: list[v2.Message] = field(default_factory=list)
    next_offset: int = -1
    kinds: list[str | None] = field(default_factory=list)

    @property
    def bodies(self) -> list[bytes]:
        return [each.body for each in self.messages]


async def pull(running: RunningBroker, offset: int = 0, **fields: Any) -> Pulled:
    consumer, pulled = Consumer(running), Pulled()
    usual: dict[str, Any] = {
        "group": v2.Resource(name=consumer.group),
        "message_queue": consumer.queue(0),
        "offset": offset,
        "batch_size": 32,
    }
    request = service_pb2.PullMessageRequest(**usual | fields)
    async for response in consumer.call("PullMessage", request):
        kind = response.WhichOneof("content")
        pulled.kinds.append(kind)
        if kind == "status":
            pulled.status = response.status
        elif kind == "message":
            pulled.messages.append(response.message)
        else:
            pulled.next_offset = response.next_offset
    return pulled


async def test_a_pull_reads_from_its_offset_and_repeats(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, b"a", b"b", b"c") as running:
        for _ in range(2):
            pulled = await pull(running, 1)
            assert (pulled.status.code, pulled.bodies) == (v2.OK, [b"b", b"c"])
            assert pulled.next_offset == 3
            assert pulled.kinds == ["status", "message", "message", "next_offset"]
        system = pulled.messages[0].system_properties
        assert (system.queue_offset, system.delivery_attempt) == (1, 1)
        assert not system.HasField("receipt_handle")


async def test_a_pull_has_at_most_its_batch(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, *[b"a"] * 40) as running:
        assert len((await pull(running, batch_size=2)).messages) == 2
        assert len((await pull(running, batch_size=0)).messages) == 1
        assert len((await pull(running, batch_size=100)).messages) == 32


async def test_a_pull_skips_messages_that_do_not_match(start_broker: StartBroker) -> None:
    async with with_messages(start_broker) as running:
        for tag in ("B", "A", "B"):
            await running.append_block(TOPIC, 0, wire_block(TOPIC, [tag.encode()], tags=tag))
        wanted = v2.FilterExpression(type=v2.TAG, expression="A")
        pulled = await pull(running, filter_expression=wanted)
        assert (pulled.bodies, pulled.next_offset) == ([b"A"], 3)
        pulled = await pull(running, 2, filter_expression=wanted)
        assert (pulled.status.code, pulled.next_offset) == (v2.MESSAGE_NOT_FOUND, 3)
        wanted = v2.FilterExpression(type=v2.SQL, expression="TAGS = 'B'")
        assert (await pull(running, filter_expression=wanted)).bodies == [b"B", b"B"]


async def test_a_held_pull_ends_with_the_next_message_or_its_time(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker) as running:
        wait = duration(WAIT_MS)
        held = asyncio.ensure_future(pull(running, long_polling_timeout=wait))
        await running.held(1)
        await running.append(TOPIC, 0, b"a")
        assert (await held).bodies == [b"a"]
        held = asyncio.ensure_future(pull(running, 1, long_polling_timeout=wait))
        await running.held(1)
        running.clock.advance(WAIT_MS)
        pulled = await held
        assert (pulled.status.code, pulled.next_offset) == (v2.MESSAGE_NOT_FOUND, 1)


@pytest.mark.parametrize(("offset", "next_offset"), [(-1, 0), (4, 3), (1 << 40, 3)])
async def test_an_offset_outside_the_queue_is_answered_with_one_inside(
    start_broker: StartBroker, offset: int, next_offset: int
) -> None:
    async with with_messages(start_broker, b"a", b"b", b"c") as running:
        pulled = await pull(running, offset)
        assert (pulled.status.code, pulled.next_offset) == (v2.ILLEGAL_OFFSET, next_offset)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"message_queue": v2.MessageQueue(topic={"name": "none"})}, v2.TOPIC_NOT_FOUND),
        ({"message_queue": v2.MessageQueue(topic={"name": TOPIC}, id=1)}, v2.FORBIDDEN),
        ({"message_queue": v2.MessageQueue(topic={"name": TOPIC}, id=-1)}, v2.FORBIDDEN),
        ({"group": v2.Resource()}, v2.ILLEGAL_CONSUMER_GROUP),
        ({"filter_expression": {"type": v2.SQL}}, v2.ILLEGAL_FILTER_EXPRESSION),
    ],
)
async def test_the_code_of_a_refused_pull(
    start_broker: StartBroker, fields: dict[str, Any], code: v2.Code
) -> None:
    async with with_messages(start_broker, b"a") as running:
        pulled = await pull(running, **fields)
        assert pulled.status.code == code, pulled.status.message


async def get_offset(consumer: Consumer, queue_id: int = 0) -> service_pb2.GetOffsetResponse:
    request = service_pb2.GetOffsetRequest(
        group=v2.Resource(name=consumer.group), message_queue=consumer.queue(queue_id)
    )
    response: service_pb2.GetOffsetResponse = await consumer.call("GetOffset", request)
    return response


async def update_offset(consumer: Consumer, offset: int, queue_id: int = 0) -> int:
    request = service_pb2.UpdateOffsetRequest(
        group=v2.Resource(name=consumer.group),
        message_queue=consumer.queue(queue_id),
        offset=offset,
    )
    return int((await consumer.call("UpdateOffset", request)).status.code)


async def test_a_group_s_offset_is_the_one_of_its_last_update(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, b"a", b"b") as running:
        consumer = Consumer(running)
        assert (await get_offset(consumer)).status.code == v2.OFFSET_NOT_FOUND
        for offset in (2, 1):
            assert await update_offset(consumer, offset) == v2.OK
            found = await get_offset(consumer)
            assert (found.status.code, found.offset) == (v2.OK, offset)
        assert await update_offset(consumer, -1) == v2.ILLEGAL_OFFSET
        assert await update_offset(consumer, 1, queue_id=1) == v2.FORBIDDEN
        assert (await get_offset(consumer, queue_id=1)).status.code == v2.FORBIDDEN
        absent = Consumer(running, topic="none")
        assert await update_offset(absent, 1) == v2.TOPIC_NOT_FOUND
        assert (await get_offset(absent)).status.code == v2.TOPIC_NOT_FOUND
        anonymous = Consumer(running, client_id="")
        assert await update_offset(anonymous, 1) == v2.CLIENT_ID_REQUIRED
        assert (await get_offset(consumer)).offset == 1


async def query_offset(
    running: RunningBroker, policy: int, since_ms: int | None = None, **names: Any
) -> service_pb2.QueryOffsetResponse:
    consumer = Consumer(running, **names)
    request = service_pb2.QueryOffsetRequest(message_queue=consumer.queue(0))
    # An open enumeration: any number is possible.
    request.query_offset_policy = policy  # type: ignore[assignment]
    if since_ms is not None:
        time = Timestamp()
        time.FromMilliseconds(since_ms)
        request.timestamp.CopyFrom(time)
    response: service_pb2.QueryOffsetResponse = await consumer.call("QueryOffset", request)
    return response


async def test_an_offset_is_queried_by_end_and_time(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, b"a") as running:
        running.clock.advance(10_000)
        second_ms = running.clock.now_ms()
        await running.append(TOPIC, 0, b"b")
        assert (await query_offset(running, v2.BEGINNING)).offset == 0
        assert (await query_offset(running, v2.END)).offset == 2
        for since_ms, offset in [(0, 0), (second_ms, 1), (second_ms + 1, 2)]:
            found = await query_offset(running, v2.TIMESTAMP, since_ms)
            assert (found.status.code, found.offset) == (v2.OK, offset)
        assert (await query_offset(running, v2.TIMESTAMP)).status.code == v2.BAD_REQUEST
        assert (await query_offset(running, 7)).status.code == v2.BAD_REQUEST
        absent = await query_offset(running, v2.END, topic="none")
        assert absent.status.code == v2.TOPIC_NOT_FOUND


async def test_lite_subscriptions_are_not_served(running: RunningBroker) -> None:
    consumer = Consumer(running)
    request = service_pb2.SyncLiteSubscriptionRequest(**consumer.names)
    response = await consumer.call("SyncLiteSubscription", request)
    assert response.status.code == v2.NOT_IMPLEMENTED
    assert response.status.message
