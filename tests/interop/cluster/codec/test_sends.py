"""Messages that our codec sends to masters of both versions and reads back."""

from __future__ import annotations

import pytest

from rocketpy_proto.record import decode_offset_message_id, decode_record
from rocketpy_proto.record.properties import encode_properties
from rocketpy_proto.remoting import BatchMessage, RequestCode, ResponseCode, Serialization
from rocketpy_proto.remoting.headers.pulls import ViewMessageRequest
from tests.interop.cluster.connection import Connection
from tests.interop.cluster.messages import (
    Outgoing,
    Queue,
    bodies,
    body_of,
    pull,
    put,
    put_batch,
    read_all,
    records_of,
    send,
    until_pullable,
)
from tests.interop.cluster.processes import until
from tests.interop.cluster.servers import CLUSTER, Broker
from tests.interop.rocketmq import V4

RICH = {"TAGS": "blue", "KEYS": "k1 k2", "stadt": "Köln 😀", "UNIQ_KEY": "0A" * 16}
MESSAGE_BYTES_MAX = 4 * 1024 * 1024


def test_a_message_comes_back_with_all_that_was_sent(
    connection: Connection, queue: Queue, master: Broker
) -> None:
    message = Outgoing(b"body", RICH, flag=7)
    stored = put(connection, queue, message)
    assert (stored.queue_id, stored.queue_offset) == (0, 0)
    # 4.9 returns the unique key of transactions only.
    is_new = master.spec.version != V4
    assert stored.transaction_id == (RICH["UNIQ_KEY"] if is_new else None)
    (record,) = read_all(connection, queue)
    assert (record.topic, record.queue_id, record.queue_offset) == (queue.topic, 0, 0)
    assert (record.body, record.flag, record.sys_flag) == (b"body", 7, 0)
    added = {"CLUSTER": CLUSTER}
    if is_new:
        added |= {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert record.properties == {**RICH, **added}
    assert str(record.store_host) == master.address


def test_the_id_of_a_message_is_where_it_lies(
    connection: Connection, queue: Queue, master: Broker
) -> None:
    message_id = put(connection, queue, Outgoing(b"to be viewed")).msg_id
    host, physical_offset = decode_offset_message_id(message_id)
    assert str(host) == master.address
    header = ViewMessageRequest(offset=physical_offset, topic=queue.topic)
    answer = connection.ask(RequestCode.VIEW_MESSAGE_BY_ID, header).ok()
    assert decode_record(bytes(answer.command.body)).record == read_all(connection, queue)[0]


def test_a_compressed_body_is_stored_as_sent_and_inflated_by_us(
    connection: Connection, queue: Queue
) -> None:
    body = b"to be compressed " * 500
    message = Outgoing.compressed(body)
    put(connection, queue, message)
    (record,) = read_all(connection, queue)
    assert (record.body, record.sys_flag) == (message.body, message.sys_flag)
    assert body_of(record) == body


def test_a_batch_becomes_one_record_a_message(connection: Connection, queue: Queue) -> None:
    properties = [{"TAGS": f"t{number}", "KEYS": f"k{number}"} for number in range(5)]
    messages = [
        BatchMessage(b"%d" % number, encode_properties(texts), flag=number)
        for number, texts in enumerate(properties)
    ]
    put(connection, queue, Outgoing(b"before"))
    stored = put_batch(connection, queue, messages)
    assert stored.queue_offset == 1
    assert len(stored.msg_id.split(",")) == len(messages)
    records = read_all(connection, queue)[1:]
    assert [record.queue_offset for record in records] == [1, 2, 3, 4, 5]
    assert [(record.body, record.flag) for record in records] == [
        (message.body, message.flag) for message in messages
    ]
    for record, texts in zip(records, properties, strict=True):
        assert texts.items() <= record.properties.items()


def test_the_long_names_of_the_first_send_are_understood(
    connection: Connection, queue: Queue
) -> None:
    header = Outgoing(b"", {"TAGS": "v1"}).header(queue)
    stored = connection.ask(RequestCode.SEND_MESSAGE, header, b"by its first code").ok()
    assert stored.header.queue_offset == 0
    until_pullable(connection, queue, 0)
    (record,) = read_all(connection, queue)
    assert (record.body, record.properties["TAGS"]) == (b"by its first code", "v1")


def test_a_binary_header_is_understood_and_only_4_9_answers_in_kind(
    master: Broker, queue: Queue
) -> None:
    with Connection(master.address, serialization=Serialization.ROCKETMQ) as connection:
        answer = send(connection, queue, Outgoing(b"binary", RICH)).ok()
        until_pullable(connection, queue, 0)
        found = pull(connection, queue)
    is_new = master.spec.version != V4
    kind = Serialization.JSON if is_new else Serialization.ROCKETMQ
    assert answer.command.serialization is found.command.serialization is kind
    (record,) = records_of(found)
    assert record.body == b"binary"
    assert RICH.items() <= record.properties.items()


def test_a_send_that_nobody_answers_is_stored(connection: Connection, queue: Queue) -> None:
    message = Outgoing(b"one way")
    connection.tell(RequestCode.SEND_MESSAGE_V2, message.header(queue), message.body)
    put(connection, queue, Outgoing(b"answered"))
    until_pullable(connection, queue, 1)
    assert sorted(bodies(connection, queue)) == [b"answered", b"one way"]


def test_a_queue_that_is_not_there_is_refused(
    connection: Connection, topic: str, master: Broker
) -> None:
    answer = send(connection, Queue(topic, 9), Outgoing(b"lost"))
    is_new = master.spec.version != V4
    assert answer.code == (ResponseCode.INVALID_PARAMETER if is_new else ResponseCode.SYSTEM_ERROR)
    assert "queueId" in answer.remark


@pytest.mark.parametrize("excess", [0, 1])
def test_a_body_may_have_four_mebibytes(connection: Connection, queue: Queue, excess: int) -> None:
    answer = send(connection, queue, Outgoing(b"x" * (MESSAGE_BYTES_MAX + excess)))
    assert answer.code == (ResponseCode.MESSAGE_ILLEGAL if excess else ResponseCode.SUCCESS)
    put(connection, queue, Outgoing(b"next"))
    assert len(read_all(connection, queue)) == 2 - excess


def test_a_delayed_message_appears_when_its_level_is_over(
    connection: Connection, queue: Queue, master: Broker
) -> None:
    send(connection, queue, Outgoing(b"late", {"DELAY": "1", "TAGS": "blue"})).ok()
    put(connection, queue, Outgoing(b"at once"))
    until(lambda: len(bodies(connection, queue)) > 1, "delivered", [master])
    records = {record.body: record for record in read_all(connection, queue)}
    assert records.keys() == {b"at once", b"late"}
    late = records[b"late"]
    assert late.store_timestamp_ms - late.born_timestamp_ms >= 1000
    assert late.properties["TAGS"] == "blue"
