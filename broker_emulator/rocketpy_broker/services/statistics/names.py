"""RocketMQ's names of statistics, and in which column of which kind of row they are. No state.

Where RocketMQ keeps latencies by queue, this broker keeps them by topic.
Source: BrokerStatsManager, spec/broker_behaviour.md section 9.5; row S13.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

NUMS, SIZE, LATENCY = "nums", "size", "latency_ms"


class Kind(IntEnum):
    """What a row counts; an integer, since it is hashed for each block."""

    BROKER_PUT = 0
    BROKER_PUT_WITHOUT_SYSTEM = 1
    BROKER_GET = 2
    BROKER_GET_WITHOUT_SYSTEM = 3
    TOPIC_PUT = 4
    QUEUE_PUT = 5
    GROUP_GET = 6
    SENT_BACK = 7
    DEAD_LETTERS = 8


class Key(NamedTuple):
    """A row. `topic` is the cluster of rows about the broker; `part` is a group or a queue id."""

    kind: Kind
    topic: str
    part: str = ""

    @property
    def text(self) -> str:
        """As RocketMQ writes it: the topic, topic@group, or topic@queueId."""
        return f"{self.topic}@{self.part}" if self.part else self.topic


@dataclass(frozen=True, slots=True)
class Name:
    """One of RocketMQ's items: a column of a kind of row."""

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
    Name("SNDBCK_PUT_NUMS", Kind.SENT_BACK, NUMS),
    Name("SNDBCK2DLQ_TIMES", Kind.DEAD_LETTERS, NUMS),
)
BY_NAME = {name.name: name for name in NAMES}
BROKER_KINDS = frozenset(
    {
        Kind.BROKER_PUT,
        Kind.BROKER_PUT_WITHOUT_SYSTEM,
        Kind.BROKER_GET,
        Kind.BROKER_GET_WITHOUT_SYSTEM,
    }
)
GROUP_KINDS = frozenset({Kind.GROUP_GET, Kind.SENT_BACK, Kind.DEAD_LETTERS})
