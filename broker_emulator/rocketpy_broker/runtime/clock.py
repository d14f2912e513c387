"""The broker's clock: wall time for stamps, monotonic time for waits.

No other module reads the system's time. Tests use a `ManualClock` and move its time themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from rocketpy_broker.runtime.tasks import run_until

T = TypeVar("T")
# The longest wait for an event.
IDLE_MS_MAX = 3_600_000


class Timer(Protocol):
    """A callback with a due time."""

    def cancel(self) -> None:
        """Prevents any later call of the callback."""


class Clock(Protocol):
    """A source of wall time, monotonic time and timers."""

    def now_ms(self) -> int:
        """Returns wall time in milliseconds since 1970; it may jump."""

    def monotonic_ms(self) -> float:
        """Returns milliseconds since a fixed moment; the value never jumps and never falls."""

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Calls `callback` once in the running loop after `delay_ms` of monotonic time."""


def resolve(future: asyncio.Future[None]) -> None:
    """Sets the result of `future`, unless it is done."""
    if not future.done():
        future.set_result(None)


def fail(future: asyncio.Future[Any], error: Exception) -> None:
    """Ends `future` with an error, unless it is done."""
    if not future.done():
        future.set_exception(error)


async def sleep(clock: Clock, delay_ms: float) -> None:
    """Waits `delay_ms` by `clock`."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(delay_ms, lambda: resolve(done))
    try:
        await done
    finally:
        timer.cancel()


async def next_pass() -> None:
    """Waits for the next pass of the event loop."""
    await asyncio.sleep(0)


async def within(clock: Clock, limit_ms: float, work: Coroutine[object, object, T]) -> T:
    """Returns the result of `work`; cancels it after `limit_ms` and raises TimeoutError."""
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(limit_ms, lambda: resolve(over))
    try:
        return await run_until(over, work)
    finally:
        timer.cancel()


async def wait_until_set(event: asyncio.Event, clock: Clock) -> None:
    """Waits for `event`, at most IDLE_MS_MAX.

    The caller waits for the clock all the time, so a move of a `MovableClock` does not wait for it.
    """
    with contextlib.suppress(TimeoutError):
        await within(clock, IDLE_MS_MAX, event.wait())


def pause(seconds: float) -> None:
    """Blocks the calling thread for `seconds`; another thread may take the GIL."""
    time.sleep(seconds)


class SystemClock:
    """The machine's time."""

    def now_ms(self) -> int:
        """Returns wall time in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """Returns milliseconds since the machine was started."""
        return time.monotonic_ns() / 1_000_000

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Calls `callback` from the running event loop after `delay_ms` of monotonic time."""
        return asyncio.get_running_loop().call_later(delay_ms / 1000, callback)


class ManualTimer:
    """A timer of `ManualClock`."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Forgets the callback."""
        self._callback = None

    def fire(self) -> None:
        """Calls the callback, unless cancelled."""
        if self._callback is not None:
            self._callback()


class ManualClock:
    """A clock that only a test moves."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0.0
        self._timers: list[tuple[float, int, ManualTimer]] = []
        self._numbers = itertools.count()

    def now_ms(self) -> int:
        """Returns the time that was set."""
        return self._now_ms

    def monotonic_ms(self) -> float:
        """Returns the sum of all `advance` calls."""
        return self._monotonic_ms

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> ManualTimer:
        """Calls `callback` from inside the `advance` that reaches its time."""
        timer = ManualTimer(callback)
        heapq.heappush(self._timers, (self._monotonic_ms + delay_ms, next(self._numbers), timer))
        return timer

    def advance(self, delta_ms: int) -> None:
        """Moves time forward and calls the due callbacks in order of time."""
        self._now_ms += delta_ms
        self._monotonic_ms += delta_ms
        while self._timers and self._timers[0][0] <= self._monotonic_ms:
            heapq.heappop(self._timers)[2].fire()

    def jump(self, delta_ms: int) -> None:
        """Sets the wall clock forward or back; monotonic time and timers do not change."""
        self._now_ms += delta_ms
