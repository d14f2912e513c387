"""Memory that calls keep of their requests, bounded for each connection and in all.

A call is charged where its request is decoded, and until the call ends. A handler that keeps less
than the request reports that. A connection beyond its limit gets SYSTEM_BUSY; its running calls go
on. Each connection has a share that others cannot take, and one request of any size. Lives in
memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.response_code import ResponseCode
from rocketpy_broker.runtime.shares import Shares

MIB = 1 << 20
CONNECTION_BYTES_MAX, TOTAL_BYTES_MAX = 64 * MIB, 256 * MIB
# A connection may keep so much when the total is reached: more than one request takes.
SHARE_BYTES = 16 * MIB
# Parts of a request take so many times their bytes when they are decoded. A larger request has
# few parts: its bytes are records.
PARTS_FACTOR = 8
PARTS_BYTES_MAX = MIB


class KeptBytesError(BrokerError):
    """The running calls of a connection keep as much memory as they may."""

    code = ResponseCode.SYSTEM_BUSY

    def __init__(self, kept: int, bytes_max: int) -> None:
        super().__init__(
            f"the call was refused: calls of this connection keep {kept} bytes, limit {bytes_max}. "
            "Call again when one of them has ended"
        )


def decoded_bytes(size: int) -> int:
    """Returns the memory of a request with so many bytes, at most."""
    return size + (PARTS_FACTOR - 1) * min(size, PARTS_BYTES_MAX)


class CallMemory:
    """The charges of all calls."""

    def __init__(
        self,
        connection_max: int = CONNECTION_BYTES_MAX,
        total_max: int = TOTAL_BYTES_MAX,
        share: int = SHARE_BYTES,
    ) -> None:
        self.shares = Shares(connection_max)
        self._total_max = total_max
        self._share = share

    def change(self, connection: str, size: int) -> None:
        """Adds to the charge of a connection. Raises KeptBytesError."""
        mine = self.shares.of(connection)
        bytes_max = self.shares.connection_max
        if self.shares.total + size > self._total_max:
            bytes_max = min(self._share, bytes_max)
        if size > 0 and mine and mine + size > bytes_max:
            raise KeptBytesError(mine, bytes_max)
        self.shares.change(connection, size)

    @contextmanager
    def call(self, connection: str) -> Iterator[Charge]:
        """Charges a call until the block ends; the call's task finds the charge."""
        charge = Charge(self, connection)
        token = _running.set(charge)
        try:
            yield charge
        finally:
            _running.reset(token)
            charge.set(0)


class Charge:
    """The bytes that one call keeps."""

    __slots__ = ("_connection", "_memory", "size")

    def __init__(self, memory: CallMemory, connection: str) -> None:
        self._memory = memory
        self._connection = connection
        self.size = 0

    def set(self, size: int) -> None:
        """Charges so many bytes in place of those before. Raises KeptBytesError."""
        if size != self.size:
            self._memory.change(self._connection, size - self.size)
            self.size = size


_running: ContextVar[Charge | None] = ContextVar("charge", default=None)


def keep(size: int) -> None:
    """Reports that the running call keeps so many bytes from now on. Raises KeptBytesError.

    The broker's own tasks are charged nowhere.
    """
    charge = _running.get()
    if charge is not None:
        charge.set(size)
