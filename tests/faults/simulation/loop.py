"""An event loop with simulated time, threads and order of sets.

Time stands still while any task has work, and then jumps to the next timer. A function for a thread
runs in one go, at a random time; its result is delivered at another one.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

T = TypeVar("T")
THREAD_MS = (0, 0, 0, 1, 3, 20)
THREAD_SLOW_MS = (0, 1, 20, 700)


class Timer:
    """A callback that is due later."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Forgets the callback."""
        self.callback = None


class VirtualClock:
    """A clock that goes from timer to timer, and the wall clock that may be set beside it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._set_ms = now_ms
        self._monotonic_ms = 0
        self._timers: list[tuple[int, int, Timer]] = []
        self._numbers = itertools.count()

    def now_ms(self) -> int:
        """Returns the wall time."""
        return self._set_ms + self._monotonic_ms

    def monotonic_ms(self) -> float:
        """Returns the elapsed time."""
        return float(self._monotonic_ms)

    def jump(self, delta_ms: int) -> None:
        """Sets the wall clock."""
        self._set_ms += delta_ms

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Calls `callback` when all tasks wait, and this is the next timer."""
        timer = Timer(callback)
        due_ms = self._monotonic_ms + max(0, -int(-delay_ms // 1))
        heapq.heappush(self._timers, (due_ms, next(self._numbers), timer))
        return timer

    def fire_next(self) -> None:
        """Goes to the next timer that was not cancelled."""
        while self._timers:
            due_ms, _, timer = heapq.heappop(self._timers)
            if timer.callback is not None:
                self._monotonic_ms = max(self._monotonic_ms, due_ms)
                timer.callback()
                return
        raise AssertionError("everybody waits for ever")

    def forget_timers(self) -> None:
        """Removes the timers of an ended life."""
        self._timers.clear()


def _number_of(self: Any) -> int:
    """Returns the hash of a future or task, so that the order of sets is repeatable."""
    # Drawn late: asyncio puts a task into its own set before it can get a number.
    if not self.number:
        self.number = self.get_loop().next_number()
    number: int = self.number
    return number


class _Future(asyncio.Future):  # type: ignore[type-arg]
    number = 0
    __hash__ = _number_of


class _Task(asyncio.Task):  # type: ignore[type-arg]
    number = 0
    __hash__ = _number_of


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop that runs until its main task is done, or until `halt`."""

    def __init__(self, clock: VirtualClock, chance: random.Random, *, is_slow: bool) -> None:
        super().__init__()
        self._selector = self
        self._virtual = clock
        self._chance = chance
        self._thread_ms = THREAD_SLOW_MS if is_slow else THREAD_MS
        self._free_ms: dict[Executor | None, float] = {}
        self._in_threads: dict[asyncio.Future[Any], None] = {}
        self._numbers_given = itertools.count(1)
        self._is_halted = False
        self.set_task_factory(_task_of)

    # --- Hooks of asyncio's loop ---

    def select(self, timeout: float | None) -> list[Any]:
        """Returns no event; advances the time when all tasks wait."""
        if timeout != 0 and not self._is_halted:
            self._virtual.fire_next()
        return []

    def _process_events(self, events: list[Any]) -> None:
        assert not events

    def _write_to_self(self) -> None:
        """Wakes no thread: none sleeps."""

    def next_number(self) -> int:
        """Returns a number for a future or task."""
        return next(self._numbers_given)

    def create_future(self) -> asyncio.Future[Any]:
        """Returns a future with a known place in sets."""
        return _Future(loop=self)

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Runs `func` in one go, after earlier functions of its executor."""
        future: asyncio.Future[T] = self.create_future()
        self._in_threads[future] = None
        begin_ms = max(self._virtual.monotonic_ms(), self._free_ms.get(executor, 0))
        begin_ms += self._chance.choice(self._thread_ms)
        end_ms = begin_ms + self._chance.choice(self._thread_ms)
        self._free_ms[executor] = end_ms

        def run() -> None:
            if future.done():
                return
            try:
                result = func(*args)
            except BaseException as error:
                self._tell(end_ms, future, error, None)
            else:
                self._tell(end_ms, future, None, result)

        self._virtual.call_later(begin_ms - self._virtual.monotonic_ms(), run)
        return future

    def _tell(
        self, end_ms: float, future: asyncio.Future[T], error: BaseException | None, result: Any
    ) -> None:
        def tell() -> None:
            self._in_threads.pop(future, None)
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        self._virtual.call_later(end_ms - self._virtual.monotonic_ms(), tell)

    # --- A life, and its end ---

    def live(self, main: Coroutine[Any, Any, None]) -> None:
        """Runs `main` to its end, or until `halt`. Raises what it raises."""
        asyncio.set_event_loop(self)
        task = self.create_task(main)
        task.add_done_callback(lambda _: self.stop())
        self.run_forever()
        if task.done() and not self._is_halted:
            task.result()

    def halt(self) -> None:
        """Stops everything at the end of this scheduler slot."""
        self._is_halted = True
        self.stop()

    def tear_down(self) -> None:
        """Ends all tasks at once; what they still do has no effect."""
        self._is_halted = True
        self._virtual.forget_timers()
        for _ in range(1_000):
            for future in [*self._in_threads]:
                if not future.done():
                    future.set_exception(OSError("the machine is gone"))
            self._in_threads.clear()
            left = asyncio.all_tasks(self)
            if not left:
                break
            for task in sorted(left, key=hash):
                task.cancel()
            self.call_soon(self.stop)
            self.run_forever()
            self._virtual.forget_timers()
        else:
            raise AssertionError(f"tasks do not end: {asyncio.all_tasks(self)}")
        self._virtual.forget_timers()
        asyncio.set_event_loop(None)
        self.close()


def _task_of(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    return _Task(work, loop=loop, **options)
