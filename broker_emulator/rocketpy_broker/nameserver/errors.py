"""Errors of the name server, which answers with their codes and texts."""

from __future__ import annotations

from rocketpy_broker.errors import BrokerError
from rocketpy_proto.model.codes import ResponseCode


class RegistrationError(BrokerError):
    """A registration that the name server refuses; nothing of it was stored."""

    code = ResponseCode.SYSTEM_ERROR


class TooManyEntriesError(BrokerError):
    """A registration beyond the limits of the name server."""

    code = ResponseCode.SYSTEM_BUSY

    def __init__(self, kind: str, bytes_max: int) -> None:
        super().__init__(
            f"too many {kind} are registered, limit {bytes_max} bytes; delete unused ones"
        )


class NoRouteError(BrokerError):
    """A topic that no broker has registered."""

    code = ResponseCode.TOPIC_NOT_EXIST

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"No topic route info in name server for the topic: {topic:.200}; create the topic, or "
            "wait for its broker to register"
        )
