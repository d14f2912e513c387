"""The bulk work of bench_fairness: one kind, in its own process.

`python -m benchmarks.fairness_load PROTOCOL KIND ADDRESS`. It writes a line after its first answer,
or when its calls have been in flight for a while, and ends after a line of input.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import AsyncExitStack

from benchmarks.protocols.interface import Bulk, Connect
from benchmarks.protocols.table import SIDES

# Beside other bulk, one search may take minutes.
FIRST_ANSWER_SECONDS_MAX = 10.0
_done = 0


def _count() -> None:
    global _done  # noqa: PLW0603 (a program of one module)
    _done += 1


async def run(bulk: Bulk, connect: Connect, address: str) -> None:
    """Runs all works over a few connections until the input ends; then writes their count."""
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(connect(address)) for _ in range(bulk.connections)
        ]
        running = [
            asyncio.ensure_future(work(clients[number % len(clients)], number, _count))
            for number, work in enumerate(bulk.works())
        ]
        end = time.monotonic() + FIRST_ANSWER_SECONDS_MAX
        while not _done and time.monotonic() < end:
            await asyncio.wait(running, timeout=0.02, return_when=asyncio.FIRST_EXCEPTION)
            for one in running:
                if one.done():
                    one.result()
        sys.stdout.write("\n")
        sys.stdout.flush()
        before = _done
        await asyncio.to_thread(sys.stdin.readline)
        for one in running:
            if one.done():
                one.result()
        sys.stdout.write(f"{_done - before}\n")
        sys.stdout.flush()
        # Abandons the outstanding calls.
        os._exit(0)


if __name__ == "__main__":
    side = SIDES[sys.argv[1]]
    asyncio.run(run(side.bulk[sys.argv[2]], side.connect, sys.argv[3]))
