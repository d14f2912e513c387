"""Shares of connections in a bounded resource, such as memory."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf

from rocketpy_broker.runtime.clock import resolve


class Shares:
    """The sizes that connections take, by connection and in total.

    The broker's own work has no connection, so no limit but the total's.
    """

    def __init__(self, connection_max: int, total_max: float = inf) -> None:
        self.connection_max = connection_max
        self._total_max = total_max
        self.total = 0
        self._by_connection: Counter[str] = Counter()

    def of(self, connection: str) -> int:
        """Returns the size that a connection takes."""
        return self._by_connection[connection]

    def has_space(self, connection: str, size: int = 1) -> bool:
        """True if the connection may take `size` more."""
        if self.total + size > self._total_max:
            return False
        return not connection or self.of(connection) + size <= self.connection_max

    def change(self, connection: str, size: int) -> None:
        """Adds `size`, which may be negative, to the connection's share."""
        self.total += size
        self._by_connection[connection] += size
        if not self._by_connection[connection]:
            del self._by_connection[connection]


class InFlightLimiter:
    """A limit for work in flight, in total and by connection, and the tasks that wait for room.

    Connections get room in turn, regardless of their sizes. A cancelled task frees its room.
    """

    def __init__(self, total_max: int, connection_max: int) -> None:
        self._total_max = total_max
        self._shares = Shares(connection_max)
        # The connection that got room last is at the end.
        self._waiting: OrderedDict[str, deque[tuple[int, asyncio.Future[None]]]] = OrderedDict()

    @property
    def total(self) -> int:
        """The size of all that is in flight."""
        return self._shares.total

    @property
    def waiting_count(self) -> int:
        """The number of tasks that wait for room."""
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def acquire(self, connection: str, size: int) -> AsyncIterator[None]:
        """Waits for room and takes it for the time of the block.

        If nothing else is in flight, the size has no limit.
        """
        await self.take(connection, size)
        try:
            yield
        finally:
            self.free(connection, size)

    async def take(self, connection: str, size: int) -> None:
        """Waits for room, and takes it until `free`. A cancelled task takes none."""
        if not self._waiting and self._fits(connection, size):
            self._shares.change(connection, size)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(connection, deque()).append((size, future))
        self._admit()
        try:
            await future
        except asyncio.CancelledError:
            self.free(connection, 0 if future.cancelled() else size)
            raise

    def free(self, connection: str, size: int) -> None:
        """Frees room that a task has taken, and admits tasks that wait for it."""
        self._shares.change(connection, -size)
        if self._waiting:
            self._admit()

    def _fits(self, connection: str, size: int) -> bool:
        return self._fits_connection(connection, size) and self._fits_total(size)

    def _fits_total(self, size: int) -> bool:
        return not self.total or self.total + size <= self._total_max

    def _fits_connection(self, connection: str, size: int) -> bool:
        mine = self._shares.of(connection)
        return not mine or mine + size <= self._shares.connection_max

    def _admit(self) -> None:
        """Admits all tasks that fit, one of each connection in turn."""
        while self._admit_once():
            pass

    def _admit_once(self) -> bool:
        admit = False
        for connection in list(self._waiting):
            waiting = self._waiting[connection]
            while waiting and waiting[0][1].done():
                waiting.popleft()
            if waiting and self._fits_connection(connection, waiting[0][0]):
                if not self._fits_total(waiting[0][0]):
                    # The next task waits; smaller ones that overtook it would take its room.
                    return admit
                size, future = waiting.popleft()
                self._shares.change(connection, size)
                resolve(future)
                self._waiting.move_to_end(connection)
                admit = True
            if not waiting:
                del self._waiting[connection]
        return admit
