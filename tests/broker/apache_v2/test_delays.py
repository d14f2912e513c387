"""Messages with a delivery time, and their recalls."""

from __future__ import annotations

from typing import Any

from rocketpy_broker.config import SystemTopicOptions
from rocketpy_broker.store.files.timer_checkpoint import TIMER_QUEUE
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.apache.rocketmq.v2 import service_pb2
from tests.broker.apache_v2.test_routes import create
from tests.broker.delay.test_levels import advance, visible
from tests.support.broker.clients.apache_client import (
    BORN_MS,
    ApacheClient,
    message,
    records,
    topic,
)
from tests.support.broker.running_broker import StartBroker, until


async def delayed(apache: ApacheClient, ms: int, data: bytes = b"later") -> Any:
    """Returns the entry of a message that is delivered in `ms`."""
    each = message("t", data)
    now_ms = apache.running.clock.now_ms()
    each.system_properties.delivery_timestamp.FromMilliseconds(now_ms + ms)
    response = await apache.send(each)
    assert response.status.code == v2.OK, response.status.message
    return response.entries[0]


async def recalled(apache: ApacheClient, handle: str, name: str = "t") -> Any:
    request = service_pb2.RecallMessageRequest(topic=topic(name), recall_handle=handle)
    return await apache.call("RecallMessage", request)


async def test_a_message_with_a_delivery_time_waits_for_it(apache: ApacheClient) -> None:
    await create(apache, "t", read=1, write=1)
    await delayed(apache, 10_000)
    waiting = apache.running.broker.store.range_of(TIMER_QUEUE)
    assert waiting.max_offset == 1
    await advance(apache.running, 5_000)
    assert await records(apache.running, "t") == []
    await advance(apache.running, 6_000)
    await until(lambda: visible(apache.running, "t", 0) == 1)
    (record,) = await records(apache.running, "t")
    assert record.body == b"later"
    assert record.properties["TIMER_DELIVER_MS"] == str(BORN_MS + 10_000)


async def test_a_recalled_message_is_not_delivered(apache: ApacheClient) -> None:
    await create(apache, "t", read=1, write=1)
    first, second = (
        await delayed(apache, 10_000, b"first"),
        await delayed(apache, 10_000, b"second"),
    )
    response = await recalled(apache, first.recall_handle)
    assert response.status.code == v2.OK, response.status.message
    assert response.message_id == first.message_id
    await advance(apache.running, 12_000)
    await until(lambda: visible(apache.running, "t", 0) == 1)
    assert [each.body for each in await records(apache.running, "t")] == [b"second"]
    late = await recalled(apache, second.recall_handle)
    assert late.status.code == v2.ILLEGAL_DELIVERY_TIME


async def test_wrong_handles_have_their_codes(apache: ApacheClient) -> None:
    await create(apache, "t", read=1, write=1)
    await create(apache, "u", read=1, write=1)
    await create(apache, "fifo", kind="FIFO")
    handle = (await delayed(apache, 10_000)).recall_handle
    assert (await recalled(apache, "nonsense")).status.code == v2.BAD_REQUEST
    assert (await recalled(apache, handle, "u")).status.code == v2.BAD_REQUEST
    assert (await recalled(apache, handle, "unknown")).status.code == v2.TOPIC_NOT_FOUND
    assert (await recalled(apache, handle, "a.b")).status.code == v2.ILLEGAL_TOPIC
    conflict = await recalled(apache, handle, "fifo")
    assert conflict.status.code == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


async def test_a_broker_without_recalls_says_so(start_broker: StartBroker) -> None:
    async with start_broker(recall_message_enable=False) as running:
        apache = ApacheClient(running)
        await create(apache, "t")
        handle = (await delayed(apache, 10_000)).recall_handle
        assert (await recalled(apache, handle)).status.code == v2.NOT_IMPLEMENTED


async def test_a_full_timer_asks_to_come_later(start_broker: StartBroker) -> None:
    async with start_broker(timer_pending_max=1) as running:
        apache = ApacheClient(running)
        await create(apache, "t")
        await delayed(apache, 10_000)
        each = message("t")
        each.system_properties.delivery_timestamp.FromMilliseconds(running.clock.now_ms() + 10_000)
        assert (await apache.send(each)).status.code == v2.TOO_MANY_REQUESTS


async def test_a_broker_without_a_timer_refuses_delivery_times(start_broker: StartBroker) -> None:
    options = SystemTopicOptions(timer_wheel_enable=False)
    async with start_broker(system_topics=options) as running:
        apache = ApacheClient(running)
        await create(apache, "t")
        each = message("t")
        each.system_properties.delivery_timestamp.FromMilliseconds(running.clock.now_ms() + 10_000)
        response = await apache.send(each)
        assert response.status.code == v2.INTERNAL_SERVER_ERROR
        assert "timer" in response.status.message
