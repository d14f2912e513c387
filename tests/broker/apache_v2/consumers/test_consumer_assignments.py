"""Assignments of queues to push consumers."""

from __future__ import annotations

from typing import Any

import pytest

from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.apache.rocketmq.v2 import service_pb2
from rocketpy_proto.model.configs import TopicConfig
from tests.support.broker.clients.apache_consumers import Consumer, make_ordered
from tests.support.broker.pops import TOPIC, with_messages
from tests.support.broker.running_broker import RunningBroker, StartBroker

ENDPOINTS = v2.Endpoints(scheme=v2.IPv4, addresses=[v2.Address(host="127.0.0.1", port=18_081)])


async def assigned(consumer: Consumer, **fields: Any) -> service_pb2.QueryAssignmentResponse:
    request = service_pb2.QueryAssignmentRequest(
        **consumer.names | {"endpoints": ENDPOINTS} | fields
    )
    response: service_pb2.QueryAssignmentResponse = await consumer.call("QueryAssignment", request)
    return response


async def test_each_member_gets_one_entry_for_all_queues(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, queues=3) as running:
        first = await assigned(Consumer(running))
        (entry,) = first.assignments
        queue = entry.message_queue
        assert (first.status.code, queue.id, queue.permission) == (v2.OK, -1, v2.READ_WRITE)
        assert (queue.topic.name, queue.broker.name, queue.broker.id) == (TOPIC, "broker-a", 0)
        assert queue.broker.endpoints == ENDPOINTS
        assert await assigned(Consumer(running, client_id="another")) == first


async def test_a_member_of_an_ordered_group_gets_each_queue(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, queues=3) as running:
        await make_ordered(running)
        response = await assigned(Consumer(running))
        assert [each.message_queue.id for each in response.assignments] == [0, 1, 2]
        assert {each.message_queue.permission for each in response.assignments} == {v2.READ_WRITE}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": v2.Resource(name="none")}, v2.TOPIC_NOT_FOUND),
        ({"topic": v2.Resource(name="a b")}, v2.ILLEGAL_TOPIC),
        ({"topic": v2.Resource(name="closed")}, v2.FORBIDDEN),
        ({"group": v2.Resource()}, v2.ILLEGAL_CONSUMER_GROUP),
    ],
)
async def test_the_code_of_a_refused_assignment(
    running: RunningBroker, fields: dict[str, Any], code: v2.Code
) -> None:
    await running.create_topic(TOPIC, 1)
    await running.broker.services.topics.update(TopicConfig("closed", 1, 1, 2), create_only=True)
    response = await assigned(Consumer(running), **fields)
    assert (response.status.code, len(response.assignments)) == (code, 0)


async def test_an_assignment_needs_a_client_id(running: RunningBroker) -> None:
    response = await assigned(Consumer(running, client_id=""))
    assert response.status.code == v2.CLIENT_ID_REQUIRED
