"""Single messages of a topic with more of them than a block: they wait for slots."""

from __future__ import annotations

import asyncio
import contextvars
import errno
from itertools import pairwise

import pytest

from rocketpy_broker.config import Limits
from rocketpy_broker.errors import StoreClosedError
from rocketpy_broker.runtime.scheduler import PASSES, connection, running_scheduler
from rocketpy_broker.services.flush.admission import SMALL_BYTES_MAX
from rocketpy_broker.services.send import batcher as send_batcher
from rocketpy_broker.services.send.blocks import Stored
from rocketpy_broker.store.config import FlushDiskType
from tests.broker.send.test_batcher import message, places, send_all, sends_of
from tests.support.blocks import WireBlock
from tests.support.broker.event_loop import passes
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.store.disk_calls import LOG, before_call, failing, noted_writes


def send_as(
    running: RunningBroker, client: str, one: WireBlock, topic: str = "T"
) -> asyncio.Task[Stored]:
    """Sends a message to queue 0 on a connection."""
    context = contextvars.copy_context()
    context.run(connection.set, client)
    sending = sends_of(running).append(topic, 0, one.records, one.record_sizes)
    return context.run(asyncio.ensure_future, sending)


async def test_n13_messages_beyond_a_block_wait_for_slots_and_delay_no_other_topic(
    running: RunningBroker,
) -> None:
    for topic in ("T", "U"):
        await running.create_topic(topic)
    large = message(bytes(SMALL_BYTES_MAX // 4 - 1_000))
    bulk = asyncio.ensure_future(send_all(running, *20 * [(0, large)]))
    await asyncio.sleep(0)
    small = asyncio.ensure_future(send_all(running, (0, message(b"a", "U")), topic="U"))
    ends = []
    while not bulk.done():
        ends.append(sends_of(running)._store.positions().log_end)
        small_was_first = small.done()
        await asyncio.sleep(0)
    stored = [number for number, (end, after) in enumerate(pairwise(ends)) if end < after]
    # The first block, and the small message, take no slot.
    assert len(stored) == 6
    assert all(after - before >= PASSES for before, after in pairwise(stored[2:]))
    assert small_was_first
    assert places(await bulk) == [(0, number) for number in range(20)]


async def test_n13_bulk_of_two_topics_and_a_hundred_connections_is_stored_and_leaves_no_slots(
    running: RunningBroker,
) -> None:
    sends = []
    for topic in ("T", "U"):
        await running.create_topic(topic)
    larges = [message(bytes(SMALL_BYTES_MAX // 4 - 1_000), topic) for topic in ("T", "U")]
    for number in range(200):
        large, topic = larges[number % 2], "TU"[number % 2]
        sends.append(send_as(running, f"client {number // 2}", large, topic))
    answers = await asyncio.gather(*sends)
    assert places(answers[0::2]) == [(0, number) for number in range(100)]
    assert places(answers[1::2]) == [(0, number) for number in range(100)]
    await passes(2 * PASSES * send_batcher.SLOTS_MAX)
    assert len(running_scheduler()) == 0


async def test_n13_bulk_that_waited_for_a_large_write_is_stored_a_block_a_pass(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = noted_writes(monkeypatch)
    await running.create_topic("T")
    large = message(bytes(SMALL_BYTES_MAX - 1_000))
    sends = [send_as(running, f"client {number}", large) for number in range(20)]
    await passes(3)
    with sends_of(running).admission.writing():
        await passes(PASSES * len(sends))
    counts = []
    while not all(each.done() for each in sends):
        before = len(blocks)
        await asyncio.sleep(0)
        counts.append(len(blocks) - before)
    assert max(counts) == 1
    assert places([each.result() for each in sends]) == [(0, number) for number in range(20)]


async def test_n13_messages_of_cancelled_senders_take_no_slots(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    large = message(bytes(SMALL_BYTES_MAX - 1_000))
    sends = [send_as(running, "client", large) for _ in range(3 * send_batcher.BATCH_SENDS_MAX)]
    await passes(3)
    for each in sends[:-1]:
        each.cancel()
    await passes(2 * PASSES)
    assert sends[-1].done()


async def test_n13_bulk_keeps_its_order_while_the_store_is_busy(start_broker: StartBroker) -> None:
    limits = Limits(unflushed_bytes_max=100_000)
    async with start_broker(FlushDiskType.SYNC_FLUSH, limits) as running:
        await running.create_topic("T")
        large = message(bytes(SMALL_BYTES_MAX // 2 - 1_000))
        answers = await send_all(running, *100 * [(0, large)])
        assert places(answers) == [(0, number) for number in range(100)]


async def test_f7_when_the_disk_fails_each_sender_of_bulk_that_waits_for_it_gets_an_error(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = Limits(unflushed_bytes_max=100_000)
    async with start_broker(FlushDiskType.SYNC_FLUSH, limits) as running:
        await running.create_topic("T")
        large = message(bytes(SMALL_BYTES_MAX // 2 - 1_000))
        with monkeypatch.context() as patch:
            before_call(patch, "fdatasync", LOG, failing(errno.EIO))
            answers = await send_all(running, *100 * [(0, large)])
        refused = [answer for answer in answers if not isinstance(answer, Stored)]
        assert len(refused) > len(answers) // 2
        assert {type(answer) for answer in refused} == {StoreClosedError}
