"""Held pops of one group: a message wakes one of them, and no message waits beside a held pop."""

from __future__ import annotations

import asyncio
from typing import Any

from rocketpy_broker.runtime.scheduler import running_scheduler
from rocketpy_broker.services.receipts.pop_service import QUEUES_A_SLOT
from rocketpy_broker.services.receipts.popped import Popped
from rocketpy_broker.store.values import QueueKey
from tests.support.blocks import wire_block
from tests.support.broker.pops import TOPIC, found, pop, services, with_messages
from tests.support.broker.running_broker import RunningBroker, StartBroker, until

WAIT_MS = 60_000
HELD = 20


def reads(running: RunningBroker) -> int:
    """Returns the number of reads of all pops until now; each has its turn of the queues."""
    return services(running).pops._turn


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


async def test_n2_a_message_wakes_one_held_pop_of_each_group(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, queues=2) as running:
        pops = [await held_pops(running, group=group) for group in ("g", "h")]
        before = reads(running)
        await running.append(TOPIC, 0, b"a")
        for each in pops:
            assert await ended(each, 1) == [b"a"]
        assert reads(running) - before == 2
        for each in pops:
            await given_up(running, each)


async def test_n2_a_pop_that_leaves_messages_wakes_the_next_one(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, queues=2) as running:
        pops = await held_pops(running, count_max=1)
        before = reads(running)
        await running.append(TOPIC, 0, b"a", b"b", b"c")
        await running.append(TOPIC, 1, b"d")
        assert sorted(await ended(pops, 4)) == [b"a", b"b", b"c", b"d"]
        assert reads(running) - before < HELD
        await given_up(running, pops)


async def test_n2_a_woken_pop_that_is_cancelled_wakes_the_next_one(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker) as running:
        calls = running.broker.services.long_polling.calls
        pops = [*await held_pops(running, 1), *await held_pops(running, 2)]

        async def cancel_at_arrival() -> None:
            # A waiter for one queue runs before waiters for the topic, which are woken, too.
            await calls.wait([QueueKey(TOPIC, 0)], calls.deadline_ms(WAIT_MS))
            pops[0].cancel()

        cancelling = asyncio.ensure_future(cancel_at_arrival())
        await running.held(len(pops) + 1)
        await running.append(TOPIC, 0, b"a")
        assert await ended(pops[1:], 1) == [b"a"]
        await cancelling
        await given_up(running, pops)


async def test_n2_pops_that_are_cancelled_before_a_message_comes_wake_no_other(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker) as running:
        pops = await held_pops(running)
        before = reads(running)
        await given_up(running, pops[1:])
        await running.append(TOPIC, 0, b"a")
        assert await ended(pops[:1], 1) == [b"a"]
        assert reads(running) - before == 1


async def test_n2_a_message_that_comes_while_all_pops_read_is_found(
    start_broker: StartBroker,
) -> None:
    # The last queue is read in another slot than the first ones.
    async with with_messages(start_broker, queues=QUEUES_A_SLOT) as running:
        store = running.broker.store
        # Creates the group, so that both pops read at the same time.
        assert found(await pop(running)) == []
        pops = [asyncio.ensure_future(pop(running, wait_ms=WAIT_MS)) for _ in range(2)]
        while len(running_scheduler()) < len(pops):  # noqa: ASYNC110 (no event)
            await asyncio.sleep(0)
        # Both pops have passed the middle queue.
        store.append(QueueKey(TOPIC, QUEUES_A_SLOT // 2), wire_block(TOPIC, [b"a"]).parsed())
        store.dispatch()
        assert await ended(pops, 1) == [b"a"]
        await given_up(running, pops)
