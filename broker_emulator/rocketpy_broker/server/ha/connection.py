"""A master's connection to a slave, for reports and log bytes.

A report is the end of the slave's log, an int64. A frame is the physical offset (int64), the number
of bytes (int32) and the bytes; one without bytes is a heartbeat. A frame may end within a record,
but never crosses a segment's end. The first report chooses the start; 0 means the last segment.
After that the last complete report counts. With SYNC_FLUSH slaves get only bytes on this broker's
disk. So no slave is ahead of this broker after a power cut.
Source: DefaultHAConnection, docs/design/cluster.md section 4.1.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import cast

from rocketpy_broker.config import Replication
from rocketpy_broker.errors import LogOffsetError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.replication.slaves import Slave, SlaveTable
from rocketpy_broker.store.message_store import MessageStore

REPORT = struct.Struct(">q")
FRAME = struct.Struct(">qi")
# haSendHeartbeatInterval and haHousekeepingInterval.
HEARTBEAT_MS, IDLE_MS_MAX = 5_000, 20_000
SECOND_MS = 1_000


class SlaveConnection(asyncio.Protocol):
    """A connection; `run` sends to the slave, and is cancelled when the connection is lost."""

    def __init__(
        self,
        store: MessageStore,
        slaves: SlaveTable,
        config: Replication,
        clock: Clock,
        closed: Callable[[SlaveConnection, str], None],
    ) -> None:
        """Takes in `closed` the listener of a lost connection.

        It gets the reason if this side closed the connection, and else an empty text.
        """
        self._store = store
        self._slaves = slaves
        self._config = config
        self._clock = clock
        self._closed = closed
        self._transport: asyncio.Transport | None = None
        self._wake = asyncio.Event()
        self._unread = b""
        self._reason = ""
        self._is_paused = False
        self._read_ms = self._written_ms = clock.monotonic_ms()
        self._second_ms, self._second_bytes = 0.0, 0
        self.address = ""
        self.slave: Slave | None = None

    # --- Events ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._config.batch_bytes)
        host, port = transport.get_extra_info("peername")[:2]
        self.address = f"{host}:{port}"

    def connection_lost(self, _error: Exception | None) -> None:
        """Removes the slave."""
        self._transport = None
        if self.slave is not None:
            self._slaves.left(self.slave)
        self._closed(self, self._reason)

    def data_received(self, data: bytes) -> None:
        """Takes the last complete report."""
        received = self._unread + data
        whole = len(received) - len(received) % REPORT.size
        self._unread = received[whole:]
        if whole:
            self._read_ms = self._clock.monotonic_ms()
            self._reported(*REPORT.unpack_from(received, whole - REPORT.size))

    def pause_writing(self) -> None:
        """Pauses: the slave reads slowly."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Resumes."""
        self._is_paused = False
        self._wake.set()

    def tick(self) -> None:
        """Closes a silent connection, and lets `run` look at the time; called each second."""
        if self._clock.monotonic_ms() - self._read_ms > IDLE_MS_MAX:
            self.close(f"it has sent no report for {IDLE_MS_MAX // SECOND_MS} s")
        self._wake.set()

    def wake(self) -> None:
        """Lets `run` look at the log's end."""
        self._wake.set()

    def close(self, reason: str) -> None:
        """Closes the connection at once."""
        if self._transport is not None:
            self._reason = reason
            self._transport.abort()

    # --- Reports ---

    def _reported(self, offset: int) -> None:
        positions = self._store.positions()
        if not 0 <= offset <= positions.log_end:
            self.close(
                f"a slave reports offset {offset}, and this log ends at {positions.log_end}: the "
                "slave has another log. Start it with an empty store"
            )
        elif self.slave is not None and offset > self.slave.next_offset:
            self.close(
                f"a slave reports offset {offset}, and has got the log up to "
                f"{self.slave.next_offset}: the slave has another log. Start it with an empty store"
            )
        elif self.slave is not None:
            self._slaves.reported(self.slave, offset)
        elif 0 < offset < positions.log_begin:
            self.close(
                f"a slave's log ends at {offset}, and this log begins at {positions.log_begin}. "
                "Start the slave with an empty store"
            )
        else:
            begin = offset or self._store.last_segment_begin
            self.slave = Slave(self.address, offset, begin)
            self._slaves.joined(self.slave)
        self._wake.set()

    # --- Frames ---

    async def run(self) -> None:
        """Sends the bytes that the slave lacks, and heartbeats, until cancelled."""
        while True:
            self._wake.clear()
            piece = self._next_piece()
            if piece is None:
                await self._wake.wait()
                continue
            # Clients' calls have their turns, too.
            await take_slot("ha")
            self._send(piece)

    def _next_piece(self) -> memoryview | None:
        """Returns the bytes of the next frame; None if nothing is to be sent now."""
        slave = self.slave
        if slave is None or self._is_paused or self._transport is None:
            return None
        try:
            size_max = self._size_max()
            piece = self._store.log_piece(slave.next_offset, size_max)
        except LogOffsetError as error:
            self.close(f"{error.remark}: the slave was too slow. Start it with an empty store")
            return None
        is_due = self._clock.monotonic_ms() - self._written_ms > HEARTBEAT_MS
        return piece if len(piece) or (size_max and is_due) else None

    def _size_max(self) -> int:
        """Returns the largest size of a frame now, by the limit of bytes per second."""
        limit = self._config.bytes_per_second_max
        if limit is None:
            return self._config.batch_bytes
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._second_ms >= SECOND_MS:
            self._second_ms, self._second_bytes = now_ms, 0
        return max(min(self._config.batch_bytes, limit - self._second_bytes), 0)

    def _send(self, piece: memoryview) -> None:
        slave = self.slave
        if self._transport is None or slave is None:
            return
        self._transport.write(FRAME.pack(slave.next_offset, len(piece)))
        self._transport.write(piece)
        slave.next_offset += len(piece)
        slave.sent_bytes += len(piece)
        self._second_bytes += len(piece)
        self._written_ms = self._clock.monotonic_ms()
