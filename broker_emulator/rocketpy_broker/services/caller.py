"""The user of the running call, for services.

Requests that name a position in the log name no topic. Their services ask here, once they have
found the message. State: the user of each call, in its context.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol

from rocketpy_broker.errors import PermissionDeniedError


class Caller(Protocol):
    """A user with permissions."""

    def may_read(self, name: str) -> bool:
        """True if the user may read the messages of a topic."""

    def may_send(self, name: str) -> bool:
        """True if the user may send messages to a topic."""

    def may_see(self, group: str) -> bool:
        """True if the user may see a group's members, topics and lag."""


current: ContextVar[Caller | None] = ContextVar("caller", default=None)


def may_read(topic: str) -> bool:
    """True if the running call may read the topic's messages."""
    caller = current.get()
    return caller is None or caller.may_read(topic)


def may_see(group: str) -> bool:
    """True if the running call may see a group's members, topics and lag."""
    caller = current.get()
    return caller is None or caller.may_see(group)


def check_readable(topic: str) -> None:
    """Raises PermissionDeniedError unless the running call may read the topic's messages."""
    if not may_read(topic):
        raise PermissionDeniedError(
            "the message is of a topic that the user may not read; an admin grants permission SUB "
            "with `rocketpy user update`"
        )


def check_sendable(topic: str) -> None:
    """Raises PermissionDeniedError unless the running call may send messages to the topic."""
    caller = current.get()
    if caller is not None and not caller.may_send(topic):
        raise PermissionDeniedError(
            "the message is of a topic to which the user may not send; an admin grants permission "
            "PUB with `rocketpy user update`"
        )
