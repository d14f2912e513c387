"""Registrations and keys beyond the limits are refused, and requests with large work are short."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from rocketpy_broker.nameserver.entry_bytes import ENTRY_BYTES
from rocketpy_broker.nameserver.kv_config import BYTES_MAX
from rocketpy_broker.nameserver.registration import LINES_MAX
from rocketpy_broker.nameserver.route_table import (
    BROKER_BYTES_MAX,
    MAPPING_BYTES_MAX,
    STEP_TOPICS,
    TOPIC_BYTES_MAX,
)
from rocketpy_broker.server.remoting.server import SMALL_BODY_BYTES
from rocketpy_proto.model.codes import RequestCode, ResponseCode
from rocketpy_proto.model.configs import DataVersion, TopicConfig
from rocketpy_proto.remoting import EXCHANGES, RemotingCommand, decode_body, encode_body
from rocketpy_proto.remoting.bodies.configs import TopicConfigTable
from rocketpy_proto.remoting.bodies.registration import (
    RegisterBrokerBody,
    body_crc32,
    encode_compressed,
)
from rocketpy_proto.remoting.bodies.routes import QueueData, TopicList, TopicRouteData
from rocketpy_proto.remoting.headers.cluster import (
    KVConfigRequest,
    KVNamespaceRequest,
    PutKVConfigRequest,
)
from rocketpy_proto.remoting.headers.topics import (
    DeleteTopicInNamesrvRequest,
    RegisterTopicRequest,
)
from tests.broker.nameserver.registrations import NAME, register, registration, route, table
from tests.support.broker.clients.remoting_client import RunningNameServer
from tests.support.broker.running_broker import until

HOSTILE_NAMES: dict[str, Callable[[int], dict[str, Any]]] = {
    "names": lambda number: {"broker_name": f"b{number}", "broker_addr": f"10.0.0.1:{number}"},
    "ids": lambda number: {"broker_id": number, "broker_addr": f"10.0.0.1:{number}"},
    "clusters": lambda number: {"cluster_name": f"c{number}", "broker_id": number},
    "addresses": lambda number: {"broker_addr": f"10.0.0.1:{number}"},
    "long names": lambda number: {"broker_name": f"b{number}" + "x" * 60_000},
    "long addresses": lambda number: {
        "broker_id": number,
        "broker_addr": f"{number}" + "x" * 60_000,
    },
}


@pytest.mark.parametrize("kind", HOSTILE_NAMES)
async def test_n14_brokers_beyond_the_limit_are_refused_at_its_real_value(
    name_server: RunningNameServer, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Registers one connection's brokers, each with other texts, until one is refused or 3,000."""
    routes = name_server.server.routes
    async with name_server.client() as other, name_server.client() as hostile:
        await register(other, table("T", "U"), broker_name="real", broker_addr="real:1")
        for number in range(1, 3_001):
            answer = await register(hostile, None, **HOSTILE_NAMES[kind](number))
            if answer.code != ResponseCode.SUCCESS:
                break
        # What takes another one's place takes no further memory.
        if kind not in {"addresses", "clusters"}:
            assert answer.code == ResponseCode.SYSTEM_BUSY
            assert "too many brokers are registered, limit 1048576 bytes" in (answer.remark or "")
        # A live broker registers on at the limit.
        again = await register(other, table("T", "U"), broker_name="real", broker_addr="real:1")
        assert again.code == ResponseCode.SUCCESS
        info = routes.cluster_info()
        addresses_count = sum(len(each.broker_addrs) for each in info.broker_addr_table.values())
        assert addresses_count <= BROKER_BYTES_MAX // ENTRY_BYTES
        cluster = await other.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        # A broker's name is there three times.
        assert len(cluster.body) < 4 * BROKER_BYTES_MAX
        hostile.writer.close()
        await until(lambda: set(routes.cluster_info().broker_addr_table) == {"real"})
        assert routes._broker_bytes.total < 2_000
        assert set(routes.cluster_info().cluster_addr_table) == {"C"}
        assert len(routes._registered) == 1
    assert len(caplog.messages) < 3 * LINES_MAX
    assert max(map(len, caplog.messages)) < 1_000


async def test_n14_topics_beyond_the_limit_are_refused_and_the_ones_before_routed(
    name_server: RunningNameServer,
) -> None:
    routes = name_server.server.routes
    names = [f"b{number}" for number in range(64)]
    # One topic of all these brokers leaves space for three short ones.
    filled = (TOPIC_BYTES_MAX - 3 * (ENTRY_BYTES + sys.getsizeof("T"))) // len(names)
    long = "x" * (filled - ENTRY_BYTES - sys.getsizeof(""))
    async with name_server.client() as client:
        for name in names:
            await register(client, None, broker_name=name, broker_addr=name)
        routes.register_topic(long, tuple(QueueData(name, 4, 4, 6) for name in names))
        await register(client, table("T", "U"))
        answer = await register(client, table("T", "U", "V", "W", counter=2))
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "too many topics are registered" in (answer.remark or "")
        assert await route(client, "V") is not None
        assert await route(client, "W") is None
        for topic in ("V", "V", "U"):
            gone = DeleteTopicInNamesrvRequest(topic)
            assert (await client.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, gone)).code == 0
        queues = TopicRouteData(queue_datas=(QueueData(NAME, 4, 4, 6), QueueData(NAME, 4, 4, 6)))
        for topic, code in (("X", 0), ("Y", 0), ("Z", ResponseCode.SYSTEM_BUSY)):
            header = RegisterTopicRequest(topic)
            created = await client.ask(
                RequestCode.REGISTER_TOPIC_IN_NAMESRV, header, encode_body(queues)
            )
            assert created.code == code
        assert await route(client, "T") is not None
    await until(lambda: not routes._topic_bytes.total)


async def test_n14_long_topics_and_mappings_count_with_their_texts(
    name_server: RunningNameServer,
) -> None:
    routes = name_server.server.routes
    long = {f"{number}" + "x" * 100_000: TopicConfig("T", 4, 4) for number in range(100)}
    mappings: dict[str, object] = {f"T{number}": [0] * 50_000 for number in range(10)}
    async with name_server.client() as client:
        topics = TopicConfigTable(long, DataVersion(1, 1, 1))
        assert (await register(client, topics)).code == ResponseCode.SUCCESS
        assert routes._topic_bytes.total > 10_000_000
        static = msgspec.structs.replace(
            table("T", "U", counter=2), topic_queue_mapping_info_map=mappings
        )
        answer = await register(client, static)
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "too many static topics are registered" in (answer.remark or "")
        assert 100_000 < routes._mapping_bytes.total <= MAPPING_BYTES_MAX
    await until(lambda: not routes._topic_bytes.total)
    assert not routes._mapping_bytes.total


async def test_n14_keys_beyond_the_limit_are_refused_and_deleted_ones_leave_nothing(
    name_server: RunningNameServer,
) -> None:
    async with name_server.client() as client:
        for number in range(100):
            header = PutKVConfigRequest(f"space-{number}", "key", "v" * 100_000)
            answer = await client.ask(RequestCode.PUT_KV_CONFIG, header)
            if answer.code != ResponseCode.SUCCESS:
                break
        assert number == BYTES_MAX // (100_000 + ENTRY_BYTES)
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "too many keys are registered, limit 8388608 bytes" in (answer.remark or "")
        shorter = PutKVConfigRequest("space-0", "key", "v")
        assert (await client.ask(RequestCode.PUT_KV_CONFIG, shorter)).code == 0
        for each in range(number):
            gone = KVConfigRequest(f"space-{each}", "key")
            assert (await client.ask(RequestCode.DELETE_KV_CONFIG, gone)).code == 0
        answer = await client.ask(RequestCode.PUT_KV_CONFIG, header)
        assert answer.code == ResponseCode.SUCCESS
        empty = KVNamespaceRequest("space-0")
        listed = await client.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, empty)
        assert listed.code == ResponseCode.QUERY_NOT_FOUND


# Texts that only the slow reader of fastjson's dialect takes, about a microsecond a byte.
SLOW_TEXT = b"{'x':[" + b"1," * (1 << 20) + b"1]}"
BROKER_FIELDS = {"brokerName": "b", "brokerAddr": "a", "clusterName": "c", "brokerId": "0"}


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (RequestCode.QUERY_DATA_VERSION, BROKER_FIELDS),
        (RequestCode.REGISTER_BROKER, {**BROKER_FIELDS, "haServerAddr": "h"}),
        (RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "T"}),
    ],
    ids=lambda value: value.name if isinstance(value, RequestCode) else "",
)
async def test_n12_a_large_body_in_slow_text_is_refused_before_it_is_read(
    name_server: RunningNameServer, code: RequestCode, fields: dict[str, str]
) -> None:
    async with name_server.client() as client:
        answer = await client.ask(code, None, SLOW_TEXT, ext_fields=fields)
        assert answer.code in {ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER}
        assert any(word in (answer.remark or "") for word in ("limit", "accepted is"))


async def test_n12_a_small_body_that_inflates_holds_up_no_other_request(
    name_server: RunningNameServer,
) -> None:
    """Sends the request after it at once, so that both are handled in one pass of the loop."""
    topics = table(*(f"topic-{number}" + "x" * 10_000 for number in range(STEP_TOPICS - 1)))
    body = encode_compressed(RegisterBrokerBody(topics))
    assert len(body) < SMALL_BODY_BYTES
    code = RequestCode.REGISTER_BROKER
    header = registration(is_compressed=True, body_crc32=body_crc32(body))
    fields = EXCHANGES[code].request.encode(header)
    async with name_server.client() as client:
        client.tell(RemotingCommand(code, 1, body=body, ext_fields=fields))
        client.tell(RemotingCommand(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, 2))
        listed, registered = await client.next(), await client.next()
        assert (listed.opaque, registered.opaque) == (2, 1)
        assert listed.code == registered.code == ResponseCode.SUCCESS
        assert decode_body(TopicList, listed.body).topic_list == ()
        assert len(name_server.server.routes.topics) == STEP_TOPICS - 1
