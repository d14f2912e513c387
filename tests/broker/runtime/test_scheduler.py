"""Scheduler slots of the event loop: their order. Passes of the loop are counted, not timed."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import chain, groupby, pairwise

import pytest

from rocketpy_broker.runtime import scheduler
from rocketpy_broker.runtime.scheduler import PASSES


async def works(order: list[str], connection: str, kind: str, steps: int) -> None:
    """Takes slots for bulk work of one connection."""
    scheduler.connection.set(connection)
    for _ in range(steps):
        await scheduler.take_slot(kind)
        order.append(connection + kind)


async def test_b09_connections_and_kinds_take_turns_however_many_calls_they_make() -> None:
    order: list[str] = []
    calls = [works(order, "a", "pull", 4) for _ in range(8)]
    calls += [works(order, "a", "append", 4), works(order, "b", "pull", 4)]
    await asyncio.gather(*calls)
    first = order[:12]
    assert Counter(first) == {"apull": 4, "aappend": 4, "bpull": 4}
    assert all(len(list(run)) == 1 for _, run in groupby(first))
    assert order[12:] == ["apull"] * 28


async def test_b09_between_two_steps_of_bulk_the_loop_looks_for_small_calls() -> None:
    order: list[str] = []
    bulk = [asyncio.ensure_future(works(order, str(each), "pull", 5)) for each in range(20)]
    seen: list[int] = []
    while not all(each.done() for each in bulk):
        await asyncio.sleep(0)
        seen.append(len(order))
    steps = [later - earlier for earlier, later in pairwise(seen)]
    assert max(steps) == 1
    # What came during a step is seen before the next one.
    between = [len(list(run)) for is_idle, run in groupby(steps, lambda step: not step) if is_idle]
    assert set(between[1:-1]) == {PASSES - 1}


async def test_b09_bulk_goes_on_while_small_calls_come_in_every_pass() -> None:
    order: list[str] = []
    bulk = asyncio.ensure_future(works(order, "a", "pull", 10))
    answered = 0

    async def small_call() -> None:
        nonlocal answered
        await asyncio.sleep(0)
        answered += 1

    passes = 0
    while not bulk.done():
        await asyncio.gather(*(small_call() for _ in range(5)))
        passes += 1
    assert order == ["apull"] * 10
    assert answered == 5 * passes
    assert passes <= 10 * (PASSES + 2)


async def test_b09_a_caller_that_is_cancelled_takes_no_turn_along() -> None:
    order: list[str] = []
    calls = [asyncio.ensure_future(works(order, each, "pull", 1)) for each in "abc"]
    await asyncio.sleep(0)
    calls[0].cancel()
    calls[1].cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert order == ["cpull"]
    assert len(scheduler.running_scheduler()) == 0


async def test_b09_a_caller_cancelled_as_it_is_let_go_holds_nobody_up() -> None:
    order: list[str] = []
    first = asyncio.ensure_future(works(order, "a", "pull", 1))
    others = asyncio.ensure_future(works(order, "b", "pull", 2))
    await asyncio.sleep(0)
    while len(scheduler.running_scheduler()) == 2:  # noqa: ASYNC110 (passes are counted)
        await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, others, return_exceptions=True)
    assert order[-2:] == ["bpull"] * 2
    assert len(scheduler.running_scheduler()) == 0


async def test_b09_without_bulk_the_loop_sleeps() -> None:
    await scheduler.take_slot("pull")
    queue = scheduler.running_scheduler()
    for _ in range(PASSES + 1):
        await asyncio.sleep(0)
    assert not queue._is_running


async def test_b09_while_threads_work_each_step_lets_them_go_on_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []
    monkeypatch.setattr(scheduler, "pause", lambda _: order.append("threads"))
    await works(order, "a", "pull", 2)
    with scheduler.running_scheduler().thread_at_work():
        with scheduler.running_scheduler().thread_at_work():
            await works(order, "b", "pull", 2)
        await works(order, "c", "pull", 1)
    await works(order, "d", "pull", 1)
    bulk = [["apull"] * 2, ["threads", "bpull"] * 2, ["threads", "cpull"], ["dpull"]]
    assert order == list(chain.from_iterable(bulk))


async def test_b09_a_loop_without_bulk_stops_for_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stops: list[None] = []
    monkeypatch.setattr(scheduler, "pause", lambda _: stops.append(None))
    call = asyncio.ensure_future(scheduler.take_slot("pull"))
    await asyncio.sleep(0)
    call.cancel()
    with scheduler.running_scheduler().thread_at_work():
        for _ in range(2 * PASSES):
            await asyncio.sleep(0)
    assert not stops
