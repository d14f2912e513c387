"""Memory limits for the requests of running calls.

Limits are per connection and in total. A call is charged from the decoding of its request to its
end. A handler that keeps less than the request reports that. A connection above its limit gets
SYSTEM_BUSY; its running calls continue. Each connection has a share that other connections cannot
take. A connection without charged calls may keep one request of any size. State: charges, in memory
only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.shares import Shares
from rocketpy_proto.model.codes import ResponseCode

MIB = 1 << 20
CONNECTION_BYTES_MAX, TOTAL_BYTES_MAX = 64 * MIB, 256 * MIB
# Limit per connection when the total is reached: more than one request takes.
SHARE_BYTES = 16 * MIB
# Memory of the decoded parts of a request, as a multiple of their bytes. Beyond PARTS_BYTES_MAX a
# request has few parts, and its bytes are records.
PARTS_FACTOR = 8
PARTS_BYTES_MAX = MIB


class KeptBytesError(BrokerError):
    """A call refused because running calls of its connection keep too much memory."""

    code = ResponseCode.SYSTEM_BUSY

    def __init__(self, kept: int, bytes_max: int) -> None:
        super().__init__(
            f"the call was refused: calls of this connection keep {kept} bytes, limit {bytes_max}. "
            "Call again when one of them has ended"
        )


def decoded_bytes(size: int) -> int:
    """Returns the maximum memory of a decoded request of `size` bytes."""
    return size + (PARTS_FACTOR - 1) * min(size, PARTS_BYTES_MAX)


class CallMemory:
    """The charges of all running calls."""

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
        """Adds `size` bytes to the charge of a connection. Raises KeptBytesError."""
        mine = self.shares.of(connection)
        bytes_max = self.shares.connection_max
        if self.shares.total + size > self._total_max:
            bytes_max = min(self._share, bytes_max)
        if size > 0 and mine and mine + size > bytes_max:
            raise KeptBytesError(mine, bytes_max)
        self.shares.change(connection, size)

    @contextmanager
    def call(self, connection: str) -> Iterator[Charge]:
        """Charges a call until the block ends; `keep` finds the charge in the call's task."""
        charge = Charge(self, connection)
        try:
            with charge.running():
                yield charge
        finally:
            charge.set(0)


class Charge:
    """The bytes that one call keeps."""

    __slots__ = ("_memory", "connection", "size")

    def __init__(self, memory: CallMemory, connection: str) -> None:
        self._memory = memory
        self.connection = connection
        self.size = 0

    def set(self, size: int) -> None:
        """Replaces the charged bytes by `size`. Raises KeptBytesError."""
        if size != self.size:
            self._memory.change(self.connection, size - self.size)
            self.size = size

    @contextmanager
    def running(self) -> Iterator[None]:
        """Makes this the charge that `keep` finds in the block, and in tasks that it starts."""
        token = _running.set(self)
        try:
            yield
        finally:
            _running.reset(token)


_running: ContextVar[Charge | None] = ContextVar("charge", default=None)


def keep(size: int) -> None:
    """Charges the running call `size` bytes from now on. Raises KeptBytesError.

    The broker's own tasks are not charged.
    """
    charge = _running.get()
    if charge is not None:
        charge.set(size)
