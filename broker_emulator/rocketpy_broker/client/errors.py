"""Errors of the client.

BrokerError
└── ClientError
    ├── UnreachableError          no answer from the endpoint in time
    ├── CallFailedError           a failed call, or an endpoint of another service
    ├── RefusedError              the broker's remark and code
    ├── MessageIllegalError       a message that cannot be sent, with its number
    ├── SendError                 only `sent_count` messages were sent
    ├── NotPassedError            a value that a forked process cannot pass on
    └── UnreadableError           an invalid broker answer
"""

from __future__ import annotations

from rocketpy_broker.errors import BrokerError
from rocketpy_proto import proxies
from rocketpy_proto.counts import counted
from rocketpy_proto.model.codes import ResponseCode


class ClientError(BrokerError):
    """Base of the client's errors."""


class UnreachableError(ClientError):
    """No broker answers at the endpoint in time; `reason` names a fault of TLS."""

    def __init__(self, endpoint: str, fault: str, reason: str | None = None) -> None:
        place = f"{endpoint}{proxies.proxy_note(endpoint)}"
        end = "; is it running?" if reason is None else f": {reason}"
        super().__init__(f"no broker answers at {place} ({fault}){end}")
        self.endpoint = endpoint
        self.reason = reason


class CallFailedError(ClientError):
    """The call failed: the answer is too large, or the endpoint is another service's."""

    def __init__(self, endpoint: str, fault: str, details: str) -> None:
        place = f"{endpoint}{proxies.proxy_note(endpoint)}"
        reason = f"the call to {place} failed ({fault}: {details})"
        if fault == "UNIMPLEMENTED":
            reason = f"{place} answers, but is not a rocketpy broker ({details})"
        super().__init__(reason)
        self.endpoint = endpoint


class RefusedError(ClientError):
    """The broker refused a request."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"{remark} (code {code})")
        self.response_code = code

    @property
    def is_missing_topic(self) -> bool:
        """True if the topic does not exist."""
        return self.response_code == ResponseCode.TOPIC_NOT_EXIST


class MessageIllegalError(ClientError):
    """A message is illegal for the broker. `number` counts from 0."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"message {number}: {reason}")
        self.number = number
        self.reason = reason


class SendError(ClientError):
    """A send failed; `sent_count` messages were acknowledged before."""

    def __init__(self, reason: ClientError, sent_count: int) -> None:
        super().__init__(
            f"{reason.remark}; {counted(sent_count, 'message was', 'messages were')} sent"
        )
        self.sent_count = sent_count


class NotPassedError(ClientError):
    """A forked process has a value that its helper process cannot get."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(
            f"a forked process cannot pass this on to its helper process: {reason}; "
            "give plain values"
        )


class UnreadableError(ClientError):
    """A broker answer is invalid."""
