"""The response buffer: a limit for unread bytes of answers to pulls.

An answer counts from its handover to gRPC until the call requests the next one. The client has then
read nearly all of it. gRPC keeps it twice meanwhile, so stalled clients cost memory. More unread
bytes make all answers smaller, see STEPS; a client that reads gets more of them. From
UNREAD_BYTES_MAX on an answer must be small, or the only unread one of its connection. From
UNREAD_BYTES_LIMIT on every answer is refused. No call is ended: gRPC would keep its bytes anyway.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.scheduler import connection
from rocketpy_broker.store.values import ReadLimits
from rocketpy_proto.model.codes import ResponseCode

MIB = 1 << 20
SMALL_BYTES_MAX = 64 << 10
# Pairs of a total of unread bytes and the largest answer from that total on.
STEPS = ((32 * MIB, SMALL_BYTES_MAX), (16 * MIB, 512 << 10))
UNREAD_BYTES_MAX = 64 * MIB
# The limit for small answers, and for the only answer of a connection.
UNREAD_BYTES_LIMIT = 96 * MIB


class ResponseBufferFullError(BrokerError):
    """A full response buffer: clients do not read their answers."""

    code = ResponseCode.SYSTEM_BUSY

    def __init__(self, unread_bytes: int, bytes_max: int) -> None:
        super().__init__(
            f"clients have not read {unread_bytes} bytes of answers, limit {bytes_max}. Pull "
            "again later"
        )


class ResponseBufferLimiter:
    """The count of unread answers and bytes of all calls."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self.total = 0

    def __len__(self) -> int:
        return self._counts.total()

    def limits(self, limits: ReadLimits) -> ReadLimits:
        """Returns `limits`, or smaller ones for many unread bytes."""
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
        """Reserves `size` bytes until the `with` block ends. Raises ResponseBufferFullError."""
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
