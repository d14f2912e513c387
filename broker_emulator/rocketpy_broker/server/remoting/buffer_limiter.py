"""A limit for the answers that peers have not read."""

from __future__ import annotations

from collections.abc import Collection

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.server.remoting.connection import RemotingConnection

# While all connections together have more than UNREAD_BYTES_MAX unread bytes, a connection gets no
# answer that gives it more than LARGE_ANSWER_BYTES of them. The sum is SUM_MS old at most.
LARGE_ANSWER_BYTES, UNREAD_BYTES_MAX, SUM_MS = 65_536, 256 << 20, 10


class RemotingBufferLimiter:
    """The sum of unread bytes: answers are added to it, and at the limit it is measured again.

    So it costs nothing while peers read.
    """

    def __init__(self, connections: Collection[RemotingConnection], clock: Clock) -> None:
        """Takes in the collection in which a server keeps its open connections."""
        self._connections = connections
        self._clock = clock
        self._bytes, self._next_sum_ms = 0, 0.0

    def try_reserve(self, connection: RemotingConnection, size: int) -> bool:
        """Adds the size of an answer; False if the answer must not be sent."""
        self._bytes += size
        if self._bytes > UNREAD_BYTES_MAX:
            now_ms = self._clock.monotonic_ms()
            if now_ms >= self._next_sum_ms:
                self._bytes = size + sum(each.unread_bytes for each in self._connections)
                self._next_sum_ms = now_ms + SUM_MS
        is_full = self._bytes > UNREAD_BYTES_MAX
        return not is_full or connection.unread_bytes + size <= LARGE_ANSWER_BYTES
