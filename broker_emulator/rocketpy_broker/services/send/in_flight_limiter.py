"""Limits for the bytes of large blocks in flight.

There is a total limit and a limit per connection.
A received large block waits for room, and its stream is not read before the block is stored. So
gRPC's flow control slows the sender, and each stream has at most one waiting block. Connections get
room in turn, regardless of their blocks' sizes. Small blocks need no room. A cancelled task frees
its room.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rocketpy_broker.runtime.clock import resolve

# Blocks up to this size are small: checked and stored in well under a millisecond.
SMALL_BYTES_MAX = 64 << 10
TOTAL_BYTES_MAX, CONNECTION_BYTES_MAX = 32 << 20, 16 << 20


class InFlightLimiter:
    """The bytes in flight, and the blocks that wait for room."""

    def __init__(
        self, total_max: int = TOTAL_BYTES_MAX, connection_max: int = CONNECTION_BYTES_MAX
    ) -> None:
        self._total_max = total_max
        self._connection_max = connection_max
        self.total = 0
        self._by_connection: Counter[str] = Counter()
        # The connection that got room last is at the end.
        self._waiting: OrderedDict[str, deque[tuple[int, asyncio.Future[None]]]] = OrderedDict()

    @property
    def waiting_count(self) -> int:
        """The number of blocks that wait for room."""
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def room(self, connection: str, size: int) -> AsyncIterator[None]:
        """Waits for room and takes it for the time of the block.

        A single block in flight may have any size.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(connection, deque()).append((size, future))
        try:
            self._let_in()
            await future
            yield
        finally:
            if future.done() and not future.cancelled():
                self._change(connection, -size)
            self._let_in()

    def _change(self, connection: str, size: int) -> None:
        self.total += size
        self._by_connection[connection] += size
        if not self._by_connection[connection]:
            del self._by_connection[connection]

    def _fits_connection(self, connection: str, size: int) -> bool:
        mine = self._by_connection[connection]
        return not mine or mine + size <= self._connection_max

    def _let_in(self) -> None:
        """Admits all blocks that fit, one of each connection in turn."""
        while self._let_in_once():
            pass

    def _let_in_once(self) -> bool:
        let_in = False
        for connection in list(self._waiting):
            waiting = self._waiting[connection]
            while waiting and waiting[0][1].done():
                waiting.popleft()
            if waiting and self._fits_connection(connection, waiting[0][0]):
                if self.total and self.total + waiting[0][0] > self._total_max:
                    # The next block waits; smaller blocks that overtook it would take its room.
                    return let_in
                size, future = waiting.popleft()
                self._change(connection, size)
                resolve(future)
                self._waiting.move_to_end(connection)
                let_in = True
            if not waiting:
                del self._waiting[connection]
        return let_in
