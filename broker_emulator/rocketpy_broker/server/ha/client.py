"""A slave's connection to its master, for reports and log bytes.

The master may be slow, hostile or gone. So a frame that does not follow the one before ends the
connection, and so does a silence of IDLE_MS_MAX.
Source: DefaultHAClient, docs/design/cluster.md section 4.1.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import cast

from rocketpy_broker.errors import BrokerError, StoreError
from rocketpy_broker.runtime.clock import Clock, within
from rocketpy_broker.server.bind_address import system_text
from rocketpy_broker.server.ha.connection import FRAME, IDLE_MS_MAX, REPORT, SECOND_MS
from rocketpy_broker.services.slave.errors import MasterLostError

CONNECT_MS_MAX = 5_000
FRAME_BYTES_MAX = 64 << 20

Receive = Callable[[int, memoryview], None]


class HaClient(asyncio.Protocol):
    """An open connection; `receive` gets each piece of the log with its physical offset."""

    def __init__(self, receive: Receive, clock: Clock) -> None:
        self._receive = receive
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._arrived = asyncio.Event()
        self._header = b""
        self._left_bytes = 0
        self._read_ms = clock.monotonic_ms()
        self._failure: BrokerError | OSError | None = None
        # The offset of the next byte, once a report has asked for it.
        self.next_offset = -1
        # The end of the master's log, if its last frame was a heartbeat.
        self.heartbeat_end: int | None = None

    @classmethod
    async def connect(cls, host: str, port: int, receive: Receive, clock: Clock) -> HaClient:
        """Opens a connection. Raises MasterLostError."""
        loop = asyncio.get_running_loop()
        client = cls(receive, clock)
        try:
            await within(clock, CONNECT_MS_MAX, loop.create_connection(lambda: client, host, port))
        except (OSError, UnicodeError) as error:
            reason = system_text(error) if isinstance(error, OSError) else str(error)
            address = f"{host}:{port}"
            raise MasterLostError(f"its port for slaves, {address}, fails: {reason}") from error
        return client

    # --- Calls ---

    def begin(self, offset: int) -> None:
        """Asks for the log from `offset` on; 0 asks for the master's last segment."""
        self.next_offset = offset
        self.report(offset)

    def report(self, offset: int) -> None:
        """Reports the end of the slave's log."""
        if self._transport is not None:
            self._transport.write(REPORT.pack(offset))

    async def arrived(self, wait_ms: float) -> None:
        """Waits for bytes, a heartbeat or `wake`, at most `wait_ms`.

        Raises MasterLostError after the connection's end, or the error of `receive`.
        """
        with contextlib.suppress(TimeoutError):
            await within(self._clock, wait_ms, self._arrived.wait())
        self._arrived.clear()
        if self._clock.monotonic_ms() - self._read_ms > IDLE_MS_MAX:
            self._end(MasterLostError(f"it has been silent for {IDLE_MS_MAX // SECOND_MS} s"))
        if self._failure is not None:
            raise self._failure

    def wake(self) -> None:
        """Ends the wait of `arrived`."""
        self._arrived.set()

    def pause(self, *, is_paused: bool) -> None:
        """Reads nothing more from the connection, or reads again."""
        if self._transport is not None and self._transport.is_reading() == is_paused:
            if is_paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()
        if is_paused:
            # This is no silence of the master: it may send while the slave does not read.
            self._read_ms = self._clock.monotonic_ms()

    def close(self) -> None:
        """Ends the connection."""
        if self._transport is not None:
            self._transport.abort()

    # --- Events ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Ends the wait of `arrived`."""
        self._transport = None
        reason = f": {system_text(error)}" if isinstance(error, OSError) else ""
        self._end(MasterLostError(f"it has closed the connection{reason}"))

    def data_received(self, data: bytes) -> None:
        """Takes in frames, and parts of them."""
        self._read_ms = self._clock.monotonic_ms()
        rest = memoryview(data)
        while rest and self._failure is None:
            rest = self._body(rest) if self._left_bytes else self._frame(rest)
        self._arrived.set()

    def _frame(self, rest: memoryview) -> memoryview:
        missing = FRAME.size - len(self._header)
        self._header += bytes(rest[:missing])
        if len(self._header) == FRAME.size:
            offset, size = FRAME.unpack(self._header)
            self._header = b""
            if offset != self.next_offset:
                self._end(
                    MasterLostError(
                        f"it sends the log from offset {offset}, and the slave needs it from "
                        f"offset {self.next_offset}"
                    )
                )
            elif not 0 <= size <= FRAME_BYTES_MAX:
                self._end(
                    MasterLostError(
                        f"it sends a frame of {size} bytes, accepted is 0 to {FRAME_BYTES_MAX}"
                    )
                )
            self.heartbeat_end = None if size else offset
            self._left_bytes = size
        return rest[missing:]

    def _body(self, rest: memoryview) -> memoryview:
        piece = rest[: self._left_bytes]
        try:
            self._receive(self.next_offset, piece)
        except (StoreError, OSError) as error:
            self._end(error)
            return rest
        self.next_offset += len(piece)
        self._left_bytes -= len(piece)
        return rest[len(piece) :]

    def _end(self, failure: BrokerError | OSError) -> None:
        self._failure = self._failure or failure
        self._arrived.set()
        self.close()
