"""Pops of a running broker by its service, with a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rocketpy_broker.services.receipts.handle import Receipt, pop_retry_topic
from rocketpy_broker.services.receipts.popped import Popped, PopRequest
from rocketpy_broker.services.receipts.wiring import Receipts
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.record import RecordBlock
from tests.support.blocks import bodies_of
from tests.support.broker.running_broker import RunningBroker, StartBroker, until

GROUP, TOPIC = "g", "T"
RETRY_TOPIC = pop_retry_topic(GROUP, TOPIC)
INVISIBLE_MS = 10_000
# From the end of the invisible time until the copy is in the retry topic, at most.
REVIVE_MS = 4_000


def services(running: RunningBroker) -> Receipts:
    return running.broker.services.receipts


@asynccontextmanager
async def with_messages(
    start: StartBroker, *bodies: bytes, queues: int = 1, **settings: Any
) -> AsyncIterator[RunningBroker]:
    """Yields a broker whose topic has these messages in queue 0."""
    async with start(**settings) as running:
        await running.create_topic(TOPIC, queues)
        if bodies:
            await running.append(TOPIC, 0, *bodies)
        yield running


async def pop(running: RunningBroker, group: str = GROUP, **fields: Any) -> Popped:
    usual: dict[str, Any] = {"topic": TOPIC, "invisible_ms": INVISIBLE_MS}
    return await services(running).pops.pop(PopRequest(group, **usual | fields))


def found(popped: Popped) -> list[bytes]:
    """Returns the bodies of the popped messages."""
    return [body for each in popped.queues for body in bodies_of_block(each.block)]


def bodies_of_block(block: RecordBlock) -> list[bytes]:
    return bodies_of(bytes(block.data), block.sizes)


def receipts(popped: Popped) -> list[tuple[QueueKey, Receipt]]:
    """Returns the real queue and the receipt of each popped message."""
    return [(part.queue, each) for part in popped.queues for each in popped.receipts(part)]


async def ack(running: RunningBroker, popped: Popped, *places: int, group: str = GROUP) -> None:
    """Acknowledges the messages at these places, one by one; all without places."""
    every = receipts(popped)
    for place in places or range(len(every)):
        queue, receipt = every[place]
        await services(running).acks.ack(group, queue, [receipt.offset], receipt)


def revived(running: RunningBroker, topic: str = RETRY_TOPIC) -> int:
    """Returns the number of copies in a retry topic."""
    return running.broker.store.range_of(QueueKey(topic, 0)).max_offset


async def pass_time(running: RunningBroker, ms: int) -> None:
    """Moves the clock in steps; timer and revives do what is due in each."""
    for _ in range(0, ms, 1_000):
        running.clock.advance(1_000)
        await settled(running)


async def settled(running: RunningBroker) -> None:
    """Waits until the timer has delivered, and the revive queues have no more to do now."""
    broker, store = running.broker.services, running.broker.store
    now_ms = running.clock.now_ms()
    await until(lambda: broker.delay.timer.delivered_until_ms(now_ms) >= now_ms)
    for _ in range(20):
        await asyncio.sleep(0)
    await until(lambda: not any(each.is_working for each in broker.receipts.revives))
    if store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
        await until(lambda: store.unflushed_bytes == 0)
