"""Waits for a thread that writes a large block.

No other append is possible meanwhile: the store would wait for the thread and block the event loop.
So a task that appends on the event loop waits here first. It lets no other task run between this
wait and its append.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rocketpy_broker.runtime.clock import resolve


class LargeWrites:
    """The large writes of one store, one at a time, and their waiters."""

    def __init__(self) -> None:
        self.is_writing = False
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def waiting_count(self) -> int:
        """The number of waiting appends."""
        return len(self._waiting)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Marks the block as the time of a write; wakes the waiters at its end."""
        self.is_writing = True
        try:
            yield
        finally:
            self.is_writing = False
            while self._waiting:
                resolve(self._waiting.pop())

    def when_over(self, callback: Callable[[], None]) -> None:
        """Calls `callback` when the current write has ended."""
        self._waiting.append(asyncio.get_running_loop().create_future())
        self._waiting[-1].add_done_callback(lambda _: callback())

    async def over(self) -> None:
        """Waits until no thread writes."""
        while self.is_writing:
            self._waiting.append(asyncio.get_running_loop().create_future())
            await self._waiting[-1]
