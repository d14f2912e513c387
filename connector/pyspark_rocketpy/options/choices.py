"""What options let one choose from, by the names that are written. Holds no state."""

from __future__ import annotations

from enum import Enum


class Delivery(str, Enum):
    """What the sink promises."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    EFFECTIVELY_ONCE = "effectively-once"


class Allocation(str, Enum):
    """How queues are given to tasks, by RocketMQ's names of its strategies."""

    AVERAGELY = "averagely"
    CIRCLE = "circle"
    CONFIG = "config"
    MACHINE_ROOM = "machineRoom"


class FilterType(str, Enum):
    """What a filter's text is, by RocketMQ's names."""

    TAG = "TAG"
    SQL92 = "SQL92"


class TimestampStrategy(str, Enum):
    """What a queue without a message as young as a starting time does."""

    ERROR = "error"
    LATEST = "latest"
