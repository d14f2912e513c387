"""Held pops of one group: a message wakes one of them, and no message waits beside a held pop."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from rocketpy_broker.services.long_polling.waiters import LongPollWaiters
from rocketpy_broker.services.receipts.pop_service import PopService
from rocketpy_broker.services.receipts.popped import Popped
from rocketpy_broker.store.values import QueueKey
from tests.support.broker.pops import TOPIC, found, pop, services, with_messages
from tests.support.broker.running_broker import RunningBroker, StartBroker, until

WAIT_MS = 60_000
HELD = 20


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Returns the number of reads of all pops, by group."""
    counts = Counter[str]()
    real = PopService._popped

    async def counted(service: PopService, request: Any, *more: Any) -> Popped:
        counts[request.group] += 1
        return await real(service, request, *more)

    monkeypatch.setattr(PopService, "_popped", counted)
    return counts


async def held_pops(
    running: RunningBroker, count: int = HELD, group: str = "g", **fields: Any
) -> list[asyncio.Task[Popped]]:
    """Returns pops that are held."""
    before = services(running).pops.polling_count(group, TOPIC, -1)
    pops = [
        asyncio.ensure_future(pop(running, group, wait_ms=WAIT_MS, **fields)) for _ in range(count)
    ]
    await until(lambda: services(running).pops.polling_count(group, TOPIC, -1) == before + count)
    return pops


async def ended(pops: list[asyncio.Task[Popped]], count: int) -> list[bytes]:
    """Returns the bodies of the pops that have ended, once there are `count` of them."""
    await until(lambda: sum(each.done() for each in pops) >= count)
    return [body for each in pops if each.done() for body in found(each.result())]


async def given_up(running: RunningBroker, pops: list[asyncio.Task[Popped]]) -> None:
    for each in pops:
        each.cancel()
    await asyncio.gather(*pops, return_exceptions=True)


async def test_n2_a_message_wakes_one_held_pop_of_each_group(
    start_broker: StartBroker, reads: Counter[str]
) -> None:
    async with with_messages(start_broker, queues=2) as running:
        pops = [await held_pops(running, group=group) for group in ("g", "h")]
        reads.clear()
        await running.append(TOPIC, 0, b"a")
        for each in pops:
            assert await ended(each, 1) == [b"a"]
        assert reads == {"g": 1, "h": 1}
        for each in pops:
            await given_up(running, each)


async def test_n2_a_pop_that_leaves_messages_wakes_the_next_one(
    start_broker: StartBroker, reads: Counter[str]
) -> None:
    async with with_messages(start_broker, queues=2) as running:
        pops = await held_pops(running, count_max=1)
        reads.clear()
        await running.append(TOPIC, 0, b"a", b"b", b"c")
        await running.append(TOPIC, 1, b"d")
        assert sorted(await ended(pops, 4)) == [b"a", b"b", b"c", b"d"]
        assert reads["g"] < HELD
        await given_up(running, pops)


async def test_n2_a_woken_pop_that_is_cancelled_wakes_the_next_one(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_messages(start_broker) as running:
        pops = await held_pops(running, 3)
        real = LongPollWaiters.notify_queue

        def notify_and_cancel(held: LongPollWaiters, queue: QueueKey) -> None:
            real(held, queue)
            if queue.topic == TOPIC:
                pops[0].cancel()

        monkeypatch.setattr(LongPollWaiters, "notify_queue", notify_and_cancel)
        await running.append(TOPIC, 0, b"a")
        assert await ended(pops[1:], 1) == [b"a"]
        await given_up(running, pops)


async def test_n2_pops_that_are_cancelled_before_a_message_comes_wake_no_other(
    start_broker: StartBroker, reads: Counter[str]
) -> None:
    async with with_messages(start_broker) as running:
        pops = await held_pops(running)
        reads.clear()
        await given_up(running, pops[1:])
        await running.append(TOPIC, 0, b"a")
        assert await ended(pops[:1], 1) == [b"a"]
        assert reads == {"g": 1}


async def test_n2_a_message_that_comes_while_all_pops_read_is_found(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_messages(start_broker) as running:
        real, may_end = PopService._pop_queues, asyncio.Event()
        reading = 0

        async def read_early(service: PopService, *arguments: Any, **more: Any) -> None:
            nonlocal reading
            await real(service, *arguments, **more)
            reading += 1
            await may_end.wait()

        monkeypatch.setattr(PopService, "_pop_queues", read_early)
        pops = [asyncio.ensure_future(pop(running, wait_ms=WAIT_MS)) for _ in range(2)]
        await until(lambda: reading == 2)
        await running.append(TOPIC, 0, b"a")
        may_end.set()
        assert await ended(pops, 1) == [b"a"]
        await given_up(running, pops)
