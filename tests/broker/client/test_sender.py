"""A sender that spreads messages over queues, in order, and checks them before it sends."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.errors import MessageIllegalError, RefusedError, SendError
from rocketpy_broker.client.messages.model import OutgoingMessage
from rocketpy_broker.client.messages.sender import ANY_QUEUE, BATCH_MESSAGES_MAX, MessageSender
from rocketpy_broker.client.messages.topic_reader import TopicReader
from rocketpy_proto.rocketpy.v1 import admin_pb2

MIB = 1 << 20
SOON = datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.fixture
def connection(rocketpy_broker: LocalBroker) -> Iterator[BrokerConnection]:
    with BrokerConnection(rocketpy_broker.endpoint) as connection:
        yield connection


def plain(count: int) -> list[OutgoingMessage]:
    return [OutgoingMessage(b"%d" % number) for number in range(count)]


def test_messages_are_spread_evenly_and_the_log_keeps_their_order(
    connection: BrokerConnection, rocketpy_broker: LocalBroker, rocketpy_topic: str
) -> None:
    sent = list(MessageSender(connection, rocketpy_topic, turn=6).send(plain(19)))
    stored = rocketpy_broker.messages(rocketpy_topic)
    assert [message.body for message in stored] == [message.body for message in plain(19)]
    assert [message.queue_id for message in stored] == [each.queue_id for each in sent]
    assert [message.queue_offset for message in stored] == [each.queue_offset for each in sent]
    assert [message.msg_id for message in stored] == [each.msg_id for each in sent]
    counts = [sum(each.queue_id == queue for each in sent) for queue in range(8)]
    assert (sent[0].queue_id, min(counts), max(counts)) == (6, 2, 3)


def test_the_next_send_goes_on_with_the_next_queue(
    connection: BrokerConnection, rocketpy_topic: str
) -> None:
    sender = MessageSender(connection, rocketpy_topic)
    queues = [sent.queue_id for count in (3, 1, 5) for sent in sender.send(plain(count))]
    assert queues == [0, 1, 2, 3, 4, 5, 6, 7, 0]


def test_the_broker_chooses_the_queue_of_one_that_leaves_it(
    connection: BrokerConnection, rocketpy_topic: str
) -> None:
    senders = [MessageSender(connection, rocketpy_topic, turn=ANY_QUEUE) for _ in range(8)]
    queues = {sent.queue_id for sender in senders for sent in sender.send(plain(1))}
    assert queues == set(range(8))


def test_batches_are_bounded_by_bytes_and_by_count(
    connection: BrokerConnection, rocketpy_broker: LocalBroker, rocketpy_topic: str
) -> None:
    count = 2 * BATCH_MESSAGES_MAX + 6
    sender = MessageSender(connection, rocketpy_topic)
    pulled = 0

    def given() -> Iterator[OutgoingMessage]:
        nonlocal pulled
        for message in [*plain(count), *(OutgoingMessage(bytes(3 * MIB)) for _ in range(4))]:
            pulled += 1
            # The messages taken and not sent yet are one batch, and the message that ended it.
            assert pulled - sender.sent_count <= BATCH_MESSAGES_MAX + 1
            if pulled > count + 2:
                assert pulled - sender.sent_count <= 2
            yield message

    assert len(list(sender.send(given()))) == count + 4
    assert len(rocketpy_broker.messages(rocketpy_topic)) == count + 4


def test_a_sender_may_name_its_own_unique_id(
    connection: BrokerConnection, rocketpy_broker: LocalBroker, rocketpy_topic: str
) -> None:
    message = OutgoingMessage(b"", properties={"UNIQ_KEY": "mine", "TAGS": "T"})
    [sent] = MessageSender(connection, rocketpy_topic).send([message])
    [stored] = rocketpy_broker.messages(rocketpy_topic)
    assert (sent.msg_id, stored.msg_id, stored.tags) == ("mine", "mine", "T")


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (OutgoingMessage(b"", queue_id=8), r"queue id 8 of topic .* is not in 0\.\.7"),
        (OutgoingMessage(b"", queue_id=-1), "queue id -1"),
        (OutgoingMessage(b"", tags="a\x01b"), "property TAGS 'a.*separator"),
        (OutgoingMessage(b"", keys=("a", "b\x02")), "property KEYS 'a b.*separator"),
        (OutgoingMessage(b"", properties={"": "x"}), "property name '' is empty"),
        (OutgoingMessage(b"", delay_level=-1), "delay level -1 is negative"),
        (OutgoingMessage(b"", delay_level=1, deliver_at=SOON), ".* a delay level and a delivery"),
        (OutgoingMessage(b"", deliver_at=SOON.replace(tzinfo=None)), ".* has no time zone"),
        (OutgoingMessage(b"", properties={"p": "\ud800"}), "property p .* is not valid Unicode"),
        (
            OutgoingMessage(b"", properties={"p": "x" * 33_000}),
            "properties .* has more than 32767 bytes",
        ),
    ],
)
def test_a_message_that_cannot_be_is_named_and_nothing_of_its_batch_is_sent(
    connection: BrokerConnection,
    rocketpy_broker: LocalBroker,
    rocketpy_topic: str,
    message: OutgoingMessage,
    said: str,
) -> None:
    sender = MessageSender(connection, rocketpy_topic)
    with pytest.raises(MessageIllegalError, match=f"message 2: {said}"):
        list(sender.send([*plain(2), message]))
    assert rocketpy_broker.messages(rocketpy_topic) == []


def test_a_body_that_is_too_large_is_named_by_its_number(
    connection: BrokerConnection, rocketpy_topic: str
) -> None:
    sender = MessageSender(connection, rocketpy_topic)
    with pytest.raises(MessageIllegalError, match="message 2: the body has 4194305 bytes"):
        list(sender.send([*plain(2), OutgoingMessage(bytes(4 * MIB + 1))]))


def test_a_topic_that_is_not_there_is_refused(connection: BrokerConnection) -> None:
    with pytest.raises(RefusedError, match="'Nowhere' does not exist") as caught:
        MessageSender(connection, "Nowhere")
    assert caught.value.is_missing_topic


def test_a_topic_that_may_not_be_written_is_the_brokers_to_refuse(
    connection: BrokerConnection, rocketpy_topic: str
) -> None:
    config = admin_pb2.TopicConfig(
        topic=rocketpy_topic, read_queue_nums=8, write_queue_nums=8, perm=4
    )
    connection.admin.UpdateTopic(admin_pb2.UpdateTopicRequest(config=config))
    with pytest.raises(SendError, match=r"is not writable.*; 0 messages were sent"):
        list(MessageSender(connection, rocketpy_topic).send(plain(3)))


def test_what_was_sent_before_the_broker_went_is_counted() -> None:
    with LocalBroker() as broker, BrokerConnection(broker.endpoint) as connection:
        broker.create_topic("T")
        sender = MessageSender(connection, "T")
        list(sender.send(plain(3)))
        broker.kill()
        with pytest.raises(SendError, match=r"no broker answers at .*; 3 messages were sent"):
            list(sender.send(plain(1)))


def test_d02_messages_of_several_delays_are_sent_together_and_come_later(
    connection: BrokerConnection, rocketpy_broker: LocalBroker, rocketpy_topic: str
) -> None:
    messages = [
        OutgoingMessage(b"now", properties={"DELAY": "3", "a": "b"}, queue_id=3),
        OutgoingMessage(b"far", delay_level=18),
        OutgoingMessage(b"next", delay_level=1, queue_id=3),
        OutgoingMessage(b"past", deliver_at=SOON),
    ]
    sent = list(MessageSender(connection, rocketpy_topic).send(messages))
    assert [each.queue_offset for each in sent] == [0, None, None, 0]
    reader = TopicReader(connection, rocketpy_topic)
    found = {message.body: message for message in reader.first()}
    # A busy machine may read so late that the next one is there already.
    while b"next" not in found:
        found |= {message.body: message for message in reader.next_messages(10_000)}
    assert sorted(found) == [b"next", b"now", b"past"]
    assert found[b"now"].properties == {"a": "b"}
    later = found[b"next"]
    assert (later.queue_id, later.queue_offset) == (3, 1)
    assert later.store_timestamp - later.born_timestamp >= timedelta(seconds=1)
