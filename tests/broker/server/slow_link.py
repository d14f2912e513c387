"""A link that connections share: their data passes piece by piece, in turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress

PIECE_BYTES = 16_384


class SlowLink:
    """A link from a port of its own to a server; calls `passed` with the size of each piece."""

    def __init__(self, port: int, passed: Callable[[int], Awaitable[None]]) -> None:
        self._server_port = port
        self._passed = passed
        self._turns = asyncio.Lock()
        self._pumps: set[asyncio.Future[None]] = set()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[int]:
        """Yields the link's port."""
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0, limit=PIECE_BYTES)
        with closing(server):
            yield server.sockets[0].getsockname()[1]
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection("127.0.0.1", self._server_port)
        self._pumps.add(asyncio.ensure_future(self._pump(reader, requests)))
        self._pumps.add(asyncio.ensure_future(self._pump(answers, writer, is_slow=False)))

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_slow: bool = True
    ) -> None:
        with closing(writer), suppress(OSError):
            while piece := await reader.read(PIECE_BYTES):
                if is_slow:
                    async with self._turns:
                        await self._passed(len(piece))
                writer.write(piece)
                await writer.drain()
