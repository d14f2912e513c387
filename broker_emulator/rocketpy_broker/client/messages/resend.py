"""Resending of messages as their topic's message type requires.

Messages that were sent before a crash stay. The broker drops an uncommitted half message after its
checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count

from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.messages import transactions
from rocketpy_broker.client.messages.sender import ANY_QUEUE, MessageSender
from rocketpy_broker.messages.copies import (
    TopicRules,
    producer_group,
    properties_of_copy,
    topic_of_copy,
)
from rocketpy_broker.messages.outgoing_message import OutgoingMessage, SentMessage
from rocketpy_broker.messages.stored import Message
from rocketpy_proto.model import TRANSACTION


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
        to = topic_of_copy(letter, group) if topic is None else topic
        yield senders.send(letter, to, properties_of_copy(letter))


def resend_messages(
    connection: BrokerConnection, messages: Iterable[Message], topic: str | None = None
) -> Iterator[ResentMessage]:
    """Sends messages as new ones to `topic`, or each to its own topic.

    They keep keys, tags and properties, and get new unique ids. Raises ClientError; yielded
    messages are sent.
    """
    senders = _Senders(connection)
    for message in messages:
        to = message.topic if topic is None else topic
        yield senders.send(message, to, dict(message.properties))


class _Senders:
    """Senders by topic, each created at the topic's first message."""

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection
        self._senders: dict[str, _TypedSender] = {}

    def send(self, message: Message, topic: str, properties: Mapping[str, str]) -> ResentMessage:
        """Sends a copy with these properties. Raises ClientError."""
        if topic not in self._senders:
            self._senders[topic] = _TypedSender(self._connection, topic)
        return ResentMessage(message, topic, self._senders[topic].send(message, properties))


class _TypedSender:
    """A sender of copies that have their topic's message type."""

    def __init__(self, connection: BrokerConnection, topic: str) -> None:
        """Raises ClientError, also for a missing topic."""
        self._connection = connection
        self._topic = topic
        self._sender = MessageSender(connection, topic, turn=ANY_QUEUE)
        checker = self._sender.checker
        self._rules = TopicRules(checker.message_type, checker.write_queue_nums)
        self._turn = count()

    def send(self, message: Message, properties: Mapping[str, str]) -> SentMessage:
        """Sends a copy of `message`; returns its place. Raises ClientError."""
        outgoing = self._rules.copy(message, properties)
        if self._rules.message_type == TRANSACTION:
            return self._committed(message, outgoing)
        (sent,) = self._sender.send([outgoing])
        return sent

    def _committed(self, message: Message, outgoing: OutgoingMessage) -> SentMessage:
        queue_id = next(self._turn) % self._rules.write_queue_nums
        outgoing = replace(outgoing, queue_id=queue_id)
        group = producer_group(message)
        opened = transactions.prepare(self._connection, self._topic, group, outgoing)
        transactions.end(self._connection, opened, commit=True)
        return SentMessage(opened.transaction_id, queue_id, None)
