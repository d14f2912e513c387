"""The processor time that one pass of the event loop takes, whatever else the machine does."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
# A busy machine lengthens single passes, so the least of this number counts.
ROUNDS = 3


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
