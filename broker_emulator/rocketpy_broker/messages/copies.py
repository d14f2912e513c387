"""Copies of stored messages, for sends by their topic's message type.

- DELAY: with a delivery time in the past, so that the broker delivers at once.
- FIFO: to the queue of the message group; a message without one is its own group.
- NORMAL: without the message group and the priority.
- PRIORITY: without the message group; a message without a priority gets 0.
- TRANSACTION: prepared as a half message of `producer_group`, then committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rocketpy_broker.messages.outgoing_message import OutgoingMessage
from rocketpy_broker.messages.stored import Message
from rocketpy_proto.model import DELAY, FIFO, NORMAL, retry_topic
from rocketpy_proto.model import PRIORITY as PRIORITY_TYPE
from rocketpy_proto.record import java_hash
from rocketpy_proto.record.properties import (
    PRIORITY,
    PRODUCER_GROUP,
    RETRY_TOPIC,
    SHARDING_KEY,
    UNIQ_KEY,
)

# The producer group of a transaction if the message has none.
PRODUCER_GROUP_DEFAULT = "rocketpy-resend"


@dataclass(frozen=True, slots=True)
class TopicRules:
    """The rules of a topic for copies: its message type, None for any, and its write queues."""

    message_type: str | None
    write_queue_nums: int

    def copy(self, message: Message, properties: Mapping[str, str]) -> OutgoingMessage:
        """Returns a copy of a message with these properties."""
        outgoing = OutgoingMessage(message.body, message.tags, message.keys, properties)
        if self.message_type == DELAY:
            return replace(outgoing, deliver_at=message.store_timestamp)
        if self.message_type == FIFO:
            group = properties.get(SHARDING_KEY) or message.msg_id
            queue_id = abs(java_hash(group)) % self.write_queue_nums
            ordered = {**properties, SHARDING_KEY: group}
            return replace(outgoing, properties=ordered, queue_id=queue_id)
        if self.message_type in {NORMAL, PRIORITY_TYPE}:
            without = {name: value for name, value in properties.items() if name != SHARDING_KEY}
            priority = without.pop(PRIORITY, "0")
            if self.message_type == PRIORITY_TYPE:
                without[PRIORITY] = priority
            return replace(outgoing, properties=without)
        return outgoing


def producer_group(message: Message) -> str:
    """Returns the producer group of a copy in a transaction."""
    return message.properties.get(PRODUCER_GROUP) or PRODUCER_GROUP_DEFAULT


def origin_topic(letter: Message) -> str | None:
    """Returns the topic of a dead letter's first send; None if the letter has none."""
    return letter.properties.get(RETRY_TOPIC)


def topic_of_copy(letter: Message, group: str) -> str:
    """Returns the topic of a dead letter's first send, or else the group's retry topic."""
    return origin_topic(letter) or retry_topic(group)


def properties_of_copy(letter: Message) -> dict[str, str]:
    """Returns the properties of a dead letter, with its unique id."""
    kept = dict(letter.properties)
    if letter.msg_id != letter.offset_msg_id:
        kept[UNIQ_KEY] = letter.msg_id
    return kept
