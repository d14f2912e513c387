"""A clock that is moved: timers are due at once, and a move ends when their tasks wait again."""

from __future__ import annotations

import asyncio

from rocketpy_broker.runtime.clock import IDLE_MS_MAX, ManualClock, sleep, wait_until_set
from rocketpy_broker.runtime.movable_clock import MovableClock
from rocketpy_broker.runtime.tasks import TaskScope
from tests.support.broker.running_broker import until


async def test_time_is_the_other_clocks_and_what_was_moved() -> None:
    base = ManualClock(1_000)
    clock = MovableClock(base, 50)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_050, 50)
    base.advance(7)
    await clock.advance(3)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_060, 60)


async def test_timers_fire_in_order_once_and_not_before() -> None:
    base = ManualClock()
    clock = MovableClock(base, 0)
    fired: list[str] = []
    clock.call_later(300, lambda: fired.append("third"))
    clock.call_later(100, lambda: fired.append("first"))
    clock.call_later(200, lambda: fired.append("second"))
    clock.call_later(150, lambda: fired.append("cancelled")).cancel()
    moving = asyncio.ensure_future(clock.advance(250))
    await asyncio.sleep(0)
    base.advance(0)
    assert fired == ["first", "second"]
    base.advance(49)
    assert fired == ["first", "second"]
    base.advance(1)
    assert fired == ["first", "second", "third"]
    moving.cancel()


async def test_a_move_ends_when_every_task_that_it_woke_waits_again() -> None:
    base = ManualClock()
    clock = MovableClock(base, 0)
    go_on, steps = asyncio.Event(), 0

    async def loop() -> None:
        nonlocal steps
        while True:
            await sleep(clock, 1_000)
            await go_on.wait()
            steps += 1

    async with TaskScope() as scope:
        scope.start(loop())
        await until(lambda: bool(clock._timers))
        moving = asyncio.ensure_future(clock.advance(1_000))
        await asyncio.sleep(0)
        base.advance(0)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not moving.done()
        go_on.set()
        await moving
        assert steps == 1
        # A move that wakes no task is over at once.
        await clock.advance(999)
        assert steps == 1


async def test_a_task_that_ends_holds_no_move_up() -> None:
    base = ManualClock()
    clock = MovableClock(base, 0)
    task = asyncio.ensure_future(sleep(clock, 1_000))
    await until(lambda: bool(clock._timers))
    moving = asyncio.ensure_future(clock.advance(2_000))
    await asyncio.sleep(0)
    base.advance(0)
    await moving
    await task


async def test_a_task_that_waits_for_an_event_holds_no_move_up() -> None:
    base = ManualClock()
    clock = MovableClock(base, 0)
    event, rounds = asyncio.Event(), 0

    async def loop() -> None:
        nonlocal rounds
        while True:
            await wait_until_set(event, clock)
            rounds += 1
            await sleep(clock, 1_000)

    async with TaskScope() as scope:
        scope.start(loop())
        await until(lambda: bool(clock._timers))
        await clock.advance(IDLE_MS_MAX - 1)
        event.set()
        await until(lambda: rounds == 1)
        event.clear()
        for delta_ms, count in ((1_000, 1), (1_000, 1), (IDLE_MS_MAX, 2)):
            moving = asyncio.ensure_future(clock.advance(delta_ms))
            await asyncio.sleep(0)
            base.advance(0)
            await moving
            assert rounds == count
