"""The scheduler: slots of event loop time for bulk work.

Small calls take no slot: they are answered as they come. A task splits work of more than a few
milliseconds into steps and takes a slot before each step. The scheduler grants one slot, lets the
loop handle other events PASSES times, and then grants the next slot. So small calls wait for at
most one slot of bulk work, and bulk work is never starved. Limit: the loop is never busy for more
than 20 ms.

Slots go round by connection and kind: a connection gets no more slots by more requests. A slot ends
with its step and holds nothing, so a cancelled caller or a lost client needs no cleanup.

Calls may wait for work on a thread, such as a flush. The scheduler then releases the GIL for a
moment before each step. The thread needs the GIL when it returns from the disk. Every brief
release of the GIL, such as a poll for events, wakes it without need and restarts its wait. With
short steps it would wait for tens of milliseconds, at any switch interval.

There is one scheduler for each event loop, because the loop's time is shared.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from weakref import WeakKeyDictionary

from rocketpy_broker.runtime.clock import pause

# The connection of the running task; the broker's own tasks have none.
connection: ContextVar[str] = ContextVar("connection", default="")
# Passes of the event loop between two slots.
PASSES = 4
# Longer than a thread that waits for the GIL takes to wake.
HANDOVER_SECONDS = 0.00005


class Scheduler:
    """The queue of tasks that wait for a slot of one event loop."""

    def __init__(self) -> None:
        # The connection and kind that was woken last is at the end.
        self._waiting: OrderedDict[tuple[str, str], deque[asyncio.Future[None]]] = OrderedDict()
        self._passes = 0
        self._is_running = False
        self._threads_at_work = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    async def next(self, kind: str) -> None:
        """Waits for a slot; returns when the caller may take one step."""
        key = (connection.get(), kind)
        future = self.slot(*key)
        try:
            await future
        except asyncio.CancelledError:
            self._leave(key, future)
            raise

    def slot(self, connection_id: str, kind: str) -> asyncio.Future[None]:
        """Returns a future that is done when a step of that connection and kind may begin."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault((connection_id, kind), deque()).append(future)
        if not self._is_running:
            self._is_running, self._passes = True, PASSES
            loop.call_soon(self._pass)
        return future

    @contextmanager
    def thread_at_work(self) -> Iterator[None]:
        """Marks the block as a time in which a thread does work that calls wait for."""
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
            self._wake_one()
            self._passes = PASSES
        self._is_running = bool(self._waiting)
        if self._is_running:
            asyncio.get_running_loop().call_soon(self._pass)

    def _wake_one(self) -> None:
        if self._waiting and self._threads_at_work:
            pause(HANDOVER_SECONDS)
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
    """Returns the scheduler of the running event loop."""
    loop = asyncio.get_running_loop()
    found = _schedulers.get(loop)
    if found is None:
        found = _schedulers[loop] = Scheduler()
    return found


async def take_slot(kind: str = "") -> None:
    """Waits for a slot; returns when the running task may take one step of bulk work."""
    await running_scheduler().next(kind)
