"""Signatures and permissions of apache.rocketmq.v2."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from rocketpy_broker.server.apache_v2.handlers import SERVICE
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.apache.rocketmq.v2 import service_pb2
from rocketpy_proto.model.codes import RequestCode, ResponseCode
from rocketpy_proto.remoting.headers.clients import ConsumeMessageDirectlyRequest
from rocketpy_proto.rocketpy.v1 import admin_pb2, groups_pb2, groups_pb2_grpc
from tests.broker.runtime.test_request_sizes import first_answer
from tests.support.broker.clients.apache_client import (
    ACCESS_POINT,
    ApacheClient,
    consuming,
    message,
    producing,
)
from tests.support.broker.clients.apache_client import group as group_of
from tests.support.broker.clients.apache_client import topic as topic_of
from tests.support.broker.clients.users import GROUP, OTHER, SECRETS, TOPIC, Secured, sent_message
from tests.support.broker.running_broker import until
from tests.support.broker.transactions import rounds

DATE_TIME = "20260101T000000Z"
Metadata = Sequence[tuple[str, str]]


def signed(access_key: str, secret_key: str, date_time: str = DATE_TIME) -> Metadata:
    signature = hmac.digest(secret_key.encode(), date_time.encode(), "sha1").hex()
    text = f"Credential={access_key}//Rocketmq, SignedHeaders=x-mq-date-time, Signature={signature}"
    return [("authorization", f"MQv2-HMAC-SHA1 {text}"), ("x-mq-date-time", DATE_TIME)]


@dataclass
class SigningClient(ApacheClient):
    """A client whose requests have this signature."""

    signature: Metadata = ()

    @property
    def metadata(self) -> Metadata:
        return [*super().metadata, *self.signature]


def client(secured: Secured, access_key: str) -> SigningClient:
    return SigningClient(secured.running, signature=signed(access_key, SECRETS[access_key]))


def route(name: str) -> service_pb2.QueryRouteRequest:
    return service_pb2.QueryRouteRequest(topic=topic_of(name), endpoints=ACCESS_POINT)


SIGNATURES: dict[str, Metadata] = {
    "none": (),
    "no signature": [("authorization", "MQv2-HMAC-SHA1 x"), ("x-mq-date-time", DATE_TIME)],
    "no time": signed("writer", SECRETS["writer"])[:1],
    "wrong": signed("writer", "another-secret-key"),
    "another user's": signed("writer", SECRETS["reader"]),
    "unknown user": signed("stranger", "another-secret-key"),
    "of another time": signed("writer", SECRETS["writer"], "20260101T000001Z"),
}


@pytest.mark.parametrize("kind", SIGNATURES)
async def test_n09_a_request_without_a_valid_signature_is_refused(
    secured: Secured, kind: str
) -> None:
    refused = SigningClient(secured.running, signature=SIGNATURES[kind])
    answer = await refused.call("QueryRoute", route(TOPIC))
    assert (answer.status.code, len(answer.message_queues)) == (v2.UNAUTHORIZED, 0)
    served = await client(secured, "writer").call("QueryRoute", route(TOPIC))
    assert served.status.code == v2.OK


async def test_n09_a_telemetry_stream_without_a_valid_signature_ends(secured: Secured) -> None:
    refused = SigningClient(secured.running, signature=SIGNATURES["wrong"])
    answer = await refused.settle(producing(TOPIC))
    assert answer.status.code == v2.UNAUTHORIZED


Ask = Callable[[ApacheClient, str], Any]


def queue(name: str) -> v2.MessageQueue:
    return v2.MessageQueue(topic=topic_of(name), id=0)


def of_reader(**more: Any) -> dict[str, Any]:
    return {"group": group_of(GROUP), "topic": topic_of(TOPIC), **more}


def of_queue(**more: Any) -> dict[str, Any]:
    return {"group": group_of(GROUP), "message_queue": queue(TOPIC), **more}


# A request for each method, by the user that may send it and one that may not.
REQUESTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "QueryRoute": ("reader", "monitor", {"topic": topic_of(TOPIC), "endpoints": ACCESS_POINT}),
    "Heartbeat": ("reader", "writer", {"group": group_of(GROUP), "client_type": v2.PUSH_CONSUMER}),
    "SendMessage": ("writer", "reader", {"messages": [message(TOPIC)]}),
    "QueryAssignment": ("reader", "writer", of_reader(endpoints=ACCESS_POINT)),
    # Its invisible time is refused after the permission.
    "ReceiveMessage": ("reader", "writer", of_queue(batch_size=1)),
    "AckMessage": ("reader", "writer", of_reader()),
    "ForwardMessageToDeadLetterQueue": ("reader", "writer", of_reader()),
    "PullMessage": ("reader", "writer", of_queue(offset=99)),
    "UpdateOffset": ("reader", "writer", of_queue()),
    "GetOffset": ("reader", "writer", of_queue()),
    "QueryOffset": ("reader", "writer", {"message_queue": queue(TOPIC)}),
    "EndTransaction": ("writer", "reader", {"topic": topic_of(TOPIC)}),
    "Telemetry": ("writer", "reader", {"settings": producing(TOPIC)}),
    "NotifyClientTermination": ("reader", "writer", {"group": group_of(GROUP)}),
    "ChangeInvisibleDuration": ("reader", "writer", of_reader()),
    "RecallMessage": ("writer", "reader", {"topic": topic_of(TOPIC)}),
    # Not supported, whatever the user.
    "SyncLiteSubscription": ("reader", "", of_reader()),
}


@pytest.mark.parametrize("method", list(SERVICE.methods), ids=lambda each: each.name)
async def test_n09_each_method_needs_a_signature_and_its_permission(
    secured: Secured, method: MethodDescriptor
) -> None:
    allowed, denied, fields = REQUESTS[method.name]
    request = GetMessageClass(method.input_type)(**fields).SerializeToString()

    async def code(user: ApacheClient) -> int:
        answer = await first_answer(secured.running, method, request, user.metadata)
        return int(answer.status.code)

    assert await code(ApacheClient(secured.running)) == v2.UNAUTHORIZED
    assert await code(client(secured, allowed)) != v2.UNAUTHORIZED
    if denied:
        assert await code(client(secured, denied)) == v2.UNAUTHORIZED


READER_CALLS: dict[str, Ask] = {
    "QueryRoute": lambda _, name: route(name),
    "QueryAssignment": lambda _, name: service_pb2.QueryAssignmentRequest(
        topic=topic_of(name), group=group_of(GROUP), endpoints=ACCESS_POINT
    ),
    "QueryOffset": lambda _, name: service_pb2.QueryOffsetRequest(
        message_queue=queue(name), query_offset_policy=v2.BEGINNING
    ),
    "UpdateOffset": lambda _, name: service_pb2.UpdateOffsetRequest(
        group=group_of(GROUP), message_queue=queue(name), offset=0
    ),
}


@pytest.mark.parametrize("method", READER_CALLS)
async def test_a_reader_reads_its_topic_alone(secured: Secured, method: str) -> None:
    reader = client(secured, "reader")
    codes = [
        (await reader.call(method, READER_CALLS[method](reader, name))).status.code
        for name in (TOPIC, OTHER)
    ]
    assert codes == [v2.OK, v2.UNAUTHORIZED]


async def test_a_group_of_another_user_is_refused(secured: Secured) -> None:
    reader = client(secured, "reader")
    request = service_pb2.HeartbeatRequest(group=group_of("others"), client_type=v2.PUSH_CONSUMER)
    assert (await reader.call("Heartbeat", request)).status.code == v2.UNAUTHORIZED
    request.group.name = GROUP
    assert (await reader.call("Heartbeat", request)).status.code == v2.OK


@pytest.mark.parametrize(
    ("access_key", "settings", "code"),
    [
        ("writer", producing(TOPIC), v2.OK),
        ("writer", producing(TOPIC, OTHER), v2.UNAUTHORIZED),
        ("reader", producing(TOPIC), v2.UNAUTHORIZED),
        ("reader", consuming(GROUP, TOPIC), v2.OK),
        ("reader", consuming(GROUP, OTHER), v2.UNAUTHORIZED),
        ("reader", consuming("others", TOPIC), v2.UNAUTHORIZED),
    ],
)
async def test_settings_name_topics_and_groups_of_the_user(
    secured: Secured, access_key: str, settings: v2.Settings, code: int
) -> None:
    answer = await client(secured, access_key).settle(settings)
    assert answer.status.code == code


async def test_a_repeated_header_names_one_namespace(secured: Secured) -> None:
    metadata = [("x-mq-namespace", "orders"), *client(secured, "writer").metadata]
    metadata.append(("x-mq-namespace", "invoices"))
    for first in (0, 1):
        # The topic `invoices%a` is no writer's, whatever the order.
        headers = metadata[first:] + metadata[:first]
        stub = client(secured, "writer").stub
        answer = await stub.QueryRoute(route("a"), metadata=headers)
        is_own = first == 0
        expected = v2.TOPIC_NOT_FOUND if is_own else v2.UNAUTHORIZED
        assert answer.status.code == expected


async def test_another_user_s_stream_gets_no_checks_of_the_client(secured: Secured) -> None:
    writer, thief = client(secured, "writer"), client(secured, "reader")
    assert thief.client_id == writer.client_id
    async with thief.telemetry() as stolen:
        await stolen.initial_metadata()
        await until(lambda: secured.running.broker.services.groups.clients.listener_count == 1)
        answer = await writer.send(message(TOPIC, message_type=v2.TRANSACTION))
        assert answer.status.code == v2.OK
        await rounds(secured.running, 2)
        async with writer.telemetry(producing(TOPIC)) as own:
            assert await stolen.read() is grpc.aio.EOF
            await rounds(secured.running, 1)
            assert (await own.read()).HasField("recover_orphaned_transaction_command")


async def test_another_user_s_stream_of_notices_gets_no_checks_of_the_client(
    secured: Secured,
) -> None:
    writer, clients = client(secured, "writer"), secured.running.broker.services.groups.clients
    request = groups_pb2.NoticesRequest(client_id=writer.client_id)
    stub = groups_pb2_grpc.GroupsStub(secured.running.channel)
    stolen = stub.Notices(request, metadata=secured.metadata("reader"))
    await until(lambda: clients.listener_count == 1)
    assert (await writer.send(message(TOPIC, message_type=v2.TRANSACTION))).status.code == v2.OK
    await rounds(secured.running, 2)
    async with writer.telemetry(producing(TOPIC)):
        # The end of the stream: the client has a newer one.
        assert (await stolen.read()).WhichOneof("notice") is None


async def test_a_namespace_is_part_of_the_name(secured: Secured) -> None:
    reader = client(secured, "reader")
    reader.namespace = "tenant"
    answer = await reader.call("QueryRoute", route(TOPIC))
    assert answer.status.code == v2.UNAUTHORIZED


async def test_n09_a_repeated_header_names_one_namespace_for_check_and_work(
    secured: Secured,
) -> None:
    name = f"tenant%{TOPIC}"
    config = admin_pb2.TopicConfig(topic=name, read_queue_nums=1, write_queue_nums=1, perm=6)
    made = await secured.running.admin.UpdateTopic(
        admin_pb2.UpdateTopicRequest(config=config), metadata=secured.metadata("admin")
    )
    assert made.status.code == 0, made.status.remark
    signature = [*signed("reader", SECRETS["reader"]), ("x-mq-namespace", "")]
    twice = SigningClient(secured.running, signature=signature)
    twice.namespace = "tenant"
    answer = await twice.call("QueryRoute", route(TOPIC))
    assert answer.status.code == v2.UNAUTHORIZED


@pytest.mark.parametrize(("topic", "is_sent"), [(TOPIC, True), (OTHER, False)])
async def test_n09_a_user_gets_no_message_of_a_topic_that_it_may_not_read(
    secured: Secured, topic: str, is_sent: bool
) -> None:
    reader = client(secured, "reader")
    msg_id = await sent_message(secured, topic)
    header = ConsumeMessageDirectlyRequest(GROUP, reader.client_id, msg_id)
    async with reader.telemetry(consuming(GROUP, TOPIC)) as call:
        asking = asyncio.ensure_future(
            secured.ask("admin", RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
        )
        if is_sent:
            assert (await call.read()).verify_message_command.message.body == b"secret"
        else:
            assert (await asking).code == ResponseCode.NO_PERMISSION
    await until(asking.done)
