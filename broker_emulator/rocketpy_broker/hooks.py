"""Hooks: code of an installed package that the broker calls around sends and around consumption.

A package names a class, or a function without parameters that returns a `Hook`, as an entry point
of the group `rocketpy_broker.hooks`. The broker calls hooks in the order of their entry points'
names, on its event loop: a hook must return at once, and hand slow work to a thread. What a hook
raises is logged and counted, and changes nothing; only `HookAbortError` before a send refuses it.
Holds no state. Source: docs/design/broker_behaviour.md section 1.8.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.response_code import ResponseCode

ENTRY_POINT_GROUP = "rocketpy_broker.hooks"


@dataclass(frozen=True, slots=True)
class SendContext:
    """A block of messages that a client sends, as it was sent; queue id -1: any queue."""

    topic: str
    queue_id: int
    record_count: int
    record_bytes: int


@dataclass(frozen=True, slots=True)
class SendOutcome:
    """What became of it. Offsets are of the first message, and -1 where nothing was stored."""

    code: ResponseCode
    remark: str
    queue_id: int
    queue_offset: int
    physical_offset: int


@dataclass(frozen=True, slots=True)
class ConsumeContext:
    """A pull: who reads from where. The group may be empty."""

    consumer_group: str
    topic: str
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class ConsumeOutcome:
    """One answer to a pull; a long one has several. `status` is RocketMQ's GetMessageStatus."""

    status: str
    record_count: int
    record_bytes: int
    next_offset: int


class HookAbortError(BrokerError):
    """Refuses a send, from `before_send`, with a code and a remark for the client."""

    def __init__(self, remark: str, code: ResponseCode = ResponseCode.NO_PERMISSION) -> None:
        super().__init__(remark)
        self.code = code


class Hook:
    """A hook that does nothing; take what is needed, and give it a name for the log."""

    hook_name = "unnamed"

    def before_send(self, context: SendContext) -> None:
        """Before anything of a block is looked at. May raise HookAbortError."""

    def after_send(self, context: SendContext, outcome: SendOutcome) -> None:
        """A block was stored, or the store refused it; the acknowledgement may yet take time."""

    def before_consume(self, context: ConsumeContext) -> None:
        """A pull has been checked, and is to be answered."""

    def after_consume(self, context: ConsumeContext, outcome: ConsumeOutcome) -> None:
        """An answer to a pull is on its way."""
