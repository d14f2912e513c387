"""RocketMQ's names of statistics, with their kind of row and column.

RocketMQ keeps latencies by queue; this broker keeps them by topic, and by topic and group.
Source: BrokerStatsManager, docs/design/broker_behaviour.md section 9.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

NUMS, SIZE, LATENCY = "nums", "size", "latency_ms"


class Kind(IntEnum):
    """The kind of a row; an integer, since it is hashed for each block."""

    BROKER_PUT = 0
    BROKER_PUT_WITHOUT_SYSTEM = 1
    BROKER_GET = 2
    BROKER_GET_WITHOUT_SYSTEM = 3
    TOPIC_PUT = 4
    QUEUE_PUT = 5
    GROUP_GET = 6
    SENT_BACK = 7
    DEAD_LETTERS = 8
    QUEUE_GET = 9
    CONSUMER_REGISTER = 10
    PRODUCER_REGISTER = 11
    # A group's lag as of its last pull; a gauge, not a sum.
    GROUP_GET_FALL = 12


class Key(NamedTuple):
    """The key of a row; `topic` is the cluster name in rows of the whole broker."""

    kind: Kind
    topic: str
    group: str = ""
    queue_id: int = -1

    @property
    def text(self) -> str:
        """RocketMQ's text: parts joined by @; the queue is first in GROUP_GET_FALL keys."""
        queue = [] if self.queue_id < 0 else [str(self.queue_id)]
        group = [self.group] if self.group else []
        if self.kind is Kind.GROUP_GET_FALL:
            return "@".join([*queue, self.topic, *group])
        return "@".join([self.topic, *queue, *group])

    @classmethod
    def parse(cls, kind: Kind, text: str) -> Key | None:
        """Returns the key of a kind with this `text`; None if it is no key of that kind."""
        topic, *parts = text.split("@")
        if kind is Kind.GROUP_GET_FALL and parts:
            topic, parts[0] = parts[0], topic
        queue_id = -1
        if kind in _WITH_QUEUE:
            number = parts.pop(0) if parts else ""
            if not (number.isascii() and number.isdecimal() and len(number) <= _QUEUE_DIGITS_MAX):
                return None
            queue_id = int(number)
        group = parts.pop(0) if parts else ""
        return None if parts else cls(kind, topic, group, queue_id)


_WITH_QUEUE = frozenset({Kind.QUEUE_PUT, Kind.QUEUE_GET, Kind.GROUP_GET_FALL})
_QUEUE_DIGITS_MAX = 10


@dataclass(frozen=True, slots=True)
class Name:
    """One of RocketMQ's statistics: a column of a kind of row."""

    name: str
    kind: Kind
    column: str


NAMES = (
    Name("BROKER_PUT_NUMS", Kind.BROKER_PUT, NUMS),
    Name("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", Kind.BROKER_PUT_WITHOUT_SYSTEM, NUMS),
    Name("BROKER_GET_NUMS", Kind.BROKER_GET, NUMS),
    Name("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", Kind.BROKER_GET_WITHOUT_SYSTEM, NUMS),
    Name("TOPIC_PUT_NUMS", Kind.TOPIC_PUT, NUMS),
    Name("TOPIC_PUT_SIZE", Kind.TOPIC_PUT, SIZE),
    Name("TOPIC_PUT_LATENCY", Kind.TOPIC_PUT, LATENCY),
    Name("QUEUE_PUT_NUMS", Kind.QUEUE_PUT, NUMS),
    Name("QUEUE_PUT_SIZE", Kind.QUEUE_PUT, SIZE),
    Name("GROUP_GET_NUMS", Kind.GROUP_GET, NUMS),
    Name("GROUP_GET_SIZE", Kind.GROUP_GET, SIZE),
    Name("GROUP_GET_LATENCY", Kind.GROUP_GET, LATENCY),
    Name("GROUP_GET_FALL_SIZE", Kind.GROUP_GET_FALL, SIZE),
    Name("GROUP_GET_FALL_TIME", Kind.GROUP_GET_FALL, LATENCY),
    Name("QUEUE_GET_NUMS", Kind.QUEUE_GET, NUMS),
    Name("QUEUE_GET_SIZE", Kind.QUEUE_GET, SIZE),
    Name("SNDBCK_PUT_NUMS", Kind.SENT_BACK, NUMS),
    Name("SNDBCK2DLQ_TIMES", Kind.DEAD_LETTERS, NUMS),
    Name("CONSUMER_REGISTER_TIME", Kind.CONSUMER_REGISTER, LATENCY),
    Name("PRODUCER_REGISTER_TIME", Kind.PRODUCER_REGISTER, LATENCY),
)
BY_NAME = {name.name: name for name in NAMES}
BROKER_KINDS = frozenset(
    kind for kind in Kind if kind.name.startswith("BROKER_") or kind.name.endswith("_REGISTER")
)
