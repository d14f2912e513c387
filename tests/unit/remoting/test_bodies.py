"""JSON bodies as RocketMQ's servers and clients wrote them, and their values."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketpy_proto.model.configs import DataVersion, TopicConfig
from rocketpy_proto.model.consumers import ConsumeFromWhere, ConsumeType, MessageModel
from rocketpy_proto.remoting import (
    Body,
    MessageQueue,
    QueueTable,
    RemotingFormatError,
    RequestCode,
    UnencodableRemotingError,
    decode_body,
    encode_body,
    encode_entries,
    encode_with_part,
)
from rocketpy_proto.remoting.bodies import REQUEST_BODIES, RESPONSE_BODIES
from rocketpy_proto.remoting.bodies.clients import (
    ConsumerData,
    ConsumerListBody,
    HeartbeatData,
    LockBatchRequestBody,
    ProducerData,
    SubscriptionData,
)
from rocketpy_proto.remoting.bodies.configs import TopicConfigTable
from rocketpy_proto.remoting.bodies.registration import (
    INFLATED_BYTES_MAX,
    RegisterBrokerBody,
    body_crc32,
    decode_compressed,
    encode_compressed,
)
from rocketpy_proto.remoting.bodies.routes import BrokerData, QueueData, TextTable, TopicRouteData
from rocketpy_proto.remoting.bodies.stats import (
    ConsumerOffsets,
    ConsumeStats,
    OffsetWrapper,
    TopicOffset,
    TopicStatsTable,
)
from rocketpy_proto.remoting.fields import decode_bounded_body
from rocketpy_proto.remoting.json_text import read_json
from tests.support.golden import GOLDEN
from tests.unit.remoting.recorded import FRAMES, needs_golden, request, response
from tests.unit.remoting.strategies import values_of

CLUSTER: Path = GOLDEN / "cluster"
KINDS = sorted(
    {*REQUEST_BODIES.values(), *RESPONSE_BODIES.values()}, key=lambda kind: kind.__name__
)
FILES = {
    "all_consumer_offset_43.txt": RequestCode.GET_ALL_CONSUMER_OFFSET,
    "all_delay_offset_45.txt": RequestCode.GET_ALL_DELAY_OFFSET,
    "all_subscription_group_201.json": RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    "all_topic_config_21.json": RequestCode.GET_ALL_TOPIC_CONFIG,
    "broker_ha_status_907.json": RequestCode.GET_BROKER_HA_STATUS,
    "broker_ha_status_907_slave.json": RequestCode.GET_BROKER_HA_STATUS,
    "broker_runtime_28.json": RequestCode.GET_BROKER_RUNTIME_INFO,
    "cluster_info_nonstandard.txt": RequestCode.GET_BROKER_CLUSTER_INFO,
    "consume_stats_nonstandard.txt": RequestCode.GET_CONSUME_STATS,
    "route_TopicTest_nonstandard.txt": RequestCode.GET_ROUTEINFO_BY_TOPIC,
    "route_TopicTest_order.json": RequestCode.GET_ROUTEINFO_BY_TOPIC,
    "route_TopicTest_standard_by_flag.json": RequestCode.GET_ROUTEINFO_BY_TOPIC,
    "route_TopicTest_standard_by_version.json": RequestCode.GET_ROUTEINFO_BY_TOPIC,
    "topic_list.json": RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
}
QUEUE = MessageQueue("broker-p", 0, "GoldT")


def plain(value: object) -> Any:
    """Returns the value, with keys that are objects in one form."""
    if isinstance(value, dict):
        return {
            json.dumps(json.loads(key), sort_keys=True) if key[:1] == "{" else key: plain(item)
            for key, item in value.items()
        }
    return [plain(item) for item in value] if isinstance(value, list) else value


def assert_written_again(kind: type[Body], body: bytes | memoryview) -> None:
    """Asserts that all that was read is written, and reads the same."""
    value = decode_body(kind, body)
    written = encode_body(value)
    assert plain(read_json(written, "written")) == plain(read_json(body, "recorded"))
    assert decode_body(kind, written) == value


@needs_golden
@pytest.mark.parametrize(("name", "code"), FILES.items())
def test_an_answer_of_a_cluster_is_read_and_written_again(name: str, code: RequestCode) -> None:
    assert_written_again(RESPONSE_BODIES[code], (CLUSTER / name).read_bytes())


@needs_golden
@pytest.mark.parametrize("name", ["register_broker_body", "register_broker_body_one_topic"])
def test_a_registration_is_read_and_written_again(name: str) -> None:
    assert_written_again(RegisterBrokerBody, (CLUSTER / f"{name}.json").read_bytes())


@needs_golden
@pytest.mark.parametrize("frame", FRAMES, ids=[frame.name for frame in FRAMES])
def test_a_body_in_a_recorded_frame_is_read_and_written_again(frame: object) -> None:
    assert isinstance(frame, type(FRAMES[0]))
    bodies = REQUEST_BODIES if frame.is_request else RESPONSE_BODIES
    code = request(frame.exchange).code
    body = frame.command().body
    # In B06 the small client left out default values.
    if body and code in bodies and frame.exchange != "B06_binary_heartbeat":
        assert_written_again(bodies[RequestCode(code)], body)


@needs_golden
def test_a_route_is_what_was_recorded_in_all_its_forms() -> None:
    route = decode_body(TopicRouteData, (CLUSTER / "route_TopicTest_nonstandard.txt").read_bytes())
    addresses = {0: "127.0.0.1:20911", 1: "127.0.0.1:21911"}
    assert route.broker_datas == (
        BrokerData("broker-b", {0: "127.0.0.1:22911"}, "LoopCluster"),
        BrokerData("broker-a", addresses, "LoopCluster"),
    )
    assert route.queue_datas == (QueueData("broker-b", 4, 4, 6), QueueData("broker-a", 4, 4, 6))
    for by in ("flag", "version"):
        standard = (CLUSTER / f"route_TopicTest_standard_by_{by}.json").read_bytes()
        assert decode_body(TopicRouteData, standard) == route
    ordered = (CLUSTER / "route_TopicTest_order.json").read_bytes()
    assert decode_body(TopicRouteData, ordered).order_topic_conf == "broker-a:4;broker-b:2"


@needs_golden
def test_statistics_are_by_queue() -> None:
    topic = decode_body(TopicStatsTable, response("34_topic_stats").body)
    assert topic.offset_table[QUEUE] == TopicOffset(0, 2, 1_795_289_669_325)
    assert len(topic.offset_table) == 2
    group = decode_body(ConsumeStats, response("35_consume_stats").body)
    assert group.offset_table[QUEUE] == OffsetWrapper(2, 1, 2, 1_795_289_669_322)
    offsets = decode_body(ConsumerOffsets, (CLUSTER / "all_consumer_offset_43.txt").read_bytes())
    assert offsets.offset_table["TopicTest@hb-group"] == {0: 2, 1: 2, 2: 3, 3: 1, 77: 2}


@needs_golden
def test_a_heartbeat_of_the_java_client_is_what_was_recorded() -> None:
    heartbeat = decode_body(HeartbeatData, request("J02_java_heartbeat").body)
    group = next(consumer for consumer in heartbeat.consumers if consumer.group_name == "JOG")
    assert group.subscriptions[0].code_set == (2_598_919, 2_598_920)
    assert heartbeat == HeartbeatData(
        client_id=heartbeat.client_id,
        producers=(ProducerData("CLIENT_INNER_PRODUCER"),),
        consumers=heartbeat.consumers,
    )


def test_names_are_read_in_any_case_and_others_refused() -> None:
    body = b'{"groupName":"g","consumeType":"Consume_actively","messageModel":"broadcasting"}'
    assert decode_body(ConsumerData, body) == ConsumerData(
        "g",
        ConsumeType.CONSUME_ACTIVELY,
        MessageModel.BROADCASTING,
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    )
    with pytest.raises(RemotingFormatError, match="consumeType"):
        decode_body(ConsumerData, b'{"groupName":"g","consumeType":"CONSUME"}')


def test_a_queue_as_a_key_may_be_an_object_or_a_string() -> None:
    entry = '{"minOffset":0,"maxOffset":5}'
    queue = '{"topic":"GoldT","queueId":0,"brokerName":"broker-p"}'
    for key in (queue, json.dumps(queue)):
        body = f'{{"offsetTable":{{{key}:{entry}}}}}'.encode()
        table = decode_body(TopicStatsTable, body).offset_table
        assert table == QueueTable({QUEUE: TopicOffset(0, 5)})
        assert "broker-p" in repr(table)
    for wrong in ('"0"', "0", '{"topic":"t"}', '{"a":{"b":1}}'):
        with pytest.raises(RemotingFormatError):
            decode_body(TopicStatsTable, f'{{"offsetTable":{{{wrong}:{entry}}}}}'.encode())


def test_null_is_absent_and_unknown_fields_are_left_out() -> None:
    body = b'{"topic":"t","tagsSet":null,"subString":null,"newer":{"a":1}}'
    assert decode_body(SubscriptionData, body) == SubscriptionData("t")
    assert b"null" not in encode_body(SubscriptionData("t"))
    assert decode_body(TextTable, b'{"table":{"a":null,"b":"c"}}') == TextTable({"b": "c"})


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (TopicRouteData, b""),
        (TopicRouteData, b"null"),
        (TopicRouteData, b"[]"),
        (TopicRouteData, b'{"brokerDatas":{}}'),
        (TopicRouteData, b'{"brokerDatas":[null]}'),
        (TopicRouteData, b'{"brokerDatas":[{"$ref":"$.brokerDatas[1]"}]}'),
        (TopicRouteData, b'{"queueDatas":[{"brokerName":"b"}]}'),
        (BrokerData, b'{"brokerName":"b","brokerAddrs":{"x":"h:1"}}'),
        (BrokerData, b'{"brokerName":"b","brokerAddrs":{9223372036854775808:"h:1"}}'),
        (BrokerData, b'{"brokerName":"\\ud800"}'),
        (HeartbeatData, b"{}"),
    ],
)
def test_a_body_that_is_none_is_refused_by_name(kind: type[Body], body: bytes) -> None:
    with pytest.raises(RemotingFormatError, match=f"^{kind.__name__}: "):
        decode_body(kind, body)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20)
@given(data=st.data())
def test_a_body_is_the_same_behind_its_bytes(kind: type[Body], data: st.DataObject) -> None:
    value = data.draw(values_of(kind))
    assert decode_body(kind, encode_body(value)) == value


def test_a_table_by_queues_has_objects_as_keys() -> None:
    table = TopicStatsTable(QueueTable({QUEUE: TopicOffset(0, 5, 9)}))
    key = b'{"brokerName":"broker-p","queueId":0,"topic":"GoldT"}'
    entry = b'{"minOffset":0,"maxOffset":5,"lastUpdateTimestamp":9}'
    assert encode_body(table) == b'{"offsetTable":{%s:%s}}' % (key, entry)


def test_a_table_in_parts_is_the_same_as_in_one() -> None:
    queues = [MessageQueue('b{"}:', number, "%RETRY%{\\") for number in range(7)]
    table = {each: TopicOffset(0, each.queue_id) for each in queues}
    parts = [encode_entries({each: table[each]}) for each in queues]
    whole = TopicStatsTable(QueueTable(table), 0.5)
    joined = encode_with_part(
        TopicStatsTable(topic_put_tps=0.5), "offsetTable", b"{%s}" % b",".join(parts)
    )
    assert joined == encode_body(whole)
    assert decode_body(TopicStatsTable, joined) == whole


@pytest.mark.parametrize(
    "body",
    [
        TopicConfig("\ud800"),
        TopicConfig("t", perm=1 << 31),
        TopicStatsTable(QueueTable({MessageQueue("\ud800", 0, "t"): TopicOffset(0, 1)})),
        TopicStatsTable(QueueTable({QUEUE: TopicOffset(0, 1 << 63)})),
        LockBatchRequestBody("g", None),  # type: ignore[arg-type]
    ],
)
def test_a_value_that_nobody_could_read_is_not_written(body: Body) -> None:
    with pytest.raises(UnencodableRemotingError):
        encode_body(body)


@needs_golden
def test_a_compressed_registration_is_read_and_written_again() -> None:
    recorded = (CLUSTER / "register_broker_body_compressed.bin").read_bytes()
    body = decode_compressed(recorded)
    assert len(body.topics.topic_configs) == 14
    assert body.topics.topic_configs["TBW102"] == TopicConfig("TBW102", 8, 8, 7, attributes={})
    assert body.topics.data_version == DataVersion(1, 1_795_290_256_440, 0)
    assert body.filter_servers == ()
    assert decode_compressed(encode_compressed(body)) == body


def test_a_compressed_registration_keeps_what_it_has_room_for() -> None:
    mapping = {"topic": "t", "totalQueues": 4}
    table = TopicConfigTable(
        topic_configs={"t": TopicConfig("t", 2, 3, 4, attributes={"+a": "b c"})},
        data_version=DataVersion(5, 6, 7),
        topic_queue_mapping_info_map={"t": mapping},
    )
    body = RegisterBrokerBody(table, ("h:1",))
    assert decode_compressed(encode_compressed(body)) == body
    old = decode_compressed(encode_compressed(body, has_mappings=False))
    assert old.topics.topic_queue_mapping_info_map == {}
    assert old.topics.topic_configs == table.topic_configs


@pytest.mark.parametrize("name", ["a b", "\ud800"])
def test_a_topic_that_its_text_cannot_hold_is_not_written(name: str) -> None:
    table = TopicConfigTable(topic_configs={name: TopicConfig(name)})
    with pytest.raises(UnencodableRemotingError):
        encode_compressed(RegisterBrokerBody(table))


@needs_golden
def test_the_checksum_of_a_registration_is_the_brokers() -> None:
    command = request("J17_broker_register")
    assert str(body_crc32(bytes(command.body))) == command.ext_fields["bodyCrc32"]


def compressed(*pieces: bytes) -> bytes:
    return zlib.compress(b"".join(pieces))


def sized(piece: bytes) -> bytes:
    return len(piece).to_bytes(4, "big") + piece


VERSION = sized(b'{"counter":1,"timestamp":2}')


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        b"no stream",
        compressed(VERSION, bytes(4), sized(b"[]"))[:-1],
        compressed(VERSION, bytes(4), sized(b"[]")) + b"x",
        compressed(bytes(INFLATED_BYTES_MAX + 1)),
        compressed(),
        compressed(b"\x7f\xff\xff\xff"),
        compressed(b"\xff\xff\xff\xff"),
        compressed(VERSION, b"\x7f\xff\xff\xff", sized(b"t 1 1 6 SINGLE_TAG")),
        compressed(VERSION, b"\0\0\0\1", sized(b"t 1 1 6")),
        compressed(VERSION, b"\0\0\0\1", sized(b"t 1 x 6 SINGLE_TAG")),
        compressed(VERSION, b"\0\0\0\1", sized(b"t 1 1 6 SINGLE_TAG {")),
        compressed(VERSION, b"\0\0\0\1", sized(b"\xff 1 1 6 SINGLE_TAG")),
        compressed(VERSION, bytes(4), sized(b"{}")),
        compressed(VERSION, bytes(4), sized(b"[]"), b"\0\0\0\1", sized(b"[]")),
    ],
)
def test_a_compressed_registration_that_is_none_is_refused(encoded: bytes) -> None:
    with pytest.raises(RemotingFormatError):
        decode_compressed(encoded)


@pytest.mark.parametrize(
    "text", [b"{'consumerIdList':['a']}", b'{"consumerIdList":["a"],"more":null}']
)
def test_a_caller_limits_text_that_is_not_plain_json(text: bytes) -> None:
    wanted = ConsumerListBody(("a",))
    assert decode_body(ConsumerListBody, text) == wanted
    assert decode_bounded_body(ConsumerListBody, text, len(text)) == wanted
    spaces = b" " * len(text)
    plain_text = b'{"consumerIdList":["a"]}' + spaces
    assert decode_bounded_body(ConsumerListBody, plain_text, 10) == wanted


def test_a_long_text_that_is_not_plain_json_is_refused() -> None:
    text = b'{"consumerIdList":[null]}'
    assert decode_body(ConsumerListBody, b'{"consumerIdList":null}') == ConsumerListBody()
    with pytest.raises(RemotingFormatError, match="25 bytes that are not plain JSON, limit 24"):
        decode_bounded_body(ConsumerListBody, text, 24)


@pytest.mark.parametrize("place", ["unknown", "consumerIdList"])
def test_a_reference_is_refused_wherever_it_is(place: str) -> None:
    with pytest.raises(RemotingFormatError, match="reference"):
        decode_body(ConsumerListBody, f'{{"{place}":{{"$ref":"$.x"}}}}'.encode())
