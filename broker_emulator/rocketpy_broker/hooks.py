"""Hooks: code of installed packages around sends and pulls.

A package registers a hook as an entry point of the group `rocketpy_broker.hooks`. The entry point
is a class, or a function without parameters, that returns a `Hook`. The broker calls hooks in the
order of their entry points' names, on its event loop. So a hook must return at once and leave slow
work to a thread. An error of a hook is counted, and changes nothing. The log has a hook's first
errors and a sample of the later ones. Only `HookAbortError` from `before_send` refuses the send.
Source: docs/design/broker_behaviour.md section 1.8.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.errors import BrokerError
from rocketpy_proto.model.codes import ResponseCode

ENTRY_POINT_GROUP = "rocketpy_broker.hooks"


@dataclass(frozen=True, slots=True)
class SendContext:
    """A block of messages as a client sent it; queue id -1: any queue."""

    topic: str
    queue_id: int
    record_count: int
    record_bytes: int


@dataclass(frozen=True, slots=True)
class SendOutcome:
    """The outcome of a send. Offsets are the first message's, or -1 if nothing was stored."""

    code: ResponseCode
    remark: str
    queue_id: int
    queue_offset: int
    physical_offset: int


@dataclass(frozen=True, slots=True)
class ConsumeContext:
    """A pull of a consumer group from an offset of a queue. The group may be empty."""

    consumer_group: str
    topic: str
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class ConsumeOutcome:
    """One answer to a pull, which may have several. `status` is RocketMQ's GetMessageStatus."""

    status: str
    record_count: int
    record_bytes: int
    next_offset: int


class HookAbortError(BrokerError):
    """Error that refuses a send in `before_send`; the client gets its code and remark."""

    def __init__(self, remark: str, code: ResponseCode = ResponseCode.NO_PERMISSION) -> None:
        super().__init__(remark)
        self.code = code


class Hook:
    """A hook that does nothing. Subclasses override methods and set `hook_name` for the log."""

    hook_name = "unnamed"

    def before_send(self, context: SendContext) -> None:
        """Runs before the broker checks a block. May raise HookAbortError."""

    def after_send(self, context: SendContext, outcome: SendOutcome) -> None:
        """Runs after the store took or refused a block; the acknowledgement may follow later."""

    def before_consume(self, context: ConsumeContext) -> None:
        """Runs after a pull was checked, before its answer."""

    def after_consume(self, context: ConsumeContext, outcome: ConsumeOutcome) -> None:
        """Runs when an answer to a pull is about to be sent."""
