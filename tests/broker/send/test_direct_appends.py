"""Appends of the broker's own, while a thread writes a large block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rocketpy_broker.services.batches.log import BATCHES_QUEUE
from rocketpy_broker.services.batches.roll_forward import DecidedBatch, RollForward
from rocketpy_broker.store.append.appender import LogAppender
from rocketpy_broker.store.log.segment import Segment
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.rocketpy.v1 import admin_pb2
from tests.broker.delay.test_levels import visible
from tests.broker.delay.test_recall import DUE_MS, handle_of, recall
from tests.broker.delay.test_times import send_at
from tests.support.blocks import wire_block
from tests.support.broker.batch_writer import Job
from tests.support.broker.retries import Meant, answered, send
from tests.support.broker.running_broker import RunningBroker, StartBroker, until
from tests.support.broker.transactions import COMMIT, end, prepare
from tests.support.time_limits import WAIT_SECONDS_MAX


class SlowDisk:
    """Threads that wait before they write; `held` counts the waiters for a thread.

    The disk does no more harm: each write is complete.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._loop_thread = threading.current_thread()
        self._entered, self._released = threading.Event(), threading.Event()
        self.held = 0
        write, finish_append = Segment.write, LogAppender.finish_append

        def slow(segment: Segment, position: int, data: memoryview) -> None:
            if threading.current_thread() is not self._loop_thread:
                self._entered.set()
                self._released.wait(WAIT_SECONDS_MAX)
            write(segment, position, data)

        def told(appender: LogAppender) -> None:
            if self._entered.is_set() and not self._released.is_set():
                self.held += 1
                self._released.set()
            finish_append(appender)

        monkeypatch.setattr(Segment, "write", slow)
        monkeypatch.setattr(LogAppender, "finish_append", told)

    @asynccontextmanager
    async def writing(self, running: RunningBroker) -> AsyncIterator[None]:
        """Keeps a large block in writing until the end of the `async with` block."""
        block = wire_block("Large", [b"x" * 1_000] * 100)
        sent = asyncio.ensure_future(running.append_block("Large", 0, block))
        await until(self._entered.is_set)
        yield
        self._released.set()
        assert (await sent).status.code == 0


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    return SlowDisk(monkeypatch)


Act = Callable[[], Awaitable[Any]]


async def a_delivery(running: RunningBroker) -> Act:
    await send(running, b"later", DELAY="1")

    async def due() -> None:
        running.clock.advance(1_000)
        await until(lambda: visible(running, queue_id=0) == 1)

    return due


async def a_recall(running: RunningBroker) -> Act:
    await send_at(running, [DUE_MS], b"back", UNIQ_KEY="K1")
    return lambda: recall(running, handle_of("K1"))


async def an_end_of_a_transaction(running: RunningBroker) -> Act:
    half = await prepare(running, "u")
    return lambda: end(running, half, COMMIT)


async def a_check_of_a_transaction(running: RunningBroker) -> Act:
    await prepare(running, "u")
    running.clock.advance(7_000)
    return running.broker.services.transactions.checks.check_all


async def an_event_of_a_moved_offset(running: RunningBroker) -> Act:
    return lambda: running.pull(topic="T", offset=77, consumer_group="g")


async def a_message_that_is_sent_back(running: RunningBroker) -> Act:
    offset = await send(running, b"again")
    return lambda: answered(running, Meant(offset))


async def a_batch(running: RunningBroker) -> Act:
    job = Job(running)
    await job.stage((0, [b"a"]), (1, [b"b"]))
    return job.commit


@pytest.mark.parametrize(
    "prepared",
    [
        a_delivery,
        a_recall,
        an_end_of_a_transaction,
        a_check_of_a_transaction,
        an_event_of_a_moved_offset,
        a_message_that_is_sent_back,
        a_batch,
    ],
    ids=lambda prepared: prepared.__name__,
)
async def test_b09_a_direct_append_waits_for_a_large_write_without_holding_the_loop(
    start_broker: StartBroker,
    monkeypatch: pytest.MonkeyPatch,
    prepared: Callable[[RunningBroker], Awaitable[Act]],
) -> None:
    slow_disk = SlowDisk(monkeypatch)
    async with start_broker() as running:
        await running.create_topic("T")
        await running.create_topic("Large")
        act = await prepared(running)
        writes = running.broker.services.flush.group_commit.admission
        count = running.broker.store.statistics.put_message_count
        async with slow_disk.writing(running):
            acting = asyncio.ensure_future(act())
            await until(lambda: bool(writes.waiting_count or slow_disk.held))
            assert slow_disk.held == 0
            assert running.broker.store.statistics.put_message_count == count
        await acting
        assert running.broker.store.statistics.put_message_count > count + 100


async def test_b09_a_batch_is_rolled_forward_between_large_writes(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rolls forward after the decision is stored; a thread writes before the messages."""
    slow_disk = SlowDisk(monkeypatch)
    begin = asyncio.Event()
    real = RollForward.run

    async def later(rolling: RollForward, pending: DecidedBatch) -> None:
        await begin.wait()
        await real(rolling, pending)

    monkeypatch.setattr(RollForward, "run", later)
    async with start_broker() as running:
        await running.create_topic("T")
        await running.create_topic("Large")
        job = Job(running)
        await job.stage((0, [b"a"]), (1, [b"b"]))
        committing = asyncio.ensure_future(job.commit())
        await until(lambda: running.broker.store.next_offset(BATCHES_QUEUE) == 1)
        turn = running.broker.services.sends.admission._one_at_a_time
        async with slow_disk.writing(running):
            begin.set()
            await until(lambda: bool(turn._waiters or slow_disk.held))
            assert slow_disk.held == 0
        assert (await committing).record_count == 2


async def a_deletion_of_a_topic(running: RunningBroker) -> admin_pb2.DeleteTopicResponse:
    request = admin_pb2.DeleteTopicRequest(topic="T")
    response: admin_pb2.DeleteTopicResponse = await running.admin.DeleteTopic(request)
    return response


async def a_removal_of_unused_topics(running: RunningBroker) -> admin_pb2.CleanUnusedTopicsResponse:
    request = admin_pb2.CleanUnusedTopicsRequest()
    response: admin_pb2.CleanUnusedTopicsResponse = await running.admin.CleanUnusedTopics(request)
    return response


@pytest.mark.parametrize("deletion", [a_deletion_of_a_topic, a_removal_of_unused_topics])
async def test_b07_b09_a_deletion_waits_for_a_large_write_without_holding_the_loop(
    start_broker: StartBroker,
    monkeypatch: pytest.MonkeyPatch,
    deletion: Callable[[RunningBroker], Awaitable[Any]],
) -> None:
    slow_disk = SlowDisk(monkeypatch)
    async with start_broker() as running:
        await running.create_topic("T")
        await running.create_topic("Large")
        writes = running.broker.services.flush.group_commit.admission
        if deletion is a_removal_of_unused_topics:
            running.broker.store.append(
                QueueKey("Unused", 0), wire_block("Unused", [b"a"]).parsed()
            )
        async with slow_disk.writing(running):
            deleting = asyncio.ensure_future(deletion(running))
            await until(lambda: bool(writes.waiting_count or slow_disk.held))
            assert slow_disk.held == 0
        assert (await deleting).status.code == 0
