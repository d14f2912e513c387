"""Clients of RocketMQ that join and leave groups: codes 34, 35 and 40."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from rocketpy_broker.server.remoting.clients import CLIENTS_PER_CONNECTION_MAX
from rocketpy_proto.model.codes import Language, ResponseCode
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.consumers import ConsumeFromWhere, ConsumeType, MessageModel
from rocketpy_proto.remoting import (
    EXCHANGES,
    RemotingCommand,
)
from rocketpy_proto.remoting.bodies.clients import SubscriptionData
from rocketpy_proto.remoting.headers.clients import (
    ConsumerGroupRequest,
    HeartbeatResponse,
)
from rocketpy_proto.rocketpy.v1 import groups_pb2
from tests.support.broker.clients import group_clients
from tests.support.broker.clients.remoting_client import RemotingBroker
from tests.support.broker.clients.remoting_groups import (
    body_of,
    changed,
    changed_group,
    consumer,
    heartbeat,
    heartbeat_body,
    members,
    unregister,
)
from tests.support.broker.running_broker import until
from tests.unit.remoting.recorded import needs_golden, request, response


def fields_of(answer: RemotingCommand) -> HeartbeatResponse:
    found: HeartbeatResponse = EXCHANGES[Code.HEART_BEAT].response.decode(answer.ext_fields)
    return found


def client_count(remoting: RemotingBroker) -> int:
    return remoting.running.broker.services.groups.clients.client_count


# --- Heartbeats and notices ---


async def test_a_client_that_joins_is_notified_before_its_heartbeat_is_answered(
    remoting: RemotingBroker,
) -> None:
    client = remoting.client
    client.tell(RemotingCommand(Code.HEART_BEAT, 7, body=heartbeat_body("c1", consumer("G", "T"))))
    assert changed_group(await client.next()) == "G"
    answer = await client.next()
    assert (answer.opaque, answer.code) == (7, ResponseCode.SUCCESS)
    assert fields_of(answer) == HeartbeatResponse(True, True)
    assert await members(client, "G") == ["c1"]
    assert not client.requests
    await heartbeat(client, "c1", consumer("G", "T"))
    assert await members(client, "G") == ["c1"]
    assert not client.requests


@needs_golden
@pytest.mark.parametrize(
    ("exchange", "group"), [("25_heartbeat", "GoldG"), ("J02_java_heartbeat", "JOG")]
)
async def test_a_recorded_heartbeat_has_the_recorded_answer(
    remoting: RemotingBroker, exchange: str, group: str
) -> None:
    sent, wanted = request(exchange), response(exchange)
    remoting.client.tell(sent)
    assert changed_group(await remoting.client.next()) == group
    answer = await remoting.client.next()
    assert (answer.opaque, answer.code, answer.ext_fields) == (
        *(wanted.opaque, wanted.code),
        wanted.ext_fields,
    )


# As the clients for Go and C++ write them: other cases, numbers as texts, absent fields.
GO_HEARTBEAT = b"""{"clientID":"c1","producerDataSet":[],"consumerDataSet":[{"groupName":"G",
"consumeType":"CONSUME_PASSIVELY","messageModel":"Clustering","unitMode":false,
"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","subscriptionDataSet":[{"classFilterMode":false,
"topic":"T","subString":"TagA","tagsSet":["TagA"],"codeSet":["2598919"],"subVersion":17,
"expressionType":"TAG"}]}]}"""
CPP_HEARTBEAT = b"""{"clientID":"c1","consumerDataSet":[{"consumeFromWhere":
"CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST","consumeType":"CONSUME_PASSIVELY",
"groupName":"G","messageModel":"CLUSTERING","subscriptionDataSet":[{"codeSet":["2598919"],
"subString":"TagA","subVersion":"17","tagsSet":["TagA"],"topic":"T"}]}]}
"""
NULLS_HEARTBEAT = b"""{"clientID":"c1","producerDataSet":null,"consumerDataSet":[{"groupName":"G",
"consumeFromWhere":null,"subscriptionDataSet":[{"topic":"T","subString":"TagA","tagsSet":null,
"codeSet":null,"subVersion":17,"expressionType":null,"filterClassSource":null}]}]}"""
# As other clients for C++ write them: the places of names in Java's enumerations.
NUMBERS_HEARTBEAT = b"""{"clientID":"c1","consumerDataSet":[{"groupName":"G","consumeFromWhere":0,
"consumeType":1,"messageModel":1,"subscriptionDataSet":[{"topic":"T","subString":"TagA",
"tagsSet":["TagA"],"codeSet":["2598919"],"subVersion":"17"}]}]}"""


@pytest.mark.parametrize("body", [GO_HEARTBEAT, CPP_HEARTBEAT, NULLS_HEARTBEAT, NUMBERS_HEARTBEAT])
async def test_heartbeats_of_other_languages_are_understood(
    remoting: RemotingBroker, body: bytes
) -> None:
    client, code = remoting.client, Code.GET_CONSUMER_CONNECTION_LIST
    answer = await client.ask(Code.HEART_BEAT, body=body, language=Language.GO, version=399)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    found = body_of(code, await client.ask(code, ConsumerGroupRequest("G")))
    assert [(each.language, each.version) for each in found.connections] == [("GO", 399)]
    assert found.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert found.message_model is MessageModel.CLUSTERING
    assert found.consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    assert found.subscriptions == {"T": SubscriptionData("T", "TagA", ("TagA",), (2598919,), 17)}


async def test_the_numbers_of_a_heartbeat_are_java_s(remoting: RemotingBroker) -> None:
    client, code = remoting.client, Code.GET_CONSUMER_CONNECTION_LIST
    fields = {"consume_type": 2, "message_model": 0, "consume_from_where": 4}
    await heartbeat(client, "c1", consumer("G", "T", **fields))
    found = body_of(code, await client.ask(code, ConsumerGroupRequest("G")))
    assert found.consume_type is ConsumeType.CONSUME_POP
    assert found.message_model is MessageModel.BROADCASTING
    assert found.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    for wrong in (-1, 2):
        body = heartbeat_body("c2", consumer("G", "T", message_model=wrong))
        answer = await client.ask(Code.HEART_BEAT, body=body)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert f"{wrong} is not from 0 to 1" in str(answer.remark)


async def test_members_are_notified_of_joins_and_leaves(remoting: RemotingBroker) -> None:
    client = remoting.client
    await heartbeat(client, "c1", consumer("G", "T"))
    assert await changed(client) == "G"
    async with remoting.another() as other:
        await heartbeat(other, "c2", consumer("G", "T"), consumer("H"))
        assert await changed(client) == "G"
        assert await members(client, "G") == ["c1", "c2"]
        await unregister(other, "c2", consumer_group="G")
        assert await changed(client) == "G"
        assert await members(client, "G") == ["c1"]
        assert await members(client, "H") == ["c2"]
        await heartbeat(other, "c2", consumer("G", "T"))
        assert await changed(client) == "G"
    assert await changed(client) == "G"
    assert await members(client, "G") == ["c1"]
    await until(lambda: len(remoting.running.broker.services.remoting_clients) == 1)
    assert await members(client, "H") == []


async def test_a_changed_set_of_topics_is_a_change(remoting: RemotingBroker) -> None:
    client = remoting.client
    await heartbeat(client, "c1", consumer("G", "T"))
    assert await changed(client) == "G"
    newer = SubscriptionData("T", "a || b", sub_version_ms=2)
    await heartbeat(client, "c1", consumer("G", newer))
    assert await members(client, "G") == ["c1"]
    assert not client.requests
    await heartbeat(client, "c1", consumer("G", newer, "U"))
    assert await changed(client) == "G"


async def test_broadcasting_members_are_not_notified(remoting: RemotingBroker) -> None:
    client = remoting.client
    group = consumer("G", "T", message_model=MessageModel.BROADCASTING)
    await heartbeat(client, "c1", group)
    async with remoting.another() as other:
        await heartbeat(other, "c2", group)
    await until(lambda: client_count(remoting) == 1)
    assert await members(client, "G") == ["c1"]
    assert not client.requests


async def test_clients_of_both_protocols_share_a_group(remoting: RemotingBroker) -> None:
    client, running = remoting.client, remoting.running
    await heartbeat(client, "c1", consumer("G", "T"))
    assert await changed(client) == "G"
    async with group_clients.listening(running, "c2") as told:
        await group_clients.heartbeat(running, "c2", group_clients.consumer("G", "T"))
        assert await changed(client) == "G"
        assert await told.changed() == "G"
        assert await members(client, "G") == ["c1", "c2"]
        await unregister(client, "c1", consumer_group="G")
        assert await told.changed() == "G"


async def test_a_silent_client_expires_after_two_minutes(remoting: RemotingBroker) -> None:
    client, clock = remoting.client, remoting.running.clock
    await heartbeat(client, "c1", consumer("G", "T"))
    async with remoting.another() as other:
        await heartbeat(other, "c2", consumer("G", "T"))
        for _ in range(12):
            clock.advance(10_000)
            await heartbeat(client, "c1", consumer("G", "T"))
            assert await members(other, "G") == ["c1", "c2"]
        client.requests.clear()
        clock.advance(10_000)
        assert await changed(client) == "G"
        assert await members(other, "G") == ["c1"]
        # The connection and the client live on.
        other.requests.clear()
        await heartbeat(other, "c2", consumer("G", "T"))
        assert await changed(other) == "G"
        assert await changed(client) == "G"


async def test_a_client_moves_to_its_newer_connection(remoting: RemotingBroker) -> None:
    client = remoting.client
    async with remoting.another() as former:
        await heartbeat(former, "c1", consumer("G", "T"))
        await heartbeat(client, "c1", consumer("G", "T"))
    async with remoting.another() as other:
        await heartbeat(other, "c2", consumer("G", "T"))
        assert await changed(client) == "G"
        assert await members(other, "G") == ["c1", "c2"]
    assert await changed(client) == "G"
    assert await members(client, "G") == ["c1"]


async def test_a_connection_may_have_several_clients_up_to_a_limit(
    remoting: RemotingBroker,
) -> None:
    client = remoting.client
    async with remoting.another() as other:
        for number in range(CLIENTS_PER_CONNECTION_MAX):
            await heartbeat(other, f"c{number}", producers=["P"])
        body = heartbeat_body("more", producers=["P"])
        answer = await other.ask(Code.HEART_BEAT, body=body)
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "use several connections" in str(answer.remark)
        await unregister(other, "c0", producer_group="P")
        await until(
            lambda: (
                len(remoting.running.broker.services.remoting_clients) < CLIENTS_PER_CONNECTION_MAX
            )
        )
        await heartbeat(other, "more", producers=["P"])
        assert client_count(remoting) == CLIENTS_PER_CONNECTION_MAX
        await heartbeat(client, "stays", producers=["P"])
    await until(lambda: client_count(remoting) == 1)


async def test_a_refused_heartbeat_leaves_no_client(remoting: RemotingBroker) -> None:
    for number in range(2 * CLIENTS_PER_CONNECTION_MAX):
        body = heartbeat_body(f"c{number}", producers=["a b"])
        answer = await remoting.client.ask(Code.HEART_BEAT, body=body)
        assert answer.code == ResponseCode.INVALID_PARAMETER
    await until(lambda: not len(remoting.running.broker.services.remoting_clients))
    assert client_count(remoting) == 0


async def test_a_one_way_heartbeat_registers_its_client(remoting: RemotingBroker) -> None:
    body = heartbeat_body("c1", consumer("G", "T"))
    remoting.client.tell(RemotingCommand(Code.HEART_BEAT, 1, flag=2, body=body))
    assert await changed(remoting.client) == "G"
    assert await members(remoting.client, "G") == ["c1"]


async def test_a_heartbeat_without_groups_is_accepted(remoting: RemotingBroker) -> None:
    await heartbeat(remoting.client, "c1")
    assert client_count(remoting) == 0


async def test_unregister_without_a_group_changes_nothing(remoting: RemotingBroker) -> None:
    await heartbeat(remoting.client, "c1", consumer("G", "T"))
    await unregister(remoting.client, "c1")
    await unregister(remoting.client, "none", consumer_group="G", producer_group="none")
    assert await members(remoting.client, "G") == ["c1"]


async def test_a_heartbeat_without_subscriptions_keeps_the_known_ones(
    remoting: RemotingBroker,
) -> None:
    client, groups = remoting.client, remoting.running.broker.services.groups.clients
    short: dict[str, Any] = {"heartbeat_fingerprint": 5, "is_without_subscriptions": True}
    # The broker knows none: the client has to send them.
    assert fields_of(await heartbeat(client, "c1", consumer("G"), **short)).is_subscription_changed
    full = await heartbeat(client, "c1", consumer("G", "T"), heartbeat_fingerprint=5)
    assert not fields_of(full).is_subscription_changed
    client.requests.clear()
    answer = await heartbeat(client, "c1", consumer("G"), **short)
    assert fields_of(answer) == HeartbeatResponse(True, False)
    known = groups.consumer_group("G")
    assert known is not None
    assert [*known.subscriptions] == ["T"]
    assert not client.requests
    async with remoting.another() as other:
        await heartbeat(other, "c2", consumer("G", "T"), heartbeat_fingerprint=6)
        answer = await heartbeat(client, "c1", consumer("G"), **short)
        assert fields_of(answer).is_subscription_changed


async def test_a_slow_client_holds_a_bounded_number_of_notices(remoting: RemotingBroker) -> None:
    services = remoting.running.broker.services
    clients, limits = services.groups.clients, remoting.running.broker._config.limits.clients
    async with remoting.another() as slow:
        await heartbeat(slow, "slow", producers=["P"])
        check = groups_pb2.CheckTransaction(producer_group="P", record=bytes(64 << 10))
        accepted = 0
        while clients.notify_one_producer(check):
            accepted += 1
            await asyncio.sleep(0)
        streams = clients._streams
        assert streams.waiting_bytes <= limits.notice_bytes_per_connection_max
        # The rest is in the buffers of both sockets.
        assert accepted * len(check.record) < 64 << 20
        # Other clients are served.
        await heartbeat(remoting.client, "c1", producers=["P"])
        assert clients.notify_one_producer(check)
        assert (await remoting.client.request()).code == Code.CHECK_TRANSACTION_STATE
    await until(lambda: not streams.waiting_bytes)


async def test_a_heartbeat_whose_connection_ends_leaves_no_client(
    remoting: RemotingBroker,
) -> None:
    async with AsyncExitStack() as stack:
        for number in range(20):
            other = await stack.enter_async_context(remoting.another())
            body = heartbeat_body(f"c{number}", consumer(f"G{number}", "T"))
            other.tell(RemotingCommand(Code.HEART_BEAT, 1, body=body))
            if number % 2:
                await asyncio.sleep(0)
    await until(lambda: remoting.connection_count == 1)
    await until(lambda: client_count(remoting) == 0)
    await until(lambda: not len(remoting.running.broker.services.remoting_clients))
