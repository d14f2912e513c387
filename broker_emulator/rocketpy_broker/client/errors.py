"""Errors of the client. Holds no state.

BrokerError
└── ClientError
    ├── UnreachableError          nobody answers at the endpoint, or not in time
    ├── CallFailedError           somebody answers, but not as a rocketpy broker does
    ├── RefusedError              the broker's own words, with its code
    ├── MessageIllegalError       a message that cannot be sent: its number; nothing was sent
    ├── SendError                 the broker took only some of the messages: sent_count
    └── UnreadableError           an answer that holds no messages
"""

from __future__ import annotations

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.response_code import ResponseCode
from rocketpy_proto import proxies


class ClientError(BrokerError):
    """Base of what a client meets."""


class UnreachableError(ClientError):
    """No broker at the endpoint, or none that answers in time."""

    def __init__(self, endpoint: str, fault: str) -> None:
        place = f"{endpoint}{proxies.way_to(endpoint)}"
        super().__init__(f"no broker answers at {place} ({fault}); is it running?")
        self.endpoint = endpoint


class CallFailedError(ClientError):
    """The call itself failed: an answer that is too large, or another service at the endpoint."""

    def __init__(self, endpoint: str, fault: str, details: str) -> None:
        place = f"{endpoint}{proxies.way_to(endpoint)}"
        reason = f"the call to {place} failed ({fault}: {details})"
        if fault == "UNIMPLEMENTED":
            reason = f"{place} answers, but is no rocketpy broker ({details})"
        super().__init__(reason)
        self.endpoint = endpoint


class RefusedError(ClientError):
    """The broker said no."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"{remark} (code {code})")
        self.response_code = code

    @property
    def is_missing_topic(self) -> bool:
        """True if the topic does not exist."""
        return self.response_code == ResponseCode.TOPIC_NOT_EXIST


class MessageIllegalError(ClientError):
    """A message that the broker would not take. `number` counts from 0."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"message {number}: {reason}")
        self.number = number
        self.reason = reason


class SendError(ClientError):
    """Not everything was sent; `sent_count` messages were acknowledged."""

    def __init__(self, reason: ClientError, sent_count: int) -> None:
        super().__init__(f"{reason.remark}; {sent_count} messages were sent")
        self.sent_count = sent_count


class UnreadableError(ClientError):
    """An answer whose bytes are no messages."""
