"""Limits for streams of requests, in all and of one connection."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.shares import Shares
from rocketpy_proto.model.codes import ResponseCode


class TooManyCallsError(BrokerError):
    """A new call while the maximum of calls is running."""

    code = ResponseCode.SYSTEM_BUSY

    def __init__(self, calls_max: int, kind: str = "calls") -> None:
        super().__init__(f"too many {kind} are running, limit {calls_max}. Call again later")


class StreamLimits:
    """Limits for the streams of requests: each may hold an incomplete request of any size."""

    def __init__(self, total_max: int, connection_max: int) -> None:
        self._total_max = total_max
        self._shares = Shares(connection_max)

    @contextlib.contextmanager
    def stream(self, connection: str) -> Iterator[None]:
        """Counts a stream for the time of the block. Raises TooManyCallsError."""
        if self._shares.total >= self._total_max:
            raise TooManyCallsError(self._total_max, "streams of requests")
        if not self._shares.has_space(connection):
            raise TooManyCallsError(
                self._shares.connection_max, "streams of requests of one connection"
            )
        self._shares.change(connection, 1)
        try:
            yield
        finally:
            self._shares.change(connection, -1)
