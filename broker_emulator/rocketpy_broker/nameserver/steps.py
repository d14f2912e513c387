"""Work in steps, between which the event loop serves requests."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from rocketpy_broker.runtime.scheduler import take_slot

T = TypeVar("T")


async def in_steps(steps: Generator[None, None, T]) -> T:
    """Runs a generator to its end, with a scheduler slot for each step; returns its value."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
        await take_slot()
