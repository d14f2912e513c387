"""The event loop of a broker's process: all that gRPC has ready is taken up in one pass.

gRPC wakes a loop by a byte in a socket for each step of a call that is done, and takes one byte in
a pass. What it has ready it takes up at the first of them; the passes that follow find nothing, and
cost a tenth of a send each. So the bytes that have come are taken together. Lives in memory.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from rocketpy_broker.runtime.clock import Clock, sleep

# Of gRPC's steps, that many are ready at most while the loop is at work.
WAKE_UPS_MAX = 4096
WATCH_INTERVAL_MS = 500


class BrokerEventLoop(asyncio.SelectorEventLoop):
    """asyncio's loop, but for how it is woken."""

    def add_reader(  # type: ignore[override]
        self, fd: Any, callback: Callable[..., Any], *args: Any
    ) -> None:
        """Calls back when `fd` can be read. Only gRPC gives a socket of this family."""
        if isinstance(fd, socket.socket) and fd.family is socket.AF_UNIX:
            super().add_reader(fd, _once_for_all(fd, callback), *args)
        else:
            super().add_reader(fd, callback, *args)


def _once_for_all(wake_ups: socket.socket, callback: Callable[..., Any]) -> Callable[..., Any]:
    """Leaves one byte to read, since `callback` waits for one."""

    def call_back(*args: Any) -> None:
        count = len(wake_ups.recv(WAKE_UPS_MAX, socket.MSG_PEEK))
        if count > 1:
            wake_ups.recv(count - 1)
        callback(*args)

    return call_back


def run(work: Coroutine[Any, Any, None]) -> None:
    """As `asyncio.run`, in such a loop; asyncio's own way to say so is newer than Python 3.10."""
    loop = BrokerEventLoop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(work)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        asyncio.set_event_loop(None)
        loop.close()


async def watch_loop(clock: Clock, on_late: Callable[[float], None]) -> None:
    """Calls `on_late` twice a second with the ms by which a callback came late, until cancelled."""
    while True:
        begin_ms = clock.monotonic_ms()
        await sleep(clock, WATCH_INTERVAL_MS)
        on_late(max(clock.monotonic_ms() - begin_ms - WATCH_INTERVAL_MS, 0))
