"""A topic reader: all queues as one, from the start or the end, and new messages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from signal import SIGINT, raise_signal
from threading import Thread
from types import FrameType

import grpc
import numpy as np
import pytest

from rocketpy_broker import LocalBroker, Message
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.errors import RefusedError, UnreachableError, UnreadableError
from rocketpy_broker.client.messages.model import decode_messages
from rocketpy_broker.client.messages.topic_reader import TopicReader
from rocketpy_proto.record import Host, Record, encode_record
from rocketpy_proto.record.sys_flag import COMPRESSED
from rocketpy_proto.rocketpy.v1 import broker_pb2, broker_pb2_grpc

WAIT_MS = 10_000


@pytest.fixture
def reader(rocketpy_broker: LocalBroker, rocketpy_topic: str) -> Iterator[TopicReader]:
    with BrokerConnection(rocketpy_broker.endpoint) as connection:
        yield TopicReader(connection, rocketpy_topic)


def texts(messages: Iterator[Message]) -> list[str]:
    return [message.text for message in messages]


def send(broker: LocalBroker, topic: str, *bodies: str, queue_id: int | None = None) -> None:
    broker.send(topic, bodies, queue_id=queue_id)


def test_an_empty_topic_has_no_messages(reader: TopicReader) -> None:
    assert texts(reader.first()) == []
    assert texts(reader.last(5)) == []
    assert texts(reader.next_messages(0)) == []


@pytest.mark.parametrize(
    ("count", "wanted"), [(0, ""), (1, "h"), (3, "fgh"), (8, "abcdefgh"), (20, "abcdefgh")]
)
def test_the_last_messages_are_those_of_all_queues(
    reader: TopicReader, rocketpy_broker: LocalBroker, count: int, wanted: str
) -> None:
    for body, queue_id in zip("abcdefgh", (0, 0, 1, 0, 5, 1, 0, 0), strict=True):
        send(rocketpy_broker, reader.topic, body, queue_id=queue_id)
    assert texts(reader.last(count)) == list(wanted)
    assert texts(reader.first(count)) == list("abcdefgh")[:count]
    assert texts(reader.first()) == list("abcdefgh")


def test_what_comes_next_begins_where_reading_ended(
    reader: TopicReader, rocketpy_broker: LocalBroker
) -> None:
    send(rocketpy_broker, reader.topic, "a", "b")
    assert texts(reader.last(1)) == ["b"]
    assert texts(reader.next_messages(0)) == []
    send(rocketpy_broker, reader.topic, "c", "d")
    assert texts(reader.next_messages(WAIT_MS)) == ["c", "d"]
    assert texts(reader.next_messages(0)) == []


def test_a_topic_made_anew_is_read_from_its_beginning(
    reader: TopicReader, rocketpy_broker: LocalBroker
) -> None:
    send(rocketpy_broker, reader.topic, "a", "b", queue_id=0)
    assert texts(reader.first()) == ["a", "b"]
    rocketpy_broker.delete_topic(reader.topic)
    rocketpy_broker.create_topic(reader.topic)
    send(rocketpy_broker, reader.topic, "c", queue_id=0)
    assert texts(reader.next_messages(WAIT_MS)) == ["c"]


def test_messages_larger_than_a_response_come_whole(
    reader: TopicReader, rocketpy_broker: LocalBroker
) -> None:
    bodies = [bytes([number]) * 300_000 for number in range(12)]
    rocketpy_broker.send(reader.topic, bodies)
    assert [message.body for message in reader.first()] == bodies


def test_a_message_shows_what_its_sender_said(
    reader: TopicReader, rocketpy_broker: LocalBroker
) -> None:
    before = datetime.now(timezone.utc).replace(microsecond=0)
    [sent] = rocketpy_broker.send(
        reader.topic, "Grüße", tags="T", keys=["k1", "k2"], properties={"p": "1"}
    )
    [message] = reader.first()
    assert (message.text, message.body) == ("Grüße", "Grüße".encode())
    assert (message.tags, message.keys, message.properties) == ("T", ("k1", "k2"), {"p": "1"})
    assert (message.msg_id, message.queue_id, message.queue_offset) == (
        sent.msg_id,
        sent.queue_id,
        sent.queue_offset,
    )
    assert before <= message.store_timestamp <= datetime.now(timezone.utc)


def test_the_topic_that_goes_while_it_is_followed_is_refused(
    reader: TopicReader, rocketpy_broker: LocalBroker
) -> None:
    rocketpy_broker.delete_topic(reader.topic)
    with pytest.raises(RefusedError, match="does not exist"):
        reader.next_messages(0)


def test_a_broker_that_has_gone_is_named() -> None:
    with LocalBroker() as broker, BrokerConnection(broker.endpoint) as connection:
        broker.create_topic("T")
        broker.send("T", "a")
        messages = TopicReader(connection, "T").first()
        broker.kill()
        with pytest.raises(UnreachableError, match=broker.endpoint):
            list(messages)


def test_messages_that_are_cleaned_meanwhile_are_passed_over(
    rocketpy_broker: LocalBroker, rocketpy_topic: str
) -> None:
    rocketpy_broker.send(rocketpy_topic, ["a", "b"], queue_id=0)
    with BrokerConnection(rocketpy_broker.endpoint) as connection:
        reader = TopicReader(connection, rocketpy_topic)
        messages = reader.first()
        rocketpy_broker.delete_topic(rocketpy_topic)
        rocketpy_broker.create_topic(rocketpy_topic)
        assert texts(messages) == []


def decoded(record: Record) -> Message:
    encoded = encode_record(record)
    [message] = decode_messages(encoded, np.array([len(encoded)], ">i4").tobytes())
    return message


def test_a_message_without_unique_id_has_its_offset_message_id() -> None:
    message = decoded(Record("T", 0, b"", {}, store_host=Host.parse("10.0.0.1:10911")))
    assert message.msg_id == message.offset_msg_id == "0A00000100002A9F" + "0" * 16


@pytest.mark.parametrize("time_ms", [-(1 << 62), 1 << 62])
def test_a_time_that_no_calendar_holds_is_the_nearest_one(time_ms: int) -> None:
    year = decoded(Record("T", 0, b"", born_timestamp_ms=time_ms)).born_timestamp.year
    assert year == (1 if time_ms < 0 else 9999)


def test_a_body_that_cannot_be_inflated_stays_as_it_is() -> None:
    assert decoded(Record("T", 0, b"no zlib", sys_flag=COMPRESSED)).body == b"no zlib"


def test_bytes_that_are_no_record_are_refused() -> None:
    with pytest.raises(UnreadableError, match="damaged"):
        list(decode_messages(b"x" * 100, np.array([100], ">i4").tobytes()))


@pytest.mark.parametrize(("group", "exists"), [("", None), ("seen", True), ("unseen", False)])
def test_the_broker_says_whether_it_knows_a_group(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, group: str, exists: bool | None
) -> None:
    with grpc.insecure_channel(rocketpy_broker.endpoint) as channel:
        stub = broker_pb2_grpc.BrokerStub(channel)
        commit = broker_pb2.CommittedOffset(topic=rocketpy_topic, queue_id=0, offset=0)
        stub.CommitOffsets(broker_pb2.CommitOffsetsRequest(consumer_group="seen", offsets=[commit]))
        request = broker_pb2.QueryOffsetsRequest(topics=[rocketpy_topic], consumer_group=group)
        response = stub.QueryOffsets(request)
    assert response.HasField("consumer_group_exists") == (exists is not None)
    assert response.consumer_group_exists == bool(exists)


def test_the_last_messages_of_many_queues_are_the_newest_of_all(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, reader: TopicReader
) -> None:
    for number in range(40):
        send(rocketpy_broker, rocketpy_topic, str(number), queue_id=number * 7 % 8)
    for count in (0, 1, 5, 39, 40, 100):
        assert texts(reader.last(count)) == [str(n) for n in range(max(40 - count, 0), 40)]


def test_a_connection_that_was_interrupted_as_a_call_began_can_be_closed(
    rocketpy_broker: LocalBroker, rocketpy_topic: str
) -> None:
    """Covers a call that no thread drives: gRPC waited for it, and `message tail -f` hung."""

    def interrupt(frame: FrameType, _event: str, _argument: object) -> None:
        # gRPC starts the thread after the call.
        if frame.f_code is Thread.start.__code__:
            raise_signal(SIGINT)

    rocketpy_broker.send(rocketpy_topic, "a")
    with BrokerConnection(rocketpy_broker.endpoint) as connection:
        messages = TopicReader(connection, rocketpy_topic).first(1)
        sys.setprofile(interrupt)
        try:
            with pytest.raises(KeyboardInterrupt) as interrupted:
                list(messages)
        finally:
            sys.setprofile(None)
    assert [each for each in interrupted.traceback if each.name == "pull"]
