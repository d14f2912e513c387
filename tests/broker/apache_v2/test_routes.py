"""QueryRoute: the queues of a topic, their types, permissions and endpoints."""

from __future__ import annotations

from typing import Any

import pytest

from rocketpy_broker.config import BrokerConfig
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.apache.rocketmq.v2 import service_pb2
from rocketpy_proto.rocketpy.v1 import admin_pb2
from tests.support.broker.clients.apache_client import ACCESS_POINT, ApacheClient, topic
from tests.support.broker.running_broker import StartBroker

# Of a later version of the interface.
LATER: Any = 99
MIXED = [v2.NORMAL, v2.FIFO, v2.DELAY, v2.TRANSACTION]


async def create(
    apache: ApacheClient, name: str, *, read: int = 3, write: int = 3, perm: int = 6, kind: str = ""
) -> None:
    config = admin_pb2.TopicConfig(
        topic=name, read_queue_nums=read, write_queue_nums=write, perm=perm
    )
    request = admin_pb2.UpdateTopicRequest(config=config, create_only=True)
    if kind:
        request.config.attributes["+message.type"] = kind
    response = await apache.running.admin.UpdateTopic(request)
    assert response.status.code == 0, response.status.remark


async def test_a_route_names_each_queue_of_the_topic_at_the_endpoints_of_the_client(
    apache: ApacheClient,
) -> None:
    await create(apache, "t")
    response = await apache.route("t")
    assert response.status == v2.Status(code=v2.OK, message="OK")
    assert [each.id for each in response.message_queues] == [0, 1, 2]
    for queue in response.message_queues:
        assert queue.topic == topic("t")
        assert queue.permission == v2.READ_WRITE
        assert (queue.broker.name, queue.broker.id) == ("broker-a", 0)
        assert queue.broker.endpoints == ACCESS_POINT


@pytest.mark.parametrize(
    ("kind", "types"),
    [
        ("", MIXED),
        ("NORMAL", [v2.NORMAL]),
        ("FIFO", [v2.FIFO]),
        ("DELAY", [v2.DELAY]),
        ("TRANSACTION", [v2.TRANSACTION]),
        ("PRIORITY", [v2.PRIORITY]),
        ("MIXED", MIXED),
    ],
)
async def test_a_route_lists_the_message_types_that_the_topic_accepts(
    kind: str, types: list[v2.MessageType], start_broker: StartBroker
) -> None:
    async with start_broker(enable_mixed_message_type=True) as running:
        apache = ApacheClient(running)
        await create(apache, "t", kind=kind)
        (queue, *_) = (await apache.route("t")).message_queues
        assert list(queue.accept_message_types) == types


@pytest.mark.parametrize(
    ("read", "write", "perm", "permissions"),
    [
        (2, 2, 4, [v2.READ, v2.READ]),
        (2, 2, 2, [v2.WRITE, v2.WRITE]),
        (3, 1, 6, [v2.READ_WRITE, v2.READ, v2.READ]),
        (1, 3, 6, [v2.READ_WRITE, v2.WRITE, v2.WRITE]),
    ],
)
async def test_a_queue_has_the_permission_of_its_topic_and_of_its_number(
    read: int, write: int, perm: int, permissions: list[v2.Permission], apache: ApacheClient
) -> None:
    await create(apache, "t", read=read, write=write, perm=perm)
    queues = (await apache.route("t")).message_queues
    assert [each.permission for each in queues] == permissions


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("unknown", v2.TOPIC_NOT_FOUND),
        ("", v2.ILLEGAL_TOPIC),
        ("a.b", v2.ILLEGAL_TOPIC),
        ("t" * 128, v2.ILLEGAL_TOPIC),
        ("TBW102", v2.ILLEGAL_TOPIC),
        ("rmq_sys_x", v2.ILLEGAL_TOPIC),
    ],
)
async def test_a_topic_without_a_route_has_its_code(
    name: str, code: v2.Code, apache: ApacheClient
) -> None:
    response = await apache.route(name)
    assert (response.status.code, list(response.message_queues)) == (code, [])
    assert response.status.message


@pytest.mark.parametrize(
    "endpoints",
    [
        v2.Endpoints(addresses=[v2.Address(host="127.0.0.1", port=1)]),
        v2.Endpoints(scheme=LATER, addresses=[v2.Address(host="127.0.0.1", port=1)]),
        v2.Endpoints(scheme=v2.IPv4, addresses=[v2.Address(host="name", port=1)]),
        v2.Endpoints(scheme=v2.IPv4, addresses=[v2.Address(host="::1", port=1)]),
        v2.Endpoints(scheme=v2.IPv4, addresses=[v2.Address(host="127.0.0.1", port=70_000)]),
        v2.Endpoints(scheme=v2.DOMAIN_NAME, addresses=2 * [v2.Address(host="name", port=1)]),
        v2.Endpoints(scheme=v2.IPv4, addresses=17 * [v2.Address(host="127.0.0.1", port=1)]),
    ],
)
async def test_endpoints_that_no_client_can_use_are_refused(
    endpoints: v2.Endpoints, apache: ApacheClient
) -> None:
    await create(apache, "t")
    response = await apache.route("t", endpoints)
    assert response.status.code == v2.ILLEGAL_ACCESS_POINT


async def test_a_request_without_endpoints_gets_the_configured_address(
    start_broker: StartBroker,
) -> None:
    async with start_broker(advertise_host="rocketmq.example") as running:
        apache = ApacheClient(running)
        await create(apache, "t")
        refused = await apache.route("t", v2.Endpoints())
        assert refused.status.code == v2.ILLEGAL_ACCESS_POINT
        config: BrokerConfig = running.broker._config
        object.__setattr__(config, "port", running.ready.port)
        (queue, *_) = (await apache.route("t", v2.Endpoints())).message_queues
        address = v2.Address(host="rocketmq.example", port=running.ready.port)
        assert queue.broker.endpoints == v2.Endpoints(scheme=v2.DOMAIN_NAME, addresses=[address])


async def test_a_namespace_is_part_of_the_name_of_its_topics(apache: ApacheClient) -> None:
    await create(apache, "ns%t", read=2, write=2)
    request = service_pb2.QueryRouteRequest(topic=topic("t", "ns"), endpoints=ACCESS_POINT)
    response = await apache.call("QueryRoute", request)
    assert [each.topic for each in response.message_queues] == 2 * [topic("t", "ns")]
    apache.namespace = "ns"
    assert [each.topic for each in (await apache.route("t")).message_queues] == 2 * [topic("t")]
    apache.namespace = "other"
    assert (await apache.route("t")).status.code == v2.TOPIC_NOT_FOUND


async def test_a_call_without_a_client_id_is_refused(apache: ApacheClient) -> None:
    apache.client_id = ""
    assert (await apache.route("t")).status.code == v2.CLIENT_ID_REQUIRED


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("SyncLiteSubscription", service_pb2.SyncLiteSubscriptionRequest()),
    ],
)
async def test_a_method_without_a_function_says_so(
    method: str, request_: object, apache: ApacheClient
) -> None:
    response = await apache.call(method, request_)
    assert response.status.code == v2.NOT_IMPLEMENTED
    assert method in response.status.message
