"""Ordered pops: a queue's next messages come after the acknowledgement of the earlier ones."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker.services.receipts.handle import ReceiptIllegalError
from rocketpy_broker.services.receipts.popped import Popped
from rocketpy_broker.store.config import FlushDiskType
from tests.broker.receipts.test_pops import reset
from tests.support.broker.pops import (
    GROUP,
    INVISIBLE_MS,
    ack,
    found,
    pass_time,
    pop,
    receipts,
    revived,
    services,
    with_messages,
)
from tests.support.broker.running_broker import RunningBroker, StartBroker, until


async def ordered(running: RunningBroker, **fields: Any) -> Popped:
    return await pop(running, is_ordered=True, **{"count_max": 2} | fields)


async def test_the_next_messages_come_after_all_acknowledgements(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker, b"a", b"b", b"c") as running:
        first = await ordered(running)
        assert found(first) == [b"a", b"b"]
        assert found(await ordered(running)) == []
        await ack(running, first, 1)
        assert found(await ordered(running)) == []
        await ack(running, first, 0)
        assert found(await ordered(running)) == [b"c"]


async def test_unacknowledged_messages_come_again_in_order(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, b"a", b"b", b"c") as running:
        first = await ordered(running, count_max=3)
        await ack(running, first, 0)
        running.clock.advance(INVISIBLE_MS - 1)
        assert found(await ordered(running)) == []
        running.clock.advance(1)
        again = await ordered(running)
        assert (found(again), again.queues[0].counts) == ([b"b", b"c"], [1, 1])
        # A receipt of the first delivery has no effect.
        await ack(running, first, 1)
        assert found(await ordered(running)) == []
        await ack(running, again)
        await pass_time(running, 2 * INVISIBLE_MS)
        assert (found(await ordered(running)), revived(running)) == ([], 0)


async def test_a_repeated_attempt_gets_the_same_messages(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, b"a", b"b") as running:
        await ordered(running, attempt_id="one")
        again = await ordered(running, attempt_id="one")
        assert (found(again), again.queues[0].counts) == ([b"a", b"b"], [0, 0])
        assert found(await ordered(running, attempt_id="two")) == []


async def test_a_changed_time_and_an_acknowledgement_wake_held_pops(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker, b"a", b"b") as running:
        popped = await ordered(running, count_max=1)
        ((queue, receipt),) = receipts(popped)
        held = asyncio.ensure_future(ordered(running, wait_ms=60_000, count_max=1))
        await running.held(1)
        changed = await services(running).acks.change_invisible_time(
            GROUP, queue, 0, receipt, 1_000
        )
        assert changed.visible_ms == running.clock.now_ms() + 1_000
        await asyncio.sleep(0)
        running.clock.advance(1_000)
        again = await held
        assert found(again) == [b"a"]
        held = asyncio.ensure_future(ordered(running, wait_ms=60_000, count_max=1))
        await running.held(1)
        await ack(running, again)
        assert found(await held) == [b"b"]


@pytest.mark.parametrize("flush", [FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH])
async def test_after_a_kill_no_acknowledged_message_comes_again(
    start_crashed: StartBroker, flush: FlushDiskType
) -> None:
    async with with_messages(start_crashed, b"a", b"b", b"c", flush=flush) as running:
        await ack(running, await ordered(running))
        clock = running.clock
    async with start_crashed(flush, clock=clock) as running:
        assert found(await ordered(running)) == [b"c"]


@pytest.mark.parametrize("is_acknowledged", [True, False])
async def test_an_acknowledgement_counts_although_a_kill_lost_its_delivery(
    start_crashed: StartBroker, tmp_path: Path, is_acknowledged: bool
) -> None:
    flush = FlushDiskType.ASYNC_FLUSH
    async with with_messages(start_crashed, b"a", b"b", b"c", flush=flush) as running:
        saved = await ordered(running, count_max=1, invisible_ms=1_000)
        if is_acknowledged:
            await ack(running, saved)
        await pass_time(running, 6_000)
        await until((tmp_path / "config/consumerOrderInfo.json").exists)
        lost = await ordered(running, count_max=1)
        clock = running.clock
    async with start_crashed(flush, clock=clock) as running:
        await ack(running, lost)
        rest = await ordered(running)
        assert found(lost) + found(rest) == [b"a", b"b", b"c"][is_acknowledged:]


async def test_blocks_survive_a_stop(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, b"a", b"b") as running:
        popped = await ordered(running)
        await ack(running, popped, 0)
        clock = running.clock
    async with start_broker(clock=clock) as running:
        assert found(await ordered(running)) == []
        await ack(running, popped, 1)
        clock.advance(INVISIBLE_MS)
        assert found(await ordered(running)) == []


async def test_a_reset_frees_the_queue(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, b"a", b"b", b"c") as running:
        popped = await ordered(running)
        await reset(running, 1)
        running.clock.advance(1)
        again = await ordered(running)
        assert found(again) == [b"b", b"c"]
        await ack(running, popped, 0)
        ((queue, receipt), _) = receipts(again)
        with pytest.raises(ReceiptIllegalError):
            await services(running).acks.ack(GROUP, queue, [0], receipt)
