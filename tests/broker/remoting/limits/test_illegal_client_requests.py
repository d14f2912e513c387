"""Illegal heartbeats, questions and locks have declared codes."""

from __future__ import annotations

from typing import Any

import pytest

from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting import (
    MessageQueue,
    encode_body,
)
from rocketpy_proto.remoting.bodies.clients import (
    LockBatchRequestBody,
    SubscriptionData,
)
from rocketpy_proto.remoting.headers.clients import (
    ConsumerGroupRequest,
    ProducerGroupRequest,
    UnregisterClientRequest,
)
from tests.support.broker.clients.remoting_client import RemotingBroker
from tests.support.broker.clients.remoting_groups import (
    body_of,
    consumer,
    heartbeat,
    heartbeat_body,
    members,
)
from tests.support.broker.running_broker import StartBroker


def client_count(remoting: RemotingBroker) -> int:
    return remoting.running.broker.services.groups.clients.client_count


# --- Hostile requests ---

_MANY = tuple(SubscriptionData(f"T{number}") for number in range(10_000))
ILLEGAL = ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", ResponseCode.SYSTEM_ERROR),
        (b"{", ResponseCode.SYSTEM_ERROR),
        (b"[]", ResponseCode.SYSTEM_ERROR),
        (b'{"clientID":7,"producerDataSet":3}', ResponseCode.SYSTEM_ERROR),
        (b'{"producerDataSet":[]}', ResponseCode.SYSTEM_ERROR),
        (heartbeat_body("c1", consumer("G", *_MANY)), ILLEGAL),
        (heartbeat_body("c1", consumer("G", *_MANY[:1_001])), ILLEGAL),
        (heartbeat_body("c1", *(consumer(f"G{n}") for n in range(101))), ILLEGAL),
        (heartbeat_body("c1", producers=[f"P{n}" for n in range(10_000)]), ILLEGAL),
        (heartbeat_body("c1", consumer("a b", "T")), ILLEGAL),
        (heartbeat_body("c1", consumer("", "T")), ILLEGAL),
        (heartbeat_body("c1", consumer("G" * 300, "T")), ILLEGAL),
        (heartbeat_body("c1", consumer("G", "a b")), ILLEGAL),
        (heartbeat_body("c1", consumer("G", "T", "T")), ILLEGAL),
        (heartbeat_body("c1", consumer("G", SubscriptionData("T", "||"))), ILLEGAL),
        (heartbeat_body("c1", consumer("G", SubscriptionData("T", "x" * 16_385))), ILLEGAL),
        (heartbeat_body("c1", consumer("G"), consumer("G")), ILLEGAL),
        (heartbeat_body("c1", producers=["a b"]), ILLEGAL),
        (heartbeat_body("c" * 300, consumer("G", "T")), ILLEGAL),
        (heartbeat_body("", consumer("G", "T")), ILLEGAL),
        (heartbeat_body("a\nb", consumer("G", "T")), ILLEGAL),
        (heartbeat_body("c1", consumer("G", "T")) + b" " * (1 << 20), ILLEGAL),
    ],
)
async def test_illegal_heartbeats_are_refused_whole(
    remoting: RemotingBroker, body: bytes, code: ResponseCode
) -> None:
    answer = await remoting.client.ask(Code.HEART_BEAT, body=body)
    assert answer.code == code, answer.remark
    assert answer.remark
    assert client_count(remoting) == 0
    # The connection serves on.
    await heartbeat(remoting.client, "c1", consumer("G", "T"))


@pytest.mark.parametrize(
    "refused",
    [
        {"consumers": [consumer("a b", "T")]},
        {"consumers": [consumer("other", "a b")]},
        {"consumers": [consumer("other", SubscriptionData("T", "||"))]},
        {"producers": ["a b"]},
    ],
)
async def test_other_groups_of_a_heartbeat_are_served(
    remoting: RemotingBroker, refused: dict[str, Any]
) -> None:
    consumers = [*refused.get("consumers", ()), consumer("G", "T")]
    producers = [*refused.get("producers", ()), "P"]
    answer = await heartbeat(remoting.client, "c1", *consumers, producers=producers)
    assert "refused groups" in str(answer.remark)
    assert await members(remoting.client, "G") == ["c1"]
    assert await members(remoting.client, "other") == []
    code = Code.GET_PRODUCER_CONNECTION_LIST
    found = body_of(code, await remoting.client.ask(code, ProducerGroupRequest("P")))
    assert [each.client_id for each in found.connections] == ["c1"]


async def test_groups_that_the_broker_does_not_create_are_left_out(
    start_broker: StartBroker,
) -> None:
    async with (
        start_broker(remoting_port=0, auto_create_subscription_group=False) as running,
        RemotingBroker.of(running) as remoting,
    ):
        await heartbeat(remoting.client, "c1", consumer("G", "T"), producers=["P"])
        assert await members(remoting.client, "G") == []
        assert client_count(remoting) == 1
        body = heartbeat_body("c2", consumer("G", "T"))
        answer = await remoting.client.ask(Code.HEART_BEAT, body=body)
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert client_count(remoting) == 1


@pytest.mark.parametrize(
    ("code", "header", "body", "wanted"),
    [
        (Code.UNREGISTER_CLIENT, UnregisterClientRequest("c" * 300, "P"), b"", ILLEGAL),
        (Code.UNREGISTER_CLIENT, UnregisterClientRequest("c", "a b"), b"", ILLEGAL),
        (Code.UNREGISTER_CLIENT, None, b"", ResponseCode.SYSTEM_ERROR),
        (Code.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupRequest("a b"), b"", ILLEGAL),
        (Code.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupRequest("a b"), b"", ILLEGAL),
        (Code.GET_PRODUCER_CONNECTION_LIST, ProducerGroupRequest("a b"), b"", ILLEGAL),
        (Code.CHECK_CLIENT_CONFIG, None, b"", ResponseCode.SYSTEM_ERROR),
        (Code.LOCK_BATCH_MQ, None, b"", ResponseCode.SYSTEM_ERROR),
        (Code.LOCK_BATCH_MQ, None, b'{"consumerGroup":"a b","clientId":"c"}', ILLEGAL),
        (Code.LOCK_BATCH_MQ, None, b'{"consumerGroup":"G","clientId":""}', ILLEGAL),
        (
            *(Code.LOCK_BATCH_MQ, None),
            encode_body(LockBatchRequestBody("G", "c", (MessageQueue("b", -1, "T"),))),
            ILLEGAL,
        ),
        (
            *(Code.LOCK_BATCH_MQ, None),
            encode_body(
                LockBatchRequestBody(
                    "G", "c", tuple(MessageQueue("b", n, "T") for n in range(1_001))
                )
            ),
            ILLEGAL,
        ),
    ],
)
async def test_illegal_requests_have_declared_codes(
    remoting: RemotingBroker, code: Code, header: Any, body: bytes, wanted: ResponseCode
) -> None:
    answer = await remoting.client.ask(code, header, body)
    assert answer.code == wanted, answer.remark
    assert answer.remark
