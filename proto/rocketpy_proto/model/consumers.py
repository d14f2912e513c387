"""Types of a group's consumption.

Source: ConsumeType, MessageModel and ConsumeFromWhere, docs/design/remoting.md section 2.8.
"""

from __future__ import annotations

from enum import Enum


class NamedEnum(Enum):
    """Base of Java's enumerations, which are read by a name in any case.

    Java also reads a member's number, its place in the class (`remoting.bodies.clients.named`).
    """

    @classmethod
    def _missing_(cls, value: object) -> NamedEnum | None:
        return cls.__members__.get(str(value).upper())


class ConsumeType(NamedEnum):
    """The kind of consumer: pull by the application, push by the client library, or pop."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(NamedEnum):
    """Delivery of messages: all to every member, or queues shared among members."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(NamedEnum):
    """Start position of a group without committed offsets; three are deprecated."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"

    @property
    def in_use(self) -> ConsumeFromWhere:
        """The value as Java's clients take it: the last offset for a deprecated one."""
        kept = {ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, ConsumeFromWhere.CONSUME_FROM_TIMESTAMP}
        return self if self in kept else ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
