"""Prompt coroutines: without a wait they need no task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from rocketpy_broker.runtime.clock import next_pass
from rocketpy_broker.runtime.tasks import Prompt


async def answered(*waits: Awaitable[object]) -> list[object]:
    """Waits for each, and returns their results."""
    return [await each for each in waits]


async def failed(*waits: Awaitable[object]) -> None:
    """Waits for each, and raises an error."""
    await answered(*waits)
    raise ValueError("failed")


def test_without_a_wait_it_ends_without_a_task() -> None:
    """Covers a result and an error."""
    assert Prompt(answered()).begin() == []
    with pytest.raises(ValueError, match="failed"):
        Prompt(failed()).begin()


async def test_after_its_first_wait_it_runs_on_in_a_task() -> None:
    """Covers waits for futures and for the next pass of the loop."""
    loop = asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()
    prompt = Prompt(answered(first, next_pass(), second))
    assert prompt.begin() is prompt
    task = loop.create_task(prompt)
    first.set_result(1)
    loop.call_later(0, second.set_result, 2)
    assert await task == [1, None, 2]


async def test_its_error_after_a_wait_is_the_tasks() -> None:
    """Asserts the error of a coroutine that waited."""
    prompt = Prompt(failed(next_pass()))
    assert prompt.begin() is prompt
    with pytest.raises(ValueError, match="failed"):
        await asyncio.get_running_loop().create_task(prompt)


@pytest.mark.parametrize("passes", [0, 1, 2])
async def test_a_cancelled_task_cancels_it(passes: int) -> None:
    """Covers a task that is cancelled before it has taken over the first wait."""
    loop = asyncio.get_running_loop()
    prompt = Prompt(answered(loop.create_future()))
    assert prompt.begin() is prompt
    task = loop.create_task(prompt)
    for _ in range(passes):
        await next_pass()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_it_can_run_in_the_current_task() -> None:
    """Asserts that a caller may wait for it like for any coroutine."""
    assert await Prompt(answered(next_pass())) == [None]


async def test_closed_it_ends_its_coroutine() -> None:
    """Asserts that no work is left after a refusal."""
    ended = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(1)

    prompt = Prompt(work())
    assert prompt.begin() is prompt
    prompt.close()
    assert ended == [1]
