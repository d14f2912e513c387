"""Resending of messages as their topic's message type requires.

Messages that were sent before a crash stay. The broker drops an uncommitted half message after its
checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count

from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.messages import transactions
from rocketpy_broker.client.messages.retries import origin_topic
from rocketpy_broker.client.messages.sender import ANY_QUEUE, MessageSender
from rocketpy_broker.client.topics import RETRY_PREFIX
from rocketpy_broker.messages.outgoing import OutgoingMessage, SentMessage
from rocketpy_broker.messages.stored import Message
from rocketpy_proto.record import java_hash
from rocketpy_proto.record.properties import PRODUCER_GROUP, SHARDING_KEY, UNIQ_KEY

# The producer group of a transaction if the message has none.
PRODUCER_GROUP_DEFAULT = "rocketpy-resend"


@dataclass(frozen=True, slots=True)
class ResentMessage:
    """A message, the topic to which it was sent, and its place there."""

    message: Message
    topic: str
    sent: SentMessage


def resend_dead_letters(
    connection: BrokerConnection, group: str, letters: Iterable[Message], topic: str | None = None
) -> Iterator[ResentMessage]:
    """Sends dead letters to `topic`, or each to the topic of its first send.

    A dead letter without that topic goes to the group's retry topic. The messages keep unique id,
    keys, tags and properties. The dead letters stay. Raises ClientError; yielded messages are sent.
    """
    senders = _Senders(connection)
    for letter in letters:
        to = topic or origin_topic(letter) or RETRY_PREFIX + group
        yield senders.send(letter, to, _with_unique_key(letter))


def resend_messages(
    connection: BrokerConnection, messages: Iterable[Message], topic: str | None = None
) -> Iterator[ResentMessage]:
    """Sends messages as new ones to `topic`, or each to its own topic.

    They keep keys, tags and properties, and get new unique ids. Raises ClientError; yielded
    messages are sent.
    """
    senders = _Senders(connection)
    for message in messages:
        yield senders.send(message, topic or message.topic, dict(message.properties))


def _with_unique_key(letter: Message) -> dict[str, str]:
    kept = dict(letter.properties)
    if letter.msg_id != letter.offset_msg_id:
        kept[UNIQ_KEY] = letter.msg_id
    return kept


class _Senders:
    """Senders by topic, each created at the topic's first message."""

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection
        self._senders: dict[str, _TypedSender] = {}

    def send(self, message: Message, topic: str, properties: dict[str, str]) -> ResentMessage:
        """Sends a copy with these properties. Raises ClientError."""
        if topic not in self._senders:
            self._senders[topic] = _TypedSender(self._connection, topic)
        outgoing = OutgoingMessage(message.body, message.tags, message.keys, properties)
        return ResentMessage(message, topic, self._senders[topic].send(message, outgoing))


class _TypedSender:
    """A sender of messages of their topic's message type.

    - DELAY: with a delivery time in the past, so that the broker delivers at once.
    - FIFO: to the queue of the message group; a message without one is its own group.
    - NORMAL: without the message group.
    - TRANSACTION: prepared, then committed.
    """

    def __init__(self, connection: BrokerConnection, topic: str) -> None:
        """Raises UnreachableError, RefusedError, also for a missing topic."""
        self._connection = connection
        self._topic = topic
        self._sender = MessageSender(connection, topic, turn=ANY_QUEUE)
        self._type = self._sender.checker.message_type
        self._queue_nums = self._sender.checker.write_queue_nums
        self._turn = count()

    def send(self, message: Message, outgoing: OutgoingMessage) -> SentMessage:
        """Sends `outgoing`, a copy of `message`; returns its place. Raises ClientError."""
        if self._type == "TRANSACTION":
            return self._committed(message, outgoing)
        if self._type == "DELAY":
            outgoing = replace(outgoing, deliver_at=message.store_timestamp)
        elif self._type == "FIFO":
            group = outgoing.properties.get(SHARDING_KEY) or message.msg_id
            queue_id = abs(java_hash(group)) % self._queue_nums
            properties = {**outgoing.properties, SHARDING_KEY: group}
            outgoing = replace(outgoing, properties=properties, queue_id=queue_id)
        elif self._type == "NORMAL":
            properties = {**outgoing.properties}
            properties.pop(SHARDING_KEY, None)
            outgoing = replace(outgoing, properties=properties)
        (sent,) = self._sender.send([outgoing])
        return sent

    def _committed(self, message: Message, outgoing: OutgoingMessage) -> SentMessage:
        queue_id = next(self._turn) % self._queue_nums
        group = message.properties.get(PRODUCER_GROUP) or PRODUCER_GROUP_DEFAULT
        outgoing = replace(outgoing, queue_id=queue_id)
        opened = transactions.prepare(self._connection, self._topic, group, outgoing)
        transactions.end(self._connection, opened, commit=True)
        return SentMessage(opened.transaction_id, queue_id, None)
