"""LocalBroker without Spark: topics, messages, lag, a fresh start, and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import grpc
import pytest

from rocketpy_broker import LocalBroker, LocalBrokerError, Message
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.messages.topic_reader import TopicReader
from rocketpy_broker.client.topics import topic_exists
from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_proto.rocketpy.v1 import broker_pb2, broker_pb2_grpc


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    """Yields a broker for this module alone, since `reset` removes everything."""
    with LocalBroker(flush="SYNC_FLUSH") as broker:
        yield broker


def commit(broker: LocalBroker, topic: str, group: str, offset: int) -> None:
    """Commits an offset of queue 0."""
    with grpc.insecure_channel(broker.endpoint) as channel:
        offsets = [broker_pb2.CommittedOffset(topic=topic, queue_id=0, offset=offset)]
        request = broker_pb2.CommitOffsetsRequest(consumer_group=group, offsets=offsets)
        response = broker_pb2_grpc.BrokerStub(channel).CommitOffsets(request)
    assert response.status.code == 0


def test_what_is_sent_is_read(rocketpy_broker: LocalBroker, rocketpy_topic: str) -> None:
    sent = rocketpy_broker.send(rocketpy_topic, ["a", b"b"], tags="T", keys="k", queue_id=0)
    sent += rocketpy_broker.send(rocketpy_topic, bytearray(b"c"), keys=("k1", "k2"), queue_id=0)
    sent += rocketpy_broker.send(rocketpy_topic, (each for each in "de"), properties={"p": "1"})
    messages = rocketpy_broker.messages(rocketpy_topic)
    assert [message.text for message in messages] == list("abcde")
    assert [message.msg_id for message in messages] == [each.msg_id for each in sent]
    assert [message.keys for message in messages[:3]] == [("k",), ("k",), ("k1", "k2")]
    assert [message.tags for message in messages[1:3]] == ["T", None]
    assert messages[3].properties == {"p": "1"}
    assert isinstance(messages[0], Message)
    assert messages[0].store_timestamp.utcoffset() == timedelta(0)
    with pytest.raises(AttributeError):
        messages[0].queue_id = 7  # type: ignore[misc]


def test_single_messages_go_to_one_queue_after_the_other(broker: LocalBroker) -> None:
    broker.create_topic("turns", queues=3)
    queues = [broker.send("turns", "x")[0].queue_id for _ in range(6)]
    assert queues == [0, 1, 2, 0, 1, 2]


def test_a_body_that_is_no_text_says_so(rocketpy_broker: LocalBroker, rocketpy_topic: str) -> None:
    rocketpy_broker.send(rocketpy_topic, b"\xff")
    with pytest.raises(UnicodeDecodeError):
        _ = rocketpy_broker.messages(rocketpy_topic)[0].text


def test_lag_is_told_in_all_and_by_queue(rocketpy_broker: LocalBroker, rocketpy_topic: str) -> None:
    rocketpy_broker.send(rocketpy_topic, ["a", "b", "c"], queue_id=0)
    stranger = rocketpy_broker.lag(rocketpy_topic, "stranger")
    assert (stranger.is_known, stranger.total) == (False, 3)
    assert stranger.queues[0].committed_offset is None
    commit(rocketpy_broker, rocketpy_topic, "reader", 2)
    reader = rocketpy_broker.lag(rocketpy_topic, "reader")
    assert (reader.is_known, reader.total, reader.queues[0].lag) == (True, 1, 1)
    assert (reader.queues[0].committed_offset, len(reader.queues)) == (2, 8)


def test_a_topic_may_be_there_already(broker: LocalBroker) -> None:
    broker.create_topic("twice", queues=2)
    broker.create_topic("twice", queues=5, exist_ok=True)
    assert broker.send("twice", ["x"] * 6)[-1].queue_id < 2
    with pytest.raises(LocalBrokerError, match="exists already"):
        broker.create_topic("twice")


def test_reset_leaves_neither_topics_nor_messages_nor_progress(broker: LocalBroker) -> None:
    broker.create_topic("old", queues=1)
    broker.send("old", ["a", "b"])
    commit(broker, "old", "group", 2)
    assert "%RETRY%group" not in broker.topics()
    with BrokerConnection(broker.endpoint) as connection:
        assert topic_exists(connection, "%RETRY%group")
    pid = broker.pid
    broker.reset()
    assert (broker.topics(), broker.pid) == ([], pid)
    with BrokerConnection(broker.endpoint) as connection:
        assert not topic_exists(connection, "%RETRY%group")
    broker.create_topic("old", queues=1)
    assert broker.messages("old") == []
    broker.send("old", ["c", "d", "e"])
    assert broker.lag("old", "group").queues[0].committed_offset is None
    assert [message.text for message in broker.messages("old")] == ["c", "d", "e"]
    broker.restart()
    assert broker.lag("old", "group").total == 3
    broker.reset()
    broker.reset()


CALLS: list[Callable[[LocalBroker], object]] = [
    lambda broker: broker.endpoint,
    lambda broker: broker.pid,
    lambda broker: broker.data,
    lambda broker: broker.log_text(),
    lambda broker: broker.create_topic("T"),
    lambda broker: broker.delete_topic("T"),
    lambda broker: broker.topics(),
    lambda broker: broker.reset(),
    lambda broker: broker.send("T", "a"),
    lambda broker: broker.messages("T"),
    lambda broker: broker.lag("T", "g"),
]


@pytest.mark.parametrize("call", CALLS)
def test_nothing_works_before_the_start(call: Callable[[LocalBroker], object]) -> None:
    broker = LocalBroker()
    with pytest.raises(LocalBrokerError, match=r"call start\(\)"):
        call(broker)
    broker.stop()
    broker.kill()


def test_after_a_stop_the_endpoint_is_known_and_nothing_runs(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "store") as broker:
        endpoint = broker.endpoint
        broker.stop()
        assert broker.endpoint == endpoint
        assert broker.data == tmp_path / "store"
        with pytest.raises(LocalBrokerError, match="the broker is not running"):
            broker.topics()


def test_a_second_start_is_refused_and_harms_nothing(broker: LocalBroker) -> None:
    with pytest.raises(LocalBrokerError, match=f"running already at {broker.endpoint}"):
        broker.start()
    assert "TBW102" not in broker.topics()


def test_a_store_that_cannot_be_made_is_named() -> None:
    with pytest.raises(LocalBrokerError, match=r"written in /proc/none \(.*\); name another data"):
        LocalBroker("/proc/none").start()


@pytest.mark.parametrize("flush", ["NEVER", "sync_flush", ""])
def test_a_wrong_flush_names_the_accepted_ones(flush: str) -> None:
    with pytest.raises(ParameterIllegalError, match="accepted is SYNC_FLUSH or ASYNC_FLUSH"):
        LocalBroker(flush=flush)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"port": 70_000}, "port is 70000, accepted is 0 to 65535"),
        ({"port": -1}, "port is -1, accepted is 0 to 65535"),
        ({"port": True}, "port is True, accepted is 0 to 65535"),
        ({"port": "8081"}, "port is '8081', accepted is 0 to 65535"),
        ({"http_port": 65_536}, "http_port is 65536, accepted is 0 to 65535"),
        ({"ha_port": -1}, "ha_port is -1, accepted is 0 to 65535"),
        ({"commit_log_segment_bytes": "1M"}, "commit_log_segment_bytes is '1M', accepted is an"),
        ({"commit_log_segment_bytes": 5000.5}, "commit_log_segment_bytes is 5000.5, accepted"),
        ({"start_seconds_max": None}, "start_seconds_max is None, accepted is a number"),
        ({"start_seconds_max": float("nan")}, "start_seconds_max is nan, accepted is a number"),
        ({"message_delay_level": 5}, "messageDelayLevel is '5', accepted is 1 to 18 numbers"),
        ({"tls": "yes"}, "tls is 'yes', accepted is True, False or a LocalTls"),
        ({"users": ["root"]}, "users is 'root', accepted is a list of BrokerUser"),
        ({"users": 5}, "users is 5, accepted is a list of BrokerUser"),
        ({"data": ""}, "data is '', accepted is the path"),
        ({"data": b"store"}, "data is b'store', accepted is the path"),
        ({"data": "a\0b"}, r"data is 'a\\x00b', accepted is the path"),
    ],
)
def test_an_option_that_cannot_be_is_refused_at_once(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ParameterIllegalError, match=said):
        LocalBroker(**options)


def test_flush_is_taken_as_text(broker: LocalBroker) -> None:
    with LocalBroker(flush="ASYNC_FLUSH") as other:
        other.create_topic("T")
        other.send("T", "a")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"body": 1}, "body is 1, accepted is str or bytes"),
        ({"body": ["a", None]}, "body is None"),
        ({"body": "\ud800"}, "not valid Unicode"),
        ({"body": ["a", bytes((4 << 20) + 1)]}, "message 1: the body has 4194305 bytes"),
        ({"body": "a", "tags": 1}, "tags is 1"),
        ({"body": "a", "keys": 1}, "keys is 1"),
        ({"body": "a", "keys": [1]}, r"keys is \[1\]"),
        ({"body": "a", "properties": {"p": 1}}, "property 'p' is 1"),
        ({"body": "a", "properties": ["p"]}, "properties is"),
        (
            {"body": "a", "properties": {"DELAY": "3"}},
            "'DELAY' is not sent as a property; use delay",
        ),
        ({"body": "a", "properties": {"TIMER_DELIVER_MS": "9" * 13}}, "use deliver_at"),
        ({"body": "a", "properties": {"TIMER_DELIVER_MS": "soon"}}, "use deliver_at"),
        ({"body": "a", "properties": {"TIMER_DELAY_MS": "1"}}, "use deliver_at"),
        ({"body": "a", "properties": {"TIMER_DELAY_SEC": "1"}}, "use deliver_at"),
        ({"body": "a", "properties": {"TRAN_MSG": "true"}}, "use send_transaction"),
        ({"body": "a", "delay_level": "3"}, "delay_level is '3', accepted is an int"),
        ({"body": "a", "deliver_at": "2026-05-01"}, "deliver_at is '2026-05-01', accepted is a da"),
        ({"body": "a", "queue_id": "0"}, "queue_id is '0', accepted is an int"),
        ({"body": "a", "queue_id": 8}, "queue id 8"),
        ({"body": "a", "topic": "Nowhere"}, "'Nowhere' does not exist"),
    ],
)
def test_what_cannot_be_sent_is_refused_and_nothing_is_sent(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, words: dict[str, object], said: str
) -> None:
    with pytest.raises(LocalBrokerError, match=said):
        rocketpy_broker.send(**{"topic": rocketpy_topic, **words})  # type: ignore[arg-type]
    assert rocketpy_broker.messages(rocketpy_topic) == []


def test_what_has_waited_is_sent_again_at_once(
    rocketpy_broker: LocalBroker, rocketpy_topic: str
) -> None:
    """Sends messages with the properties of an earlier wait, which request no new one."""
    rocketpy_broker.send(rocketpy_topic, "level", delay_level=1)
    due = datetime.now(timezone.utc) + timedelta(seconds=1)
    rocketpy_broker.send(rocketpy_topic, "time", deliver_at=due)
    come: list[Message] = []
    with BrokerConnection(rocketpy_broker.endpoint) as connection:
        reader = TopicReader(connection, rocketpy_topic)
        while len(come) < 2:
            come += reader.next_messages(wait_ms_max=5_000)
    for message in come:
        rocketpy_broker.send(rocketpy_topic, message.body, properties=message.properties)
    assert len(rocketpy_broker.messages(rocketpy_topic)) == 4


def test_an_unknown_topic_is_named(rocketpy_broker: LocalBroker) -> None:
    for call in (
        lambda: rocketpy_broker.messages("Nowhere"),
        lambda: rocketpy_broker.lag("Nowhere", "g"),
        lambda: rocketpy_broker.delete_topic("Nowhere"),
    ):
        with pytest.raises(LocalBrokerError, match="'Nowhere' does not exist"):
            call()


def test_a_mapping_is_no_body(rocketpy_broker: LocalBroker, rocketpy_topic: str) -> None:
    """Asserts that a mapping is refused: its items would be its keys."""
    with pytest.raises(LocalBrokerError, match=r"body is .* accepted is str or bytes"):
        rocketpy_broker.send(rocketpy_topic, {"id": 17})
    assert rocketpy_broker.messages(rocketpy_topic) == []
