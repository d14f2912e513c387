"""Requests of the largest size: the event loop works on them in steps, and answers are bounded."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

import pytest

from rocketpy_broker.server.apache_v2.endpoints import ROUTE_BYTES_MAX
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.apache.rocketmq.v2 import service_pb2
from rocketpy_proto.model.configs import SubscriptionGroupConfig
from tests.broker.apache_v2.test_routes import create
from tests.support.broker.clients.apache_client import (
    ACCESS_POINT,
    ApacheClient,
    group,
    message,
    topic,
)
from tests.support.broker.clients.apache_consumers import Consumer
from tests.support.broker.event_loop import counted_slots, longest_pass_ms

T = TypeVar("T")
# Sixteen addresses, the most that a request may name.
LONG = v2.Endpoints(
    scheme=v2.IPv6,
    addresses=[v2.Address(host=f"2001:db8::{host:x}", port=8_081) for host in range(1, 17)],
)


async def in_steps(ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Returns the result of work; no pass of the loop has half of the processor time of all."""
    result, longest_ms, all_ms = await longest_pass_ms(ask)
    assert longest_ms < all_ms / 2
    return result


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
    response = await in_steps(partial(apache.route, "t"))
    assert len(response.message_queues) == 65_536
    assert response.ByteSize() < ROUTE_BYTES_MAX
    response = await in_steps(partial(apache.call, "QueryAssignment", assignments()))
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


@pytest.mark.parametrize(("count", "slots"), [(1, 0), (16, 0), (17, 2), (128, 8)])
async def test_n13_large_sends_take_slots(apache: ApacheClient, count: int, slots: int) -> None:
    """Asserts that a send of many messages lets small calls pass, and a small one never waits.

    Sixteen senders of 128 small messages each delayed small sends by 74 ms.
    """
    await create(apache, "t", read=1, write=1)
    async with counted_slots() as taken:
        assert (await apache.send(*count * [message("t")])).status.code == v2.OK
    assert len(taken) == slots


async def test_n12_128_messages_and_1000_acknowledgements_are_handled_in_steps(
    apache: ApacheClient,
) -> None:
    await create(apache, "t", read=1, write=1)
    messages = [message("t", bytes(1_000), keys=["a"]) for _ in range(128)]
    for _ in range(8):
        response = await in_steps(partial(apache.send, *messages))
        assert response.status.code == v2.OK, response.status.message
    consumer, handles = Consumer(apache.running, topic="t"), list[str]()
    while len(handles) < 3_000:
        handles += (await consumer.receive()).handles
    parts = iter([handles[:1_000], handles[1_000:2_000], handles[2_000:3_000]])
    acked = await in_steps(lambda: consumer.ack(*next(parts)))
    assert acked.status.code == v2.OK, acked.status.message
