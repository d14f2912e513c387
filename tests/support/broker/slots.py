"""Slots of the running event loop's scheduler, seen from a task beside the one that takes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from rocketpy_broker.runtime.scheduler import running_scheduler


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
