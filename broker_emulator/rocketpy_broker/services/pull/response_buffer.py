"""Bytes of answers to pulls that their clients have not taken yet, bounded in all.

An answer counts from when it is handed to the server until the call asks for the next one, which is
when the client has taken nearly all of it. gRPC keeps it twice meanwhile. So clients that stall
cost memory; the more they do, the smaller answers get, for all, and a client that reads gets as
many more. At the bound only small answers find room, and one of each connection that leaves nothing
unread. No call is ended: gRPC would keep its bytes all the same. Lives in memory.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.response_code import ResponseCode
from rocketpy_broker.runtime.scheduler import connection
from rocketpy_broker.store.values import ReadLimits

MIB = 1 << 20
SMALL_BYTES_MAX = 64 << 10
# Beyond so many unread bytes an answer has at most so many.
STEPS = ((32 * MIB, SMALL_BYTES_MAX), (16 * MIB, 512 << 10))
UNREAD_BYTES_MAX = 64 * MIB
# Small answers, and the only ones of their connections, find room a little longer.
UNREAD_BYTES_LIMIT = 96 * MIB


class ResponseBufferFullError(BrokerError):
    """Answers that clients do not read take all the memory that they may."""

    code = ResponseCode.SYSTEM_BUSY

    def __init__(self, unread_bytes: int, bytes_max: int) -> None:
        super().__init__(
            f"{unread_bytes} bytes of answers are not read by their clients, the limit is "
            f"{bytes_max}; pull again later"
        )


class ResponseBufferLimiter:
    """What is handed out and not taken, of all calls."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self.total = 0

    def __len__(self) -> int:
        return self._counts.total()

    def limits(self, limits: ReadLimits) -> ReadLimits:
        """`limits`, or tighter ones where much is unread."""
        for total, bytes_max in STEPS:
            if self.total >= total:
                return replace(
                    limits,
                    bytes_max=min(limits.bytes_max, bytes_max),
                    cold_bytes_max=min(limits.cold_bytes_max, bytes_max),
                )
        return limits

    @contextlib.contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """While an answer is with the server. Raises ResponseBufferFullError."""
        whose = connection.get()
        bytes_max = UNREAD_BYTES_MAX
        if size <= SMALL_BYTES_MAX or whose not in self._counts:
            bytes_max = UNREAD_BYTES_LIMIT
        if self.total >= bytes_max:
            raise ResponseBufferFullError(self.total, bytes_max)
        self._counts[whose] += 1
        self.total += size
        try:
            yield
        finally:
            self.total -= size
            self._counts[whose] -= 1
            if not self._counts[whose]:
                del self._counts[whose]
