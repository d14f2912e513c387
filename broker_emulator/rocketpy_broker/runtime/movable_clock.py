"""A clock that a test moves forward.

Between moves it follows another clock. `advance` is a jump, as after a machine's sleep: each due
timer fires once. `advance` returns when every task that ever waited for this clock waits again. All
due work is then done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakSet

from rocketpy_broker.runtime.clock import Clock, Timer, resolve


class MovableTimer:
    """A timer of `MovableClock`; `owner` is the task that created it."""

    def __init__(
        self, due_ms: float, callback: Callable[[], None], end: Callable[[MovableTimer], None]
    ) -> None:
        self.due_ms = due_ms
        self.owner = asyncio.current_task()
        self._callback = callback
        self._end = end
        self._timer: Timer | None = None

    def arm(self, clock: Clock, delay_ms: float) -> None:
        """Restarts the timer with `delay_ms` from now."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = clock.call_later(max(delay_ms, 0), self._fire)

    def _fire(self) -> None:
        self._end(self)
        self._callback()

    def cancel(self) -> None:
        """Prevents any later call of the callback."""
        if self._timer is not None:
            self._timer.cancel()
        self._end(self)


class MovableClock:
    """A clock that is `ahead_ms` ahead of another one."""

    def __init__(self, clock: Clock, ahead_ms: int) -> None:
        self._clock = clock
        self.ahead_ms = ahead_ms
        # In order of creation.
        self._timers: dict[MovableTimer, None] = {}
        self._tasks: WeakSet[asyncio.Task[object]] = WeakSet()
        # The monotonic time after the move, by caller of `advance`.
        self._callers: dict[asyncio.Future[None], float] = {}

    def now_ms(self) -> int:
        """Returns wall time in milliseconds since 1970."""
        return self._clock.now_ms() + self.ahead_ms

    def monotonic_ms(self) -> float:
        """Returns milliseconds since a fixed moment, all moves included."""
        return self._clock.monotonic_ms() + self.ahead_ms

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> MovableTimer:
        """Calls `callback` once in the running loop after `delay_ms` of this clock."""
        timer = MovableTimer(self.monotonic_ms() + delay_ms, callback, self._end)
        timer.arm(self._clock, delay_ms)
        self._timers[timer] = None
        if timer.owner is not None and timer.owner not in self._tasks:
            self._tasks.add(timer.owner)
            timer.owner.add_done_callback(lambda _: self._wake_callers())
        self._wake_callers()
        return timer

    def _end(self, timer: MovableTimer) -> None:
        self._timers.pop(timer, None)

    async def advance(self, delta_ms: int) -> None:
        """Moves time forward and waits until the woken tasks have done their work."""
        self.ahead_ms += delta_ms
        now_ms = self.monotonic_ms()
        for timer in sorted(self._timers, key=lambda timer: timer.due_ms):
            timer.arm(self._clock, timer.due_ms - now_ms)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._callers[done] = now_ms
        self._wake_callers()
        try:
            await done
        finally:
            del self._callers[done]

    def _wake_callers(self) -> None:
        for done, moved_ms in self._callers.items():
            if self._is_settled(moved_ms):
                resolve(done)

    def _is_settled(self, moved_ms: float) -> bool:
        """True if every task waits for a time after `moved_ms`."""
        waiting = {timer.owner for timer in self._timers if timer.due_ms > moved_ms}
        return all(task.done() or task in waiting for task in self._tasks)
