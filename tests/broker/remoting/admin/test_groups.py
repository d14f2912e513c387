"""Consumer groups by RocketMQ's tools: codes 200, 201, 352, 207, 208, 317, 303, 343 and 345."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.model.configs import SubscriptionGroupConfig
from rocketpy_proto.record import java_hash
from rocketpy_proto.remoting import MessageQueue, encode_body
from rocketpy_proto.remoting.bodies.clients import QuerySubscriptionBody, SubscriptionData
from rocketpy_proto.remoting.bodies.configs import SubscriptionGroupTable
from rocketpy_proto.remoting.bodies.routes import TopicList
from rocketpy_proto.remoting.bodies.stats import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)
from rocketpy_proto.remoting.headers.clients import (
    BrokerConsumeStatsRequest,
    ConsumeStatsRequest,
    ConsumeTimeSpanRequest,
    DeleteGroupRequest,
    GroupRequest,
    GroupTopicRequest,
)
from tests.broker.remoting.requests import answered, commit, subscribe, update_topic
from tests.broker.remoting.test_sends_and_pulls import pull, send
from tests.support.broker.clients.remoting_client import RemotingBroker, RemotingClient
from tests.support.broker.running_broker import StartBroker


def queue(queue_id: int, topic: str = "T") -> MessageQueue:
    return MessageQueue("broker-a", queue_id, topic)


async def update(client: RemotingClient, config: SubscriptionGroupConfig) -> None:
    await answered(client, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=encode_body(config))


async def config(client: RemotingClient, group: str) -> SubscriptionGroupConfig:
    header = GroupRequest(group)
    found: SubscriptionGroupConfig = await answered(
        client, Code.GET_SUBSCRIPTIONGROUP_CONFIG, header
    )
    return found


async def consume_stats(client: RemotingClient, **fields: Any) -> ConsumeStats:
    header = ConsumeStatsRequest(**{"consumer_group": "G"} | fields)
    found: ConsumeStats = await answered(client, Code.GET_CONSUME_STATS, header)
    return found


async def test_a_group_is_created_and_replaced_with_all_its_fields(
    remoting: RemotingBroker,
) -> None:
    first = SubscriptionGroupConfig(
        "G",
        consume_enable=False,
        consume_from_min_enable=False,
        consume_broadcast_enable=False,
        consume_message_orderly=True,
        retry_queue_nums=2,
        retry_max_times=3,
        group_retry_policy={"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 5}},
        broker_id=1,
        which_broker_when_consume_slowly=2,
        notify_consumer_ids_changed_enable=False,
        group_sys_flag=1,
        consume_timeout_minute=5,
        attributes={},
    )
    await update(remoting.client, first)
    assert await config(remoting.client, "G") == first
    second = SubscriptionGroupConfig("G", attributes={})
    await update(remoting.client, second)
    assert (await config(remoting.client, "G")).retry_max_times == 16
    found: SubscriptionGroupTable = await answered(
        remoting.client, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    )
    assert found.groups["G"] == await config(remoting.client, "G")
    assert "TOOLS_CONSUMER" in found.groups
    assert found.data_version is not None
    assert found.data_version.counter == 2


async def test_a_request_without_a_retry_policy_keeps_the_groups_own(
    remoting: RemotingBroker,
) -> None:
    policy = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 5}}
    await update(remoting.client, SubscriptionGroupConfig("G", group_retry_policy=policy))
    code, body = Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b'{"groupName":"G","retryMaxTimes":3}'
    answer = await remoting.client.ask(code, body=body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    found = await config(remoting.client, "G")
    assert (found.retry_max_times, found.group_retry_policy) == (3, policy)


@pytest.mark.parametrize(
    "body",
    [
        SubscriptionGroupConfig(""),
        SubscriptionGroupConfig("a b"),
        SubscriptionGroupConfig("G", retry_queue_nums=-1),
        SubscriptionGroupConfig("G", retry_max_times=-1),
        SubscriptionGroupConfig("G", attributes={"+unknown": "1"}),
    ],
)
async def test_refused_changes_of_a_group(
    remoting: RemotingBroker, body: SubscriptionGroupConfig
) -> None:
    code = Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    answer = await remoting.client.ask(code, body=encode_body(body))
    assert answer.code == ResponseCode.INVALID_PARAMETER, answer.remark
    answer = await remoting.client.ask(Code.GET_SUBSCRIPTIONGROUP_CONFIG, GroupRequest("G"))
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_a_malformed_group_is_an_error(remoting: RemotingBroker) -> None:
    code = Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    answer = await remoting.client.ask(code, body=b'{"groupName":7')
    assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_the_forbidden_table_comes_with_the_groups(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    (tmp_path / "config").mkdir()
    content = {"forbiddenTable": {"G": {"T": 4}}, "subscriptionGroupTable": {}}
    (tmp_path / "config" / "subscriptionGroup.json").write_text(json.dumps(content))
    async with start_broker(remoting_port=0) as running, RemotingBroker.of(running) as remoting:
        found = await answered(remoting.client, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        assert found.forbidden_table == {"G": {"T": 4}}


@pytest.mark.parametrize("is_cleaned", [False, True])
async def test_a_group_with_members_is_deleted_with_or_without_its_offsets(
    remoting: RemotingBroker, is_cleaned: bool
) -> None:
    client = remoting.client
    await update_topic(client)
    await subscribe(remoting, "G", "T")
    await commit(remoting, "G", "T", 0)
    for _ in range(2):
        header = DeleteGroupRequest("G", is_cleaned)
        answer = await client.ask(Code.DELETE_SUBSCRIPTIONGROUP, header)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    answer = await client.ask(Code.GET_SUBSCRIPTIONGROUP_CONFIG, GroupRequest("G"))
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    found: TopicList = await answered(client, Code.QUERY_TOPICS_BY_CONSUMER, GroupRequest("G"))
    assert found.topic_list == (() if is_cleaned else ("T",))
    # The topics of the group are deleted by requests of their own.
    assert "%RETRY%G" in remoting.running.broker.services.topics


async def test_the_broker_s_own_groups_stay(remoting: RemotingBroker) -> None:
    header = DeleteGroupRequest("TOOLS_CONSUMER")
    answer = await remoting.client.ask(Code.DELETE_SUBSCRIPTIONGROUP, header)
    assert answer.code == ResponseCode.NO_PERMISSION


async def test_consume_stats_have_positions_and_times(remoting: RemotingBroker) -> None:
    clock, client = remoting.running.clock, remoting.client
    await update_topic(client, read_queue_nums=2, write_queue_nums=2)
    times_ms = []
    for number in range(5):
        times_ms.append(clock.now_ms())
        await send(client, b"%d" % number)
        clock.advance(1_000)
    await pull(client, max_msg_nums=4)
    await commit(remoting, "G", "T", 2)
    found = await consume_stats(client)
    assert dict(found.offset_table) == {
        queue(0): OffsetWrapper(5, 2, 4, times_ms[1]),
        queue(1): OffsetWrapper(0, 0, 0, 0),
    }
    assert found.consume_tps == 0.0
    await remoting.sampled()
    assert (await consume_stats(client)).consume_tps > 0.2


async def test_consume_stats_are_of_the_named_or_of_all_topics(remoting: RemotingBroker) -> None:
    client = remoting.client
    for topic in ("T", "U", "V", "W"):
        await update_topic(client, topic=topic, read_queue_nums=1, write_queue_nums=1)
    for topic in ("T", "U"):
        await commit(remoting, "G", topic, 0)
    assert (await consume_stats(client)).offset_table.keys() == {queue(0), queue(0, "U")}
    named = await consume_stats(client, topic="U")
    assert named.offset_table.keys() == {queue(0, "U")}
    listed = await consume_stats(client, topic_list="T;W;none;T;")
    assert listed.offset_table.keys() == {queue(0), queue(0, "W")}
    # The members no longer read U.
    await subscribe(remoting, "G", "T")
    assert (await consume_stats(client)).offset_table.keys() == {queue(0)}
    assert not (await consume_stats(client, topic="U")).offset_table


async def test_consume_stats_of_unknown_groups_are_empty(remoting: RemotingBroker) -> None:
    assert not (await consume_stats(remoting.client, consumer_group="none")).offset_table
    assert not (await consume_stats(remoting.client, topic="none")).offset_table


async def test_all_groups_have_their_consume_stats(remoting: RemotingBroker) -> None:
    client = remoting.client
    await update_topic(client, read_queue_nums=1, write_queue_nums=1)
    await update_topic(client, topic="U", read_queue_nums=1, write_queue_nums=1, order=True)
    for topic in ("T", "U"):
        for _ in range(3):
            await send(client, b"x", topic=topic)
    await pull(client, max_msg_nums=2)
    await commit(remoting, "G", "T", 1)
    await commit(remoting, "H", "T", 3)
    await commit(remoting, "H", "U", 0)
    header = BrokerConsumeStatsRequest()
    found: ConsumeStatsList = await answered(client, Code.GET_BROKER_CONSUME_STATS, header)
    groups = {name: each for table in found.consume_stats_list for name, each in table.items()}
    assert groups.keys() == {"G", "H"}
    assert {*groups["H"][0].offset_table, *groups["H"][1].offset_table} == {
        queue(0),
        queue(0, "U"),
    }
    assert (found.total_diff, found.total_inflight_diff) == (2 + 0 + 3, 1)
    assert found.broker_addr == f"127.0.0.1:{remoting.running.ready.remoting_port}"
    header = BrokerConsumeStatsRequest(is_order=True)
    found = await answered(client, Code.GET_BROKER_CONSUME_STATS, header)
    assert [list(table) for table in found.consume_stats_list] == [["H"]]
    assert found.total_diff == 3


async def test_time_spans_have_the_age_of_the_first_message_that_waits(
    remoting: RemotingBroker,
) -> None:
    clock, client = remoting.running.clock, remoting.client
    await update_topic(client, read_queue_nums=2, write_queue_nums=2)
    times_ms = []
    for number in range(3):
        times_ms.append(clock.now_ms())
        await send(client, b"%d" % number)
        clock.advance(1_000)

    async def spans(group: str) -> list[QueueTimeSpan]:
        header = ConsumeTimeSpanRequest(group, "T")
        found: QueryConsumeTimeSpanBody = await answered(
            client, Code.QUERY_CONSUME_TIME_SPAN, header
        )
        return list(found.spans)

    await commit(remoting, "G", "T", 2)
    first, last = times_ms[0], times_ms[2]
    assert await spans("G") == [
        QueueTimeSpan(queue(0), first, last, times_ms[1], 1_000),
        QueueTimeSpan(queue(1), -1, -1, -1, 0),
    ]
    assert (await spans("none"))[0] == QueueTimeSpan(queue(0), first, last, first, 3_000)
    await commit(remoting, "G", "T", 3)
    assert (await spans("G"))[0] == QueueTimeSpan(queue(0), first, last, last, 0)
    header = ConsumeTimeSpanRequest("G", "none")
    answer = await client.ask(Code.QUERY_CONSUME_TIME_SPAN, header)
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_group_names_its_topics_and_subscriptions(remoting: RemotingBroker) -> None:
    client = remoting.client
    await update_topic(client)
    await commit(remoting, "G", "T", 0)
    found: TopicList = await answered(client, Code.QUERY_TOPICS_BY_CONSUMER, GroupRequest("G"))
    assert found.topic_list == ("T",)

    async def subscription(group: str) -> QuerySubscriptionBody:
        header = GroupTopicRequest(group, "T")
        body: QuerySubscriptionBody = await answered(
            client, Code.QUERY_SUBSCRIPTION_BY_CONSUMER, header
        )
        return body

    assert await subscription("G") == QuerySubscriptionBody("G", "T")
    await subscribe(remoting, "G", "T", "a || b")
    assert (await subscription("G")).subscription == SubscriptionData(
        *("T", "a || b", ("a", "b"), (java_hash("a"), java_hash("b"))), sub_version_ms=7
    )
