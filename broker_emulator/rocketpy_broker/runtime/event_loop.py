"""The broker's event loop: one pass handles all wake-ups of gRPC.

gRPC writes one byte to a socket for each completed step of a call. It reads one byte per pass of
the loop, but handles all completed steps in the first pass. Each later pass finds nothing and costs
a tenth of a send. This loop therefore reads all waiting bytes but one in the first pass.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from rocketpy_broker.runtime.clock import Clock, sleep

# An upper bound of gRPC's completed steps in one pass.
WAKE_UPS_MAX = 4096
WATCH_INTERVAL_MS = 500


class BrokerEventLoop(asyncio.SelectorEventLoop):
    """asyncio's selector loop with merged wake-ups of gRPC."""

    def add_reader(  # type: ignore[override]
        self, fd: Any, callback: Callable[..., Any], *args: Any
    ) -> None:
        """Registers `callback` for reads of `fd`; only gRPC registers an AF_UNIX socket object."""
        if isinstance(fd, socket.socket) and fd.family is socket.AF_UNIX:
            super().add_reader(fd, _once_for_all(fd, callback), *args)
        else:
            super().add_reader(fd, callback, *args)


def _once_for_all(wake_ups: socket.socket, callback: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that reads all bytes but one, then calls `callback`, which reads it."""

    def call_back(*args: Any) -> None:
        count = len(wake_ups.recv(WAKE_UPS_MAX, socket.MSG_PEEK))
        if count > 1:
            wake_ups.recv(count - 1)
        callback(*args)

    return call_back


def run(work: Coroutine[Any, Any, None]) -> None:
    """Runs `work` as `asyncio.run` does, in a BrokerEventLoop.

    Python 3.10's `asyncio.run` takes no loop.
    """
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
    """Calls `on_late` twice a second with a callback's delay in ms, until cancelled."""
    while True:
        begin_ms = clock.monotonic_ms()
        await sleep(clock, WATCH_INTERVAL_MS)
        on_late(max(clock.monotonic_ms() - begin_ms - WATCH_INTERVAL_MS, 0))
