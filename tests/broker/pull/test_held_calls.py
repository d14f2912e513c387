"""The order in which held calls are woken, and how many at once."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from itertools import pairwise

import pytest

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.long_polling.waiters import (
    MANY,
    SHORTER_SHARE,
    WAKES_A_PASS,
    LongPollWaiters,
)
from rocketpy_broker.store.values import QueueKey
from tests.support.broker.running_broker import until
from tests.support.time_limits import WAIT_SECONDS_MAX

QUEUE = QueueKey("T", 0)


async def test_c08_calls_are_woken_in_the_order_they_came() -> None:
    """Wakes the longest waiter first, whatever the places in memory."""
    held = LongPollWaiters(ManualClock())
    woken: list[int] = []

    async def call(number: int) -> None:
        await held.wait([QUEUE], deadline_ms=held.deadline_ms(1_000))
        woken.append(number)

    calls = [asyncio.ensure_future(call(number)) for number in range(100)]
    await until(lambda: len(held) == len(calls))
    held.notify_queue(QUEUE)
    await asyncio.gather(*calls)
    assert woken == [*range(100)]
    assert not len(held)


@pytest.mark.parametrize("wakes", ["a message", "the clock"])
async def test_b09_c08_of_many_that_are_let_go_together_a_few_go_on_in_a_pass(wakes: str) -> None:
    clock, woken, seen = ManualClock(), 0, [0]
    held = LongPollWaiters(clock)

    async def call() -> None:
        nonlocal woken
        await held.wait([QUEUE], deadline_ms=held.deadline_ms(1_000))
        woken += 1

    calls = [asyncio.ensure_future(call()) for _ in range(1_000)]
    gone = calls.pop(WAKES_A_PASS + 1)
    await until(lambda: len(held) == len(calls) + 1)
    if wakes == "the clock":
        clock.advance(1_000)
    for _ in range(3):
        held.notify_queue(QUEUE)
    gone.cancel()
    while woken < len(calls):
        await asyncio.sleep(0)
        seen.append(woken)
    assert max(later - before for before, later in pairwise(seen)) == WAKES_A_PASS
    assert not held._notified
    assert not held._over


async def test_n02_a_message_does_not_wait_for_many_holds_that_are_over() -> None:
    """Asserts the passes until a call has its message: ten thousand holds may end at once."""
    clock = ManualClock()
    held = LongPollWaiters(clock)
    over = [
        asyncio.ensure_future(held.wait([QUEUE], held.deadline_ms(1_000)))
        for _ in range(10 * WAKES_A_PASS)
    ]
    waiting = asyncio.ensure_future(held.wait([QueueKey("T", 1)], held.deadline_ms(2_000)))
    await until(lambda: len(held) == len(over) + 1)
    clock.advance(1_000)
    held.notify_queue(QueueKey("T", 1))
    await asyncio.wait_for(waiting, WAIT_SECONDS_MAX)
    assert sum(each.done() for each in over) <= 3 * WAKES_A_PASS
    await asyncio.gather(*over)


def test_n02_many_holds_end_apart() -> None:
    """Asserts that holds last as long as asked for, but beside many calls end one by one."""
    held = LongPollWaiters(ManualClock())
    now_ms = held.deadline_ms(0)
    with ExitStack() as stack:
        for _ in range(MANY):
            assert held.deadline_ms(1_000) == now_ms + 1_000
            stack.enter_context(held.watch())
        stack.enter_context(held.watch())
        ends = sorted(held.deadline_ms(1_000) - now_ms for _ in range(100))
    assert (1 - SHORTER_SHARE) * 1_000 <= ends[0] < ends[-1] <= 1_000
    assert max(later - before for before, later in pairwise(ends)) < 10


async def test_b09_c08_a_broker_that_stops_lets_everybody_go_at_once() -> None:
    held = LongPollWaiters(ManualClock())
    calls = [
        asyncio.ensure_future(held.wait([QUEUE], deadline_ms=held.deadline_ms(1_000)))
        for _ in range(3 * WAKES_A_PASS)
    ]
    await until(lambda: len(held) == len(calls))
    held.notify_queue(QUEUE)
    held.stop()
    assert await asyncio.gather(*calls) == [True] * len(calls)
