"""Requests of the largest size: the event loop works on them in steps, and answers are bounded."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Coroutine
from typing import Any

from rocketpy_broker.server.apache_v2.endpoints import ROUTE_BYTES_MAX
from rocketpy_broker.services.groups.config import SubscriptionGroupConfig
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.apache.rocketmq.v2 import service_pb2
from tests.broker.apache_v2.test_routes import create
from tests.support.broker.apache_client import ACCESS_POINT, ApacheClient, group, message, topic
from tests.support.broker.apache_consumers import Consumer

# A shorter step is no work of the request. The loop may be busy for 20 ms.
STEP_SECONDS_MIN, STEP_SECONDS_MAX = 0.0001, 0.02
# Sixteen addresses, the most that a request may name.
LONG = v2.Endpoints(
    scheme=v2.IPv6,
    addresses=[v2.Address(host=f"2001:db8::{host:x}", port=8_081) for host in range(1, 17)],
)


async def in_steps(work: Coroutine[Any, Any, Any]) -> Any:
    """Returns the result of work; each step is short, or a small part of the work."""
    gc.collect()
    gc.disable()
    try:
        steps, before = list[float](), time.thread_time()
        task = asyncio.ensure_future(work)
        while not task.done():
            await asyncio.sleep(0)
            now = time.thread_time()
            steps, before = [*steps, now - before], now
    finally:
        gc.enable()
    steps = [each for each in steps if each > STEP_SECONDS_MIN]
    assert max(steps) < max(STEP_SECONDS_MAX, sum(steps) / 3)
    return task.result()


async def ordered(apache: ApacheClient) -> None:
    config = SubscriptionGroupConfig("g", consume_message_orderly=True)
    await apache.running.broker.services.groups.configs.update(config)


def assignments(endpoints: v2.Endpoints = ACCESS_POINT) -> service_pb2.QueryAssignmentRequest:
    return service_pb2.QueryAssignmentRequest(
        topic=topic("t"), group=group("g"), endpoints=endpoints
    )


async def test_n12_a_route_of_65536_queues_is_made_in_steps(apache: ApacheClient) -> None:
    await create(apache, "t", read=65_536, write=65_536)
    await ordered(apache)
    response = await in_steps(apache.route("t"))
    assert len(response.message_queues) == 65_536
    assert response.ByteSize() < ROUTE_BYTES_MAX
    response = await in_steps(apache.call("QueryAssignment", assignments()))
    assert len(response.assignments) == 65_536


async def test_n12_long_endpoints_are_not_repeated_for_65536_queues(apache: ApacheClient) -> None:
    await create(apache, "t", read=65_536, write=65_536)
    await ordered(apache)
    route = await apache.route("t", LONG)
    assigned = await apache.call("QueryAssignment", assignments(LONG))
    for response in (route, assigned):
        assert response.status.code == v2.ILLEGAL_ACCESS_POINT
        assert f"limit {ROUTE_BYTES_MAX}" in response.status.message
        assert response.ByteSize() < 500


async def test_n12_128_messages_and_1000_acknowledgements_are_handled_in_steps(
    apache: ApacheClient,
) -> None:
    await create(apache, "t", read=1, write=1)
    for _ in range(8):
        messages = [message("t", bytes(1_000), keys=["a"]) for _ in range(128)]
        response = await in_steps(apache.send(*messages))
        assert response.status.code == v2.OK, response.status.message
    consumer, handles = Consumer(apache.running, topic="t"), list[str]()
    while len(handles) < 1_000:
        handles += (await consumer.receive()).handles
    acked = await in_steps(consumer.ack(*handles[:1_000]))
    assert acked.status.code == v2.OK, acked.status.message
