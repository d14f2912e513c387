"""The processor time that one pass of the event loop takes, whatever else the machine does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class LoopPasses:
    """The passes of the loop during a block; `longest_ms` is the thread's time of the longest."""

    longest_ms = 0.0

    async def watch(self) -> None:
        """Measures each pass until it is cancelled."""
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest_ms, last = max(self.longest_ms, (now - last) * 1_000), now


@asynccontextmanager
async def loop_passes() -> AsyncIterator[LoopPasses]:
    """Yields the passes of the running loop, measured until the block's end."""
    passes = LoopPasses()
    watching = asyncio.ensure_future(passes.watch())
    await asyncio.sleep(0)
    try:
        yield passes
    finally:
        watching.cancel()
