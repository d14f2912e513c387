"""Enumerations of option values, by their names in options."""

from __future__ import annotations

from enum import Enum


class DeliveryGuarantee(str, Enum):
    """Delivery guarantees of the sink."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    EFFECTIVELY_ONCE = "effectively-once"


class Allocation(str, Enum):
    """Allocations of queues to tasks, by RocketMQ's names of its strategies."""

    AVERAGELY = "averagely"
    CIRCLE = "circle"
    CONFIG = "config"
    MACHINE_ROOM = "machineRoom"


class FilterType(str, Enum):
    """Kinds of a filter's text, by RocketMQ's names."""

    TAG = "TAG"
    SQL92 = "SQL92"


class TimestampStrategy(str, Enum):
    """Strategies for a queue without a message stored at or after its start time."""

    ERROR = "error"
    LATEST = "latest"
