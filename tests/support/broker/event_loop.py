"""Passes of the running event loop, by processor time, and slots of its scheduler."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from rocketpy_broker.runtime.scheduler import running_scheduler

T = TypeVar("T")
# A busy machine lengthens single passes, so the least of this number counts.
ROUNDS = 3


async def passes(count: int) -> None:
    """Waits until the loop has made some passes."""
    for _ in range(count):
        await asyncio.sleep(0)


async def most_in_a_pass(work: asyncio.Future[Any], count: Callable[[], int]) -> int:
    """Returns the largest growth of `count` in a pass of the loop, until the end of the work.

    Raises the error of the work.
    """
    most, before = 0, count()
    while not work.done():
        await asyncio.sleep(0)
        now = count()
        most, before = max(most, now - before), now
    await work
    return most


async def longest_pass_ms(
    ask: Callable[[], Coroutine[Any, Any, T]], enough_ms: float = 0
) -> tuple[T, float, float]:
    """Returns the result of some work, the time of the longest pass and of all passes, in ms.

    The times are the thread's own, of the round in which the longest pass took least. The first
    round with at most `enough_ms` is the last one.
    """
    rounds = list[tuple[T, float, float]]()
    while len(rounds) < ROUNDS and not (rounds and rounds[-1][1] <= enough_ms):
        rounds.append(await _watched(ask()))
    return min(rounds, key=lambda each: each[1])


async def _watched(work: Coroutine[Any, Any, T]) -> tuple[T, float, float]:
    gc.disable()
    try:
        longest, first = 0.0, time.thread_time()
        last, task = first, asyncio.ensure_future(work)
        while not task.done():
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, last = max(longest, now - last), now
        return task.result(), longest * 1_000, (last - first) * 1_000
    finally:
        gc.enable()


async def until_a_task_waits_for_a_slot() -> None:
    """Returns while a task waits for a slot of the scheduler."""
    while not len(running_scheduler()):  # noqa: ASYNC110 (no event)
        await asyncio.sleep(0)


@asynccontextmanager
async def at_each_slot(act: Callable[[], object]) -> AsyncIterator[None]:
    """Calls `act` whenever a task waits for a slot and none did before, until the block's end."""

    async def watch() -> None:
        is_waiting = False
        while True:
            was_waiting, is_waiting = is_waiting, bool(len(running_scheduler()))
            if is_waiting and not was_waiting:
                act()
            await asyncio.sleep(0)

    watching = asyncio.ensure_future(watch())
    try:
        yield
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


@asynccontextmanager
async def counted_slots() -> AsyncIterator[list[None]]:
    """Yields a list that gets an entry for each slot that the block's only bulk work takes."""
    slots: list[None] = []
    async with at_each_slot(lambda: slots.append(None)):
        yield slots
