"""Which answers to a pull let read on. Holds no state."""

from __future__ import annotations

from rocketpy_broker.client.connection import check
from rocketpy_broker.response_code import ResponseCode
from rocketpy_proto.pull_wire import PullResponseParts

_ANSWERS = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


def check_pull(response: PullResponseParts) -> None:
    """Raises RefusedError where the broker would not let read."""
    if response.head.status.code not in _ANSWERS:
        check(response.head.status)
