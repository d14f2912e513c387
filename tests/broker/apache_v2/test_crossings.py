"""Messages of `apache.rocketmq.v2` read by the other protocols, and the reverse."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator

import pyarrow as pa
import pytest

from rocketpy_broker.server.apache_v2.receives.delivered_message import delivered
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.record import (
    COLUMN_TYPES,
    Record,
    RecordBlock,
    decode_record,
    to_record_batch,
)
from rocketpy_proto.record.sys_flag import COMPRESSED
from tests.broker.apache_v2.test_routes import create
from tests.broker.remoting.test_sends_and_pulls import pull, send
from tests.support.blocks import wire_block
from tests.support.broker.clients.apache_client import ApacheClient, message, records, topic
from tests.support.broker.clients.remoting_client import RemotingBroker
from tests.support.broker.running_broker import StartBroker


@pytest.fixture
async def both(start_broker: StartBroker) -> AsyncIterator[RemotingBroker]:
    """Yields a broker with a topic of one queue, and a remoting connection to it."""
    async with start_broker(remoting_port=0) as running, RemotingBroker.of(running) as remoting:
        await create(ApacheClient(running), "T", read=1, write=1)
        yield remoting


async def read_by_remoting(both: RemotingBroker) -> list[Record]:
    body = (await pull(both.client)).body
    return [decode_record(body, int(at)).record for at in RecordBlock.parse(bytes(body)).positions]


async def test_both_protocols_read_what_an_sdk_has_sent(both: RemotingBroker) -> None:
    apache = ApacheClient(both.running)
    compressed = gzip.compress(b"gzip")
    sent = [
        message("T", b"normal", tag="a", keys=["k1", "k2"]),
        message("T", b"fifo", message_group="g"),
        message("T", compressed, body_encoding=v2.GZIP),
    ]
    sent[0].user_properties["color"] = "red"
    for each in sent:
        assert (await apache.send(each)).status.code == v2.OK
    by_remoting = await read_by_remoting(both)
    assert by_remoting == await records(both.running, "T")
    ids = [each.properties["UNIQ_KEY"] for each in by_remoting]
    assert ids == [each.system_properties.message_id for each in sent]
    first, second, third = by_remoting
    assert (first.properties["TAGS"], first.properties["KEYS"]) == ("a", "k1 k2")
    assert first.properties["color"] == "red"
    assert second.properties["__SHARDINGKEY"] == "g"
    assert (third.body, third.sys_flag) == (compressed, COMPRESSED)


async def test_the_columns_of_spark_have_the_inflated_body_and_the_properties(
    both: RemotingBroker,
) -> None:
    apache = ApacheClient(both.running)
    await apache.send(message("T", gzip.compress(b"body"), body_encoding=v2.GZIP, tag="a"))
    (response,) = await both.running.pull(topic="T", queue_id=0, offset=0)
    names = ("body", "tags", "messageGroup", "bodyError")
    schema = pa.schema([(name, COLUMN_TYPES[name]) for name in names])
    (row,) = to_record_batch(RecordBlock.parse(response.records), schema).to_pylist()
    assert row == {"body": b"body", "tags": "a", "messageGroup": None, "bodyError": None}


async def test_a_message_of_a_classic_client_has_all_parts_of_a_delivered_one(
    both: RemotingBroker,
) -> None:
    properties = "TAGS\x01a\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01ID\x02color\x01red\x02"
    await send(both.client, b"body", properties=properties + "__SHARDINGKEY\x01g\x02")
    (record,) = await records(both.running, "T")
    found = delivered(record, topic("T"))
    system = found.system_properties
    assert (found.topic, found.body, dict(found.user_properties)) == (
        *(topic("T"), b"body"),
        {"color": "red"},
    )
    assert (system.tag, list(system.keys), system.message_id) == ("a", ["k1", "k2"], "ID")
    assert (system.message_group, system.message_type) == ("g", v2.FIFO)
    assert (system.queue_id, system.queue_offset, system.delivery_attempt) == (0, 0, 1)
    assert system.born_host == "127.0.0.1"
    assert system.born_timestamp.ToMilliseconds() == 7
    assert system.store_timestamp.ToMilliseconds() == both.running.clock.now_ms()
    assert system.store_host.endswith(str(both.running.ready.remoting_port))
    assert (system.body_encoding, system.body_digest.type) == (v2.IDENTITY, v2.MD5)


async def test_a_message_of_rocketpy_without_an_id_gets_that_of_its_position(
    both: RemotingBroker,
) -> None:
    block = wire_block("T", [b"body"])
    await both.running.append_block("T", 0, block)
    (record,) = await records(both.running, "T")
    system = delivered(record, topic("T")).system_properties
    assert len(system.message_id) == 32
    assert system.message_type == v2.NORMAL
    assert not system.HasField("tag")
    assert not system.HasField("message_group")
