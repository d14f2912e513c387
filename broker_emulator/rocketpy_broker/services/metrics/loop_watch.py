"""How late the event loop calls back: what everybody waits longer than need be. Lives in memory."""

from __future__ import annotations

from collections.abc import Callable

from rocketpy_broker.clock import Clock, sleep

INTERVAL_MS = 500


async def watch_loop(clock: Clock, on_late: Callable[[float], None]) -> None:
    """Tell `on_late` how many ms a call came late, twice a second, for ever."""
    while True:
        begin_ms = clock.monotonic_ms()
        await sleep(clock, INTERVAL_MS)
        on_late(max(clock.monotonic_ms() - begin_ms - INTERVAL_MS, 0))
