"""Questions about groups' members, checks of expressions, locks. Codes 38, 41, 42, 46, 203, 204."""

from __future__ import annotations

from typing import Any

import pytest

from rocketpy_proto.model.codes import Language, ResponseCode
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.consumers import ConsumeFromWhere, ConsumeType, MessageModel
from rocketpy_proto.record import java_hash
from rocketpy_proto.remoting import (
    MessageQueue,
    RemotingCommand,
    encode_body,
)
from rocketpy_proto.remoting.bodies.clients import (
    CheckClientRequestBody,
    Connection,
    LockBatchRequestBody,
    SubscriptionData,
)
from rocketpy_proto.remoting.headers.clients import (
    ConsumerGroupRequest,
    ProducerGroupRequest,
)
from tests.support.broker.clients import group_clients
from tests.support.broker.clients.remoting_client import RemotingBroker, RemotingClient
from tests.support.broker.clients.remoting_groups import (
    body_of,
    consumer,
    heartbeat_body,
)

QUEUES = tuple(MessageQueue("broker-a", number, "T") for number in range(4))


# --- Questions ---


async def test_an_unknown_group_has_no_members(remoting: RemotingBroker) -> None:
    answer = await remoting.client.ask(
        Code.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupRequest("none")
    )
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "no consumer for this group, none" in str(answer.remark)


async def test_connections_have_language_and_version(remoting: RemotingBroker) -> None:
    client, running = remoting.client, remoting.running
    subscription = SubscriptionData("T", "a || b", sub_version_ms=9)
    sql = SubscriptionData("U", "a > 1", sub_version_ms=8, expression_type="SQL92")
    group = consumer(
        *("G", subscription, sql, "V"),
        consume_type=ConsumeType.CONSUME_POP,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_MAX_OFFSET,
    )
    body = heartbeat_body("java", group, producers=["P"])
    await client.ask(Code.HEART_BEAT, body=body, language=Language.JAVA, version=479)
    await group_clients.heartbeat(running, "own", producers=["P"])
    code = Code.GET_CONSUMER_CONNECTION_LIST
    found = body_of(code, await client.ask(code, ConsumerGroupRequest("G")))
    host, port = client.writer.get_extra_info("sockname")
    java = Connection("java", f"{host}:{port}", "JAVA", 479)
    assert found.connections == (java,)
    assert found.consume_type is ConsumeType.CONSUME_POP
    assert found.message_model is MessageModel.CLUSTERING
    assert found.consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    codes = (java_hash("a"), java_hash("b"))
    assert found.subscriptions == {
        "T": SubscriptionData("T", "a || b", ("a", "b"), codes, 9),
        "U": sql,
        "V": SubscriptionData("V", sub_version_ms=1),
    }
    code = Code.GET_PRODUCER_CONNECTION_LIST
    producers = body_of(code, await client.ask(code, ProducerGroupRequest("P"))).connections
    assert producers[0] == java
    assert (producers[1].client_id, producers[1].language) == ("own", "PYTHON")


@pytest.mark.parametrize(
    ("code", "header", "wanted"),
    [
        (Code.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupRequest("G"), (206, "] not online")),
        (Code.GET_PRODUCER_CONNECTION_LIST, ProducerGroupRequest("G"), (1, "] not exist")),
    ],
)
async def test_connections_of_unknown_groups(
    remoting: RemotingBroker, code: Code, header: Any, wanted: tuple[int, str]
) -> None:
    answer = await remoting.client.ask(code, header)
    assert answer.code == wanted[0]
    assert wanted[1] in str(answer.remark)


async def test_large_groups_have_all_their_connections(remoting: RemotingBroker) -> None:
    clients = remoting.running.broker.services.groups.clients
    for number in range(3_000):
        clients.producers.register("P", f"client-{number:05}", "10.0.0.1:5")
    answer = await remoting.client.ask(Code.GET_PRODUCER_CONNECTION_LIST, ProducerGroupRequest("P"))
    found = body_of(Code.GET_PRODUCER_CONNECTION_LIST, answer).connections
    assert [each.client_id for each in found] == [f"client-{n:05}" for n in range(3_000)]


@pytest.mark.parametrize(
    ("kind", "text", "code"),
    [
        ("TAG", "a || b", ResponseCode.SUCCESS),
        ("SQL92", "a > 1 AND b IS NOT NULL", ResponseCode.SUCCESS),
        ("SQL92", "a >", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("SQL92", "", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("other", "a", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ],
)
async def test_a_client_checks_its_expression(
    remoting: RemotingBroker, kind: str, text: str, code: ResponseCode
) -> None:
    data = SubscriptionData("T", text, expression_type=kind)
    body = encode_body(CheckClientRequestBody("c1", "G", data))
    answer = await remoting.client.ask(Code.CHECK_CLIENT_CONFIG, body=body)
    assert answer.code == code, answer.remark


# --- Locks ---


async def lock(
    client: RemotingClient, client_id: str, *queues: MessageQueue, code: Code = Code.LOCK_BATCH_MQ
) -> RemotingCommand:
    body = encode_body(LockBatchRequestBody("G", client_id, queues))
    return await client.ask(code, body=body)


async def test_a_queue_has_one_lock(remoting: RemotingBroker) -> None:
    client, clock = remoting.client, remoting.running.clock

    async def locked(client_id: str, *queues: MessageQueue) -> tuple[MessageQueue, ...]:
        found: tuple[MessageQueue, ...] = body_of(
            Code.LOCK_BATCH_MQ, await lock(client, client_id, *queues)
        ).locked
        return found

    assert await locked("c1", *QUEUES[:3]) == QUEUES[:3]
    assert await locked("c2", *QUEUES[2:]) == QUEUES[3:]
    assert await locked("c1") == ()
    for client_id in ("c2", "c1", "c1"):
        answer = await lock(client, client_id, QUEUES[0], code=Code.UNLOCK_BATCH_MQ)
        assert answer.code == ResponseCode.SUCCESS
    assert await locked("c2", *QUEUES[:2]) == QUEUES[:1]
    clock.advance(60_001)
    assert await locked("c2", *QUEUES) == QUEUES


async def test_a_one_way_unlock_is_done(remoting: RemotingBroker) -> None:
    client = remoting.client
    await lock(client, "c1", *QUEUES)
    body = encode_body(LockBatchRequestBody("G", "c1", QUEUES))
    client.tell(RemotingCommand(Code.UNLOCK_BATCH_MQ, 99, flag=2, body=body))
    answer = await lock(client, "c2", *QUEUES)
    assert body_of(Code.LOCK_BATCH_MQ, answer).locked == QUEUES
