"""A slave by hand: it reports, and reads frames of the log."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.support.broker.running_broker import RunningBroker

TIMEOUT_SECONDS = 60


class Frame(NamedTuple):
    """A physical offset and the log's bytes there; none in a heartbeat."""

    offset: int
    data: bytes


@dataclass
class Slave:
    """A connection to the port for slaves; `log` has what it has read since its first report."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    begin: int = -1
    log: bytearray = field(default_factory=bytearray)

    @property
    def end(self) -> int:
        return self.begin + len(self.log)

    def report(self, offset: int) -> None:
        self.writer.write(struct.pack(">q", offset))

    async def frame(self) -> Frame:
        return await asyncio.wait_for(self._frame(), TIMEOUT_SECONDS)

    async def _frame(self) -> Frame:
        offset, size = struct.unpack(">qi", await self.reader.readexactly(12))
        return Frame(offset, await self.reader.readexactly(size))

    async def read_until(self, end: int) -> None:
        """Appends frames until its log ends at `end`; they follow each other."""
        while self.begin < 0 or self.end < end:
            frame = await self.frame()
            if self.begin < 0:
                self.begin = frame.offset
            assert frame.offset == self.end
            self.log += frame.data
        assert self.end == end

    async def closed(self) -> bool:
        try:
            return await asyncio.wait_for(self.reader.read(), TIMEOUT_SECONDS) == b""
        except ConnectionResetError:
            return True


@asynccontextmanager
async def slave_of(running: RunningBroker, report: int | None = 0) -> AsyncIterator[Slave]:
    """Yields a connected slave that has sent its first report."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.ready.ha_port)
    slave = Slave(reader, writer)
    if report is not None:
        slave.report(report)
    try:
        yield slave
    finally:
        writer.close()


def log_of(running: RunningBroker) -> bytes:
    """Returns the files of a broker's log, one after the other, up to its end."""
    folder = running.broker.store.config.folder / "commitlog"
    positions = running.broker.store.positions()
    content = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
    return content[: positions.log_end - positions.log_begin]
