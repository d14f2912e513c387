"""Row C08: the order in which held calls are woken."""

from __future__ import annotations

import asyncio

from rocketpy_broker.clock import ManualClock
from rocketpy_broker.services.holding.calls import HeldCalls
from rocketpy_broker.store.values import QueueKey
from tests.broker.conftest import until

QUEUE = QueueKey("T", 0)


async def test_c08_calls_are_woken_in_the_order_they_came() -> None:
    """Whatever their places in memory: who waits longest is answered first."""
    held = HeldCalls(ManualClock())
    woken: list[int] = []

    async def call(number: int) -> None:
        await held.wait([QUEUE], deadline_ms=held.deadline_ms(1_000))
        woken.append(number)

    calls = [asyncio.ensure_future(call(number)) for number in range(100)]
    await until(lambda: len(held) == len(calls))
    held.wake(QUEUE)
    await asyncio.gather(*calls)
    assert woken == [*range(100)]
    assert not len(held)
