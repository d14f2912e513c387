"""Receives of consumers of `apache.rocketmq.v2`: messages, waits, and filters."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import zlib
from dataclasses import replace
from typing import Any

import grpc
import pyarrow as pa
import pytest

from rocketpy_broker.server.apache_v2.receives.requests import receive_wait_ms
from rocketpy_broker.server.apache_v2.request_context import RequestContext
from rocketpy_broker.server.apache_v2.status import StatusError
from rocketpy_broker.services.receipts.pop_service import POLLING_MAX
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.model.codes import Language
from rocketpy_proto.model.configs import TopicConfig
from rocketpy_proto.record import Record, encode_record
from rocketpy_proto.record.sys_flag import COMPRESSED, COMPRESSION_LZ4, COMPRESSION_ZSTD
from tests.support.blocks import BORN_MS, WireBlock, wire_block
from tests.support.broker.clients.apache_client import ApacheClient
from tests.support.broker.clients.apache_consumers import WAIT_MS, Consumer, duration
from tests.support.broker.pops import (
    INVISIBLE_MS,
    REVIVE_MS,
    TOPIC,
    found,
    pass_time,
    pop,
    with_messages,
)
from tests.support.broker.running_broker import (
    RunningBroker,
    StartBroker,
)


def one_record(**fields: Any) -> WireBlock:
    data = encode_record(Record(TOPIC, 0, **fields))
    return WireBlock(data, len(data).to_bytes(4, "big"))


async def test_a_received_message_has_all_that_its_producer_sent(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker) as running:
        properties = {
            "UNIQ_KEY": ["01ABCDEF"],
            "__SHARDINGKEY": ["order-1"],
            "TRACE_CONTEXT": ["trace"],
            "MSG_REGION": ["DefaultRegion"],
            "own": ["value"],
        }
        block = wire_block(TOPIC, [b"a"], tags="A", keys=["k1 k2"], properties=properties)
        await running.append_block(TOPIC, 0, block)
        received = await Consumer(running).receive()
        assert received.status.code == v2.OK
        (message,) = received.messages
        system = message.system_properties
        assert (message.topic.name, message.body) == (TOPIC, b"a")
        assert message.user_properties == {"own": "value"}
        assert (system.tag, [*system.keys], system.message_id) == ("A", ["k1", "k2"], "01ABCDEF")
        assert (system.message_group, system.trace_context) == ("order-1", "trace")
        assert system.message_type == v2.FIFO
        assert system.body_encoding == v2.IDENTITY
        digest = hashlib.md5(b"a", usedforsecurity=False).hexdigest().upper()
        assert (system.body_digest.type, system.body_digest.checksum) == (v2.MD5, digest)
        assert system.born_timestamp.ToMilliseconds() == BORN_MS
        assert system.store_timestamp.ToMilliseconds() == running.clock.now_ms()
        assert (system.born_host, system.store_host.count(":")) == ("10.0.0.1", 1)
        assert (system.queue_id, system.queue_offset, system.delivery_attempt) == (0, 0, 1)
        assert not system.HasField("delivery_timestamp")


async def test_a_message_without_properties_gets_the_id_of_its_place(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker, b"a") as running:
        (message,) = (await Consumer(running).receive()).messages
        system = message.system_properties
        assert len(system.message_id) == 32
        assert not any(map(system.HasField, ("tag", "message_group", "trace_context")))


async def test_a_stream_has_the_status_each_message_and_the_time(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker, b"a", b"b") as running:
        received = await Consumer(running).receive()
        assert received.kinds == ["status", "message", "message", "delivery_timestamp"]
        assert received.delivered is not None
        assert received.delivered.ToMilliseconds() == running.clock.now_ms()


@pytest.mark.parametrize(("asked", "got"), [(-1, 1), (0, 1), (2, 2), (100, 32)])
async def test_a_batch_has_at_most_32_messages(
    start_broker: StartBroker, asked: int, got: int
) -> None:
    async with with_messages(start_broker, *[b"a"] * 40) as running:
        assert len((await Consumer(running).receive(batch_size=asked)).messages) == got


async def test_a_receive_reads_all_queues_whatever_queue_it_names(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker, queues=4) as running:
        for queue_id in range(4):
            await running.append(TOPIC, queue_id, b"%d" % queue_id)
        consumer = Consumer(running)
        received = await consumer.receive(message_queue=consumer.queue(0))
        assert sorted(received.bodies) == [b"0", b"1", b"2", b"3"]


async def test_a_held_receive_ends_with_the_next_message(start_broker: StartBroker) -> None:
    async with with_messages(start_broker) as running:
        held = asyncio.ensure_future(Consumer(running).receive())
        await running.held(1)
        await running.append(TOPIC, 0, b"a")
        assert (await held).bodies == [b"a"]


async def test_a_receive_without_messages_ends_after_its_whole_wait(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker) as running:
        consumer = Consumer(running)
        held = asyncio.ensure_future(consumer.receive(long_polling_timeout=duration(8_000)))
        await running.held(1)
        running.clock.advance(7_999)
        await asyncio.sleep(0.05)
        assert not held.done()
        running.clock.advance(1)
        received = await held
        assert received.status.code == v2.MESSAGE_NOT_FOUND
        assert received.kinds == ["status", "delivery_timestamp"]


async def test_a_receive_ends_after_twenty_seconds_at_most(start_broker: StartBroker) -> None:
    async with with_messages(start_broker) as running:
        receiving = Consumer(running).receive(600, long_polling_timeout=duration(600_000))
        held = asyncio.ensure_future(receiving)
        await running.held(1)
        running.clock.advance(20_000)
        assert (await held).status.code == v2.MESSAGE_NOT_FOUND


@pytest.mark.parametrize(
    ("timeout_ms", "left_ms", "wait_ms"),
    [
        (10_000, 13_000, 10_000),
        (1_000, 13_000, 5_000),
        (40_000, 60_000, 20_000),
        (40_000, 40_000, 20_000),
        (8_000, 8_000, 7_500),
        (8_000, 6_000, 5_500),
        (5_000, 5_000, 4_500),
        (None, 13_000, 11_500),
        (None, None, 20_000),
        (9_000, None, 9_000),
    ],
)
def test_a_wait_is_between_5_and_20_seconds_and_before_the_deadline(
    timeout_ms: int | None, left_ms: float | None, wait_ms: int
) -> None:
    assert receive_wait_ms(timeout_ms, caller("5.1.2", left_ms)) == wait_ms


@pytest.mark.parametrize(
    ("version", "code"), [("5.0.2", v2.BAD_REQUEST), ("5.0.3", v2.ILLEGAL_POLLING_TIME)]
)
def test_a_deadline_below_the_least_wait_is_refused(version: str, code: v2.Code) -> None:
    with pytest.raises(StatusError) as refused:
        receive_wait_ms(5_000, caller(version, 4_999))
    assert refused.value.status_code == code


def caller(version: str, left_ms: float | None) -> RequestContext:
    return RequestContext("c", Language.PYTHON, version, "", "127.0.0.1:1", left_ms)


@pytest.mark.parametrize(
    ("kind", "expression", "found"),
    [
        (v2.TAG, "", [b"a", b"b", b"c"]),
        (v2.TAG, " A || C ", [b"a", b"c"]),
        (v2.FILTER_TYPE_UNSPECIFIED, "B", [b"b"]),
        (v2.SQL, "n > 1 AND TAGS <> 'C'", [b"b"]),
    ],
)
async def test_a_receive_returns_messages_that_match_its_filter(
    start_broker: StartBroker, kind: v2.FilterType, expression: str, found: list[bytes]
) -> None:
    async with with_messages(start_broker) as running:
        for number, (body, tag) in enumerate([(b"a", "A"), (b"b", "B"), (b"c", "C")], 1):
            block = wire_block(TOPIC, [body], tags=tag, properties={"n": [str(number)]})
            await running.append_block(TOPIC, 0, block)
        text = v2.FilterExpression(type=kind, expression=expression)
        received = await Consumer(running).receive(filter_expression=text)
        assert received.bodies == found


async def test_a_tag_with_an_equal_code_does_not_match(start_broker: StartBroker) -> None:
    async with with_messages(start_broker) as running:
        # Java's hash codes of both are equal.
        for tag in ("BB", "Aa"):
            await running.append_block(TOPIC, 0, wire_block(TOPIC, [tag.encode()], tags=tag))
        text = v2.FilterExpression(type=v2.TAG, expression="Aa")
        consumer = Consumer(running)
        received = await consumer.receive(filter_expression=text)
        assert received.bodies == [b"Aa"]
        await consumer.acked(*received.handles)
        await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        await consumer.receive_nothing(filter_expression=text)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"invisible_duration": duration(9_999)}, v2.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_duration": duration(12 * 3_600_000 + 1)}, v2.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_duration": None}, v2.ILLEGAL_INVISIBLE_TIME),
        ({"group": v2.Resource(name="a b")}, v2.ILLEGAL_CONSUMER_GROUP),
        ({"group": v2.Resource(name="CID_RMQ_SYS_x")}, v2.ILLEGAL_CONSUMER_GROUP),
        ({"group": v2.Resource(name="g" * 121)}, v2.ILLEGAL_CONSUMER_GROUP),
        ({"message_queue": v2.MessageQueue()}, v2.ILLEGAL_TOPIC),
        ({"message_queue": v2.MessageQueue(topic={"name": "TBW102"})}, v2.ILLEGAL_TOPIC),
        ({"message_queue": v2.MessageQueue(topic={"name": "none"})}, v2.TOPIC_NOT_FOUND),
        ({"filter_expression": {"type": v2.SQL}}, v2.ILLEGAL_FILTER_EXPRESSION),
        (
            {"filter_expression": {"type": v2.SQL, "expression": "a >"}},
            v2.ILLEGAL_FILTER_EXPRESSION,
        ),
        (
            {"filter_expression": {"type": v2.TAG, "expression": "||"}},
            v2.ILLEGAL_FILTER_EXPRESSION,
        ),
        ({"filter_expression": {"type": 99, "expression": "a"}}, v2.ILLEGAL_FILTER_EXPRESSION),
        ({"filter_expression": {"expression": "a" * 8_193}}, v2.ILLEGAL_FILTER_EXPRESSION),
        ({"attempt_id": "a" * 256}, v2.BAD_REQUEST),
    ],
)
async def test_the_code_of_a_refused_receive(
    start_broker: StartBroker, fields: dict[str, Any], code: v2.Code
) -> None:
    async with with_messages(start_broker, b"a") as running:
        consumer = Consumer(running)
        received = await consumer.receive(**fields)
        assert received.status.code == code, received.status.message
        assert received.kinds == ["status", "delivery_timestamp"]
        # It has taken nothing from the group.
        assert (await consumer.receive()).attempts == [1]


async def test_a_group_has_a_name_of_120_characters(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, b"a") as running:
        assert (await Consumer(running, group="g" * 120).receive()).bodies == [b"a"]


async def test_an_unknown_group_is_refused_while_groups_are_not_created(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker, auto_create_subscription_group=False) as running:
        received = await Consumer(running).receive()
        assert received.status.code == v2.CONSUMER_GROUP_NOT_FOUND
        heartbeat = await ApacheClient(running).heartbeat(v2.SIMPLE_CONSUMER, "g")
        assert heartbeat.code == v2.CONSUMER_GROUP_NOT_FOUND


async def test_more_waiting_receives_than_the_limit_are_refused(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker) as running:
        consumer = Consumer(running)
        first = asyncio.ensure_future(consumer.receive())
        await running.held(1)
        pops = [pop(running, wait_ms=WAIT_MS) for _ in range(POLLING_MAX - 1)]
        further = asyncio.gather(*pops)
        await running.held(POLLING_MAX)
        refused = await consumer.receive()
        assert refused.status.code == v2.TOO_MANY_REQUESTS
        assert "polling full: 1024 calls of group 'g' wait" in refused.status.message
        await running.append(TOPIC, 0, b"a")
        assert (await first).bodies == [b"a"]
        running.clock.advance(WAIT_MS)
        assert [found(each) for each in await further] == [[]] * (POLLING_MAX - 1)


async def test_a_receive_without_a_client_id_is_refused(running: RunningBroker) -> None:
    received = await Consumer(running, client_id="").receive()
    assert received.status.code == v2.CLIENT_ID_REQUIRED


async def test_a_topic_without_permission_to_read_is_refused(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, b"a") as running:
        topics = running.broker.services.topics
        await topics.update(TopicConfig(TOPIC, 1, 1, 2), create_only=False)
        assert (await Consumer(running).receive()).status.code == v2.FORBIDDEN


@pytest.mark.parametrize(
    ("stored", "sys_flag", "body", "encoding"),
    [
        (gzip.compress(b"abc", mtime=0), COMPRESSED, gzip.compress(b"abc", mtime=0), v2.GZIP),
        (zlib.compress(b"abc"), COMPRESSED, b"abc", v2.IDENTITY),
        (
            pa.compress(b"abc", "zstd", asbytes=True),
            COMPRESSED | COMPRESSION_ZSTD,
            b"abc",
            v2.IDENTITY,
        ),
        (b"no stream", COMPRESSED | COMPRESSION_LZ4, b"no stream", v2.IDENTITY),
    ],
)
async def test_a_body_is_in_an_encoding_that_clients_know(
    start_broker: StartBroker, stored: bytes, sys_flag: int, body: bytes, encoding: v2.Encoding
) -> None:
    async with with_messages(start_broker) as running:
        await running.append_block(TOPIC, 0, one_record(body=stored, sys_flag=sys_flag))
        (message,) = (await Consumer(running).receive()).messages
        assert (message.body, message.system_properties.body_encoding) == (body, encoding)
        digest = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
        assert message.system_properties.body_digest.checksum == digest


async def test_a_message_of_four_mebibytes_is_received(start_broker: StartBroker) -> None:
    body, options = bytes(4 << 20), [("grpc.max_receive_message_length", -1)]
    async with with_messages(start_broker, body, commit_log_segment_bytes=16 << 20) as running:
        target = f"127.0.0.1:{running.ready.port}"
        async with grpc.aio.insecure_channel(target, options=options) as channel:
            received = await Consumer(replace(running, channel=channel)).receive()
        assert received.bodies == [body]


async def test_a_message_is_invisible_for_its_time_and_then_comes_again(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker, b"a") as running:
        consumer = Consumer(running)
        first = await consumer.receive()
        await consumer.receive_nothing()
        await pass_time(running, INVISIBLE_MS - WAIT_MS + REVIVE_MS)
        again = await consumer.receive()
        assert (again.bodies, again.attempts) == ([b"a"], [2])
        assert again.messages[0].topic.name == TOPIC
        assert again.handles != first.handles
