"""Receipt handles: the texts that name one delivery of a popped message.

Blank-separated: the check point's first queue offset, pop time, invisible time, revive queue, topic
kind, broker, queue, queue offset. RocketMQ's proxies append the log offset. Source: ExtraInfoUtil,
docs/design/storage.md section 15.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from rocketpy_broker.errors import BrokerError, ParameterIllegalError
from rocketpy_proto.model import RETRY_PREFIX
from rocketpy_proto.model.codes import ResponseCode

# The revive queue id in receipts of ordered pops, which have no revive queue.
ORDERED = 999
SEPARATOR = " "
PARTS_MIN, PARTS_MAX = 6, 9
NUMBER = re.compile("[0-9]{1,18}")
# Times are numbers of up to 15 digits in a message's properties.
TIME_MS_MAX = 10**15 - 1


class TopicKind(str, Enum):
    """The topic of a delivery: the message's own, or a retry topic in either spelling."""

    NORMAL = "0"
    RETRY = "1"
    RETRY_V2 = "2"


class ReceiptIllegalError(BrokerError):
    """A receipt that belongs to no delivery, or a queue or an offset that is not the receipt's."""

    code = ResponseCode.MESSAGE_ILLEGAL


class MessageGoneError(BrokerError):
    """The queue has no message at the offset of a receipt."""

    code = ResponseCode.NO_MESSAGE


@dataclass(frozen=True, slots=True)
class Receipt:
    """One delivery. `start_offset` is that of its check point, `offset` that of the message."""

    start_offset: int
    pop_ms: int
    invisible_ms: int
    revive_queue_id: int
    kind: TopicKind
    broker_name: str
    queue_id: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> Receipt:
        """Returns the receipt of a text; its last two parts are optional.

        Raises ParameterIllegalError.
        """
        parts = text.split(SEPARATOR)
        numbers = [*parts[:4], *parts[PARTS_MIN : PARTS_MAX - 1]]
        kind, broker_name = (*parts[4:PARTS_MIN], "", "")[:2]
        is_number = all(map(NUMBER.fullmatch, numbers))
        if not (PARTS_MIN <= len(parts) <= PARTS_MAX and is_number and kind in set(TopicKind)):
            accepted = "the POP_CK text of a popped message"
            raise ParameterIllegalError("extra_info", text, accepted)
        start, pop_ms, invisible_ms, revive_queue_id, *place = map(int, numbers)
        queue_id, offset = (*place, 0, start)[:2] if len(place) < 2 else place
        if pop_ms + invisible_ms > TIME_MS_MAX:
            raise ParameterIllegalError("extra_info", text, f"times up to {TIME_MS_MAX}")
        return cls(
            *(start, pop_ms, invisible_ms, revive_queue_id),
            *(TopicKind(kind), broker_name, queue_id, offset),
        )

    @property
    def visible_ms(self) -> int:
        """The time at which the message is visible again, wall time in ms."""
        return self.pop_ms + self.invisible_ms

    @property
    def is_ordered(self) -> bool:
        """True for the receipt of an ordered pop."""
        return self.revive_queue_id == ORDERED

    def __str__(self) -> str:
        numbers = self.start_offset, self.pop_ms, self.invisible_ms, self.revive_queue_id
        place = self.kind.value, self.broker_name, self.queue_id, self.offset
        return SEPARATOR.join(map(str, (*numbers, *place)))


def pop_retry_topic(group: str, topic: str) -> str:
    """Returns the topic for redeliveries of a topic's messages to a group that pops them."""
    return f"{RETRY_PREFIX}{group}_{topic}"


def real_topic(kind: TopicKind, group: str, topic: str) -> str:
    """Returns the topic from which a message was delivered. Raises ParameterIllegalError."""
    if kind is TopicKind.RETRY_V2:
        raise ParameterIllegalError("retry", kind.value, "0 or 1; this broker has no V2 topics")
    return topic if kind is TopicKind.NORMAL else pop_retry_topic(group, topic)


def kind_of(topic: str) -> TopicKind:
    """Returns the kind of a real topic."""
    return TopicKind.RETRY if topic.startswith(RETRY_PREFIX) else TopicKind.NORMAL
