"""Turns of an event loop: work that comes in steps goes on one step at a time, whoever does it.

Small calls never ask for a turn: they are answered as they come. Whoever has more to do than a few
milliseconds does it in steps, and waits for a turn before each. One step is let go, then the loop
looks for what has come meanwhile, PASSES times, and then the next one is let go: so a small call
waits for one step of bulk at a time, however many others work in bulk. Turns go round by connection
and kind, so that no connection gets more of them by asking more often. Nothing is held: a turn is
over with the step, so a caller that is cancelled, or whose client is gone, takes nothing along.

While a thread does what calls wait for, such as a flush, the loop lets go of Python's lock for a
moment before each step. A thread that comes back from the disk has to have that lock. Every call
that releases it for an instant, each look for new calls among them, wakes the thread in vain and
lets its wait begin anew; so behind short steps it would wait for tens of milliseconds, whatever the
switch interval.

The loop's time is what is shared, so there is one queue for each loop. Lives in memory.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from weakref import WeakKeyDictionary

from rocketpy_broker.runtime.clock import release_gil_briefly

# The connection that the running task works for; the broker's own tasks have none.
connection: ContextVar[str] = ContextVar("connection", default="")
# How often the loop looks for something else between two turns.
PASSES = 4
# A thread that waits for Python's lock wakes in less.
HANDOVER_SECONDS = 0.00005


class Scheduler:
    """The queue of one loop."""

    def __init__(self) -> None:
        # Who was let go last is at the end.
        self._waiting: OrderedDict[tuple[str, str], deque[asyncio.Future[None]]] = OrderedDict()
        self._passes = 0
        self._is_running = False
        self._threads_at_work = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    async def next(self, kind: str) -> None:
        """Returns when the caller may take a step."""
        key = (connection.get(), kind)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(key, deque()).append(future)
        if not self._is_running:
            self._is_running, self._passes = True, PASSES
            loop.call_soon(self._pass)
        try:
            await future
        except asyncio.CancelledError:
            self._leave(key, future)
            raise

    @contextmanager
    def thread_at_work(self) -> Iterator[None]:
        """While the block lasts, a thread does what somebody waits for."""
        self._threads_at_work += 1
        try:
            yield
        finally:
            self._threads_at_work -= 1

    def _leave(self, key: tuple[str, str], future: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(key)
        if waiting is not None and future in waiting:
            waiting.remove(future)
            if not waiting:
                del self._waiting[key]

    def _pass(self) -> None:
        self._passes -= 1
        if self._passes <= 0:
            self._let_one_go()
            self._passes = PASSES
        self._is_running = bool(self._waiting)
        if self._is_running:
            asyncio.get_running_loop().call_soon(self._pass)

    def _let_one_go(self) -> None:
        if self._waiting and self._threads_at_work:
            release_gil_briefly(HANDOVER_SECONDS)
        while self._waiting:
            key, waiting = self._waiting.popitem(last=False)
            future = waiting.popleft()
            if waiting:
                self._waiting[key] = waiting
            if not future.done():
                future.set_result(None)
                return


_schedulers: WeakKeyDictionary[asyncio.AbstractEventLoop, Scheduler] = WeakKeyDictionary()


def running_scheduler() -> Scheduler:
    """Returns the queue of the running loop."""
    loop = asyncio.get_running_loop()
    found = _schedulers.get(loop)
    if found is None:
        found = _schedulers[loop] = Scheduler()
    return found


async def take_slot(kind: str = "") -> None:
    """Returns when the running task may take a step of work that may be long."""
    await running_scheduler().next(kind)
