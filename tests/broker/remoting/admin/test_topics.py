"""Topics by RocketMQ's tools: codes 17, 18, 21, 351, 215, 202, 300, 305 and 321."""

from __future__ import annotations

from typing import Any

import pytest

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.model.configs import TopicConfig
from rocketpy_proto.record import java_hash
from rocketpy_proto.remoting import (
    MessageQueue,
    encode_body,
)
from rocketpy_proto.remoting.bodies.configs import CreateTopicListRequestBody, TopicConfigTable
from rocketpy_proto.remoting.bodies.routes import GroupList, TopicList
from rocketpy_proto.remoting.bodies.stats import (
    ConsumeQueueData,
    QueryConsumeQueueResponseBody,
    TopicOffset,
    TopicStatsTable,
)
from rocketpy_proto.remoting.headers.topics import (
    QueryConsumeQueueRequest,
    TopicRequest,
)
from tests.broker.remoting.requests import answered, commit, subscribe, update_topic
from tests.broker.remoting.test_sends_and_pulls import send
from tests.support.broker.clients.remoting_client import RemotingBroker, RemotingClient


async def config(client: RemotingClient, topic: str = "T") -> TopicConfig:
    found: TopicConfig = await answered(client, Code.GET_TOPIC_CONFIG, TopicRequest(topic))
    return found


async def test_a_topic_is_created_and_changed_with_all_its_values(
    remoting: RemotingBroker,
) -> None:
    client = remoting.client
    answer = await update_topic(
        client,
        write_queue_nums=2,
        order=True,
        attributes="+message.type=FIFO,+queue.type=SimpleCQ",
    )
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert await config(client) == TopicConfig(
        *("T", 4, 2, 6),
        order=True,
        attributes={"message.type": "FIFO", "queue.type": "SimpleCQ"},
    )
    answer = await update_topic(client, perm=4, topic_sys_flag=1, attributes="-message.type")
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert await config(client) == TopicConfig(
        *("T", 4, 4, 4), topic_sys_flag=1, attributes={"queue.type": "SimpleCQ"}
    )


@pytest.mark.parametrize(
    ("fields", "code", "named"),
    [
        ({"topic": ""}, ResponseCode.INVALID_PARAMETER, "''"),
        ({"topic": "a b"}, ResponseCode.INVALID_PARAMETER, "a b"),
        ({"topic": "DefaultCluster"}, ResponseCode.INVALID_PARAMETER, "DefaultCluster"),
        ({"topic": "TBW102"}, ResponseCode.INVALID_PARAMETER, "TBW102"),
        ({"attributes": "+message.type=MIXED"}, ResponseCode.INVALID_PARAMETER, "MIXED"),
        ({"read_queue_nums": 0}, ResponseCode.INVALID_PARAMETER, "read_queue_nums"),
        ({"perm": 9}, ResponseCode.INVALID_PARAMETER, "perm"),
        ({"attributes": "+unknown=1"}, ResponseCode.SYSTEM_ERROR, "unknown"),
        ({"attributes": "message.type=FIFO"}, ResponseCode.SYSTEM_ERROR, "message.type"),
        ({"attributes": "-message.type"}, ResponseCode.SYSTEM_ERROR, "message.type"),
        ({"attributes": "+a=1,+a=2"}, ResponseCode.SYSTEM_ERROR, "twice"),
    ],
)
async def test_refused_changes_of_a_topic(
    remoting: RemotingBroker, fields: dict[str, Any], code: ResponseCode, named: str
) -> None:
    answer = await update_topic(remoting.client, **fields)
    assert answer.code == code, answer.remark
    assert answer.remark is not None
    assert named in answer.remark
    answer = await remoting.client.ask(Code.GET_TOPIC_CONFIG, TopicRequest("T"))
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_list_of_topics_is_created_in_their_order(remoting: RemotingBroker) -> None:
    names = [f"t{number}" for number in range(1_200)]
    topics = [TopicConfig(name, 1, 2, attributes={"+message.type": "NORMAL"}) for name in names]
    body = encode_body(CreateTopicListRequestBody(tuple(topics)))
    answer = await remoting.client.ask(Code.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    for name in (names[0], names[-1]):
        assert await config(remoting.client, name) == TopicConfig(
            name, 1, 2, attributes={"message.type": "NORMAL"}
        )


async def test_a_list_with_an_illegal_name_creates_nothing(remoting: RemotingBroker) -> None:
    body = encode_body(CreateTopicListRequestBody((TopicConfig("good"), TopicConfig("b a d"))))
    answer = await remoting.client.ask(Code.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    answer = await remoting.client.ask(Code.GET_TOPIC_CONFIG, TopicRequest("good"))
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_all_topics_come_with_the_version_of_their_table(remoting: RemotingBroker) -> None:
    await update_topic(remoting.client, order=True)
    first: TopicConfigTable = await answered(remoting.client, Code.GET_ALL_TOPIC_CONFIG)
    assert first.topic_configs["T"] == await config(remoting.client)
    assert first.topic_configs["SELF_TEST_TOPIC"].perm == 6
    await update_topic(remoting.client, topic="U")
    second: TopicConfigTable = await answered(remoting.client, Code.GET_ALL_TOPIC_CONFIG)
    assert second.topic_configs.keys() - first.topic_configs.keys() == {"U"}
    assert first.data_version is not None
    assert second.data_version is not None
    assert second.data_version.counter == first.data_version.counter + 1


async def test_a_deleted_topic_is_gone_with_its_messages(remoting: RemotingBroker) -> None:
    client = remoting.client
    await update_topic(client)
    await send(client, b"old")
    for _ in range(2):
        answer = await client.ask(Code.DELETE_TOPIC_IN_BROKER, TopicRequest("T"))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    answer = await client.ask(Code.GET_TOPIC_STATS_INFO, TopicRequest("T"))
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    await update_topic(client)
    assert (await send(client, b"new")).queue_offset == 0


@pytest.mark.parametrize("topic", ["", " ", "TBW102", "RMQ_SYS_TRACE_TOPIC", "broker-a"])
async def test_the_broker_s_own_topics_stay(remoting: RemotingBroker, topic: str) -> None:
    answer = await remoting.client.ask(Code.DELETE_TOPIC_IN_BROKER, TopicRequest(topic))
    assert answer.code == ResponseCode.INVALID_PARAMETER


async def test_stats_have_the_queues_and_the_speed_of_sends(remoting: RemotingBroker) -> None:
    clock: ManualClock = remoting.running.clock
    await update_topic(remoting.client, write_queue_nums=2, read_queue_nums=3)
    for number in range(3):
        sent_ms = clock.now_ms()
        await send(remoting.client, b"%d" % number, queue_id=1)
        clock.advance(10)
    found: TopicStatsTable = await answered(
        remoting.client, Code.GET_TOPIC_STATS_INFO, TopicRequest("T")
    )
    assert dict(found.offset_table) == {
        MessageQueue("broker-a", 0, "T"): TopicOffset(0, 0, 0),
        MessageQueue("broker-a", 1, "T"): TopicOffset(0, 3, sent_ms),
        MessageQueue("broker-a", 2, "T"): TopicOffset(0, 0, 0),
    }
    assert found.topic_put_tps == 0.0
    await remoting.sampled()
    found = await answered(remoting.client, Code.GET_TOPIC_STATS_INFO, TopicRequest("T"))
    assert found.topic_put_tps is not None
    assert found.topic_put_tps == pytest.approx(0.3, rel=0.01)


async def test_a_topic_names_its_groups(remoting: RemotingBroker) -> None:
    await update_topic(remoting.client)
    await update_topic(remoting.client, topic="other")
    await subscribe(remoting, "online", "T")
    await subscribe(remoting, "elsewhere", "other")
    await commit(remoting, "committed", "T", 0)
    await commit(remoting, "online", "T", 0)
    found: GroupList = await answered(
        remoting.client, Code.QUERY_TOPIC_CONSUME_BY_WHO, TopicRequest("T")
    )
    assert sorted(found.group_list) == ["committed", "online"]


async def test_the_broker_lists_its_system_topics(remoting: RemotingBroker) -> None:
    found: TopicList = await answered(remoting.client, Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    assert {"TBW102", "DefaultCluster", "broker-a", "SCHEDULE_TOPIC_XXXX"} <= {*found.topic_list}


async def test_units_of_a_queue_are_checked_with_the_filter_of_a_group(
    remoting: RemotingBroker,
) -> None:
    await update_topic(remoting.client)
    for tag in ("a", "b", "a"):
        await send(remoting.client, b"x", properties=f"TAGS\x01{tag}")
    await subscribe(remoting, "G", "T", "b || c")

    async def units(**fields: Any) -> QueryConsumeQueueResponseBody:
        header = QueryConsumeQueueRequest("T", 0, **{"index": 0, **fields})
        found: QueryConsumeQueueResponseBody = await answered(
            remoting.client, Code.QUERY_CONSUME_QUEUE, header
        )
        return found

    found = await units(consumer_group="G")
    assert (found.min_queue_index, found.max_queue_index) == (0, 3)
    assert [each.tags_code for each in found.units] == [java_hash(tag) for tag in "aba"]
    assert [each.is_matched for each in found.units] == [False, True, False]
    first: ConsumeQueueData = found.units[0]
    assert (first.physic_offset, first.physic_size) == (0, found.units[1].physic_offset)
    assert found.subscription is not None
    assert found.subscription.tags_set == ("b", "c")
    assert found.subscription.code_set == (java_hash("b"), java_hash("c"))
    assert [each.tags_code for each in (await units(index=1, count=1)).units] == [java_hash("b")]
    assert (await units(index=3)).units == ()
    assert (await units(index=0, consumer_group="none")).subscription is None


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "none"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 4}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": -1}, ResponseCode.INVALID_PARAMETER),
        ({"count": 1_001}, ResponseCode.INVALID_PARAMETER),
        ({"count": -1}, ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_refused_queries_of_units(
    remoting: RemotingBroker, fields: dict[str, Any], code: ResponseCode
) -> None:
    await update_topic(remoting.client)
    usual: dict[str, Any] = {"topic": "T", "queue_id": 0, "index": 0}
    header = QueryConsumeQueueRequest(**usual | fields)
    answer = await remoting.client.ask(Code.QUERY_CONSUME_QUEUE, header)
    assert answer.code == code, answer.remark
