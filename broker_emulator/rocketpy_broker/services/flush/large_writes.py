"""Whether a thread writes a large block now, and waiting until it has.

Nothing else can be appended meanwhile: the store would wait for the thread, and hold the event loop
as long as the disk takes. So whoever appends on the loop waits here first, and has no turn for
others between that and its append. Lives in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rocketpy_broker.runtime.clock import resolve


class LargeWrites:
    """Of one store; one at a time."""

    def __init__(self) -> None:
        self.is_writing = False
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def waiting_count(self) -> int:
        """How many appends wait."""
        return len(self._waiting)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Yields a thread writes for the time of the block."""
        self.is_writing = True
        try:
            yield
        finally:
            self.is_writing = False
            while self._waiting:
                resolve(self._waiting.pop())

    def when_over(self, callback: Callable[[], None]) -> None:
        """Calls back when the thread that writes now is done."""
        self._waiting.append(asyncio.get_running_loop().create_future())
        self._waiting[-1].add_done_callback(lambda _: callback())

    async def over(self) -> None:
        """Returns when no thread writes."""
        while self.is_writing:
            self._waiting.append(asyncio.get_running_loop().create_future())
            await self._waiting[-1]
