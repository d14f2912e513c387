"""Roll-forward of decided batches: few appends, and the event loop waits for no file."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rocketpy_broker.services.batches.roll_forward import JOINED_BYTES_MAX
from rocketpy_broker.services.flush.admission import BULK_UNDISPATCHED_MAX, BULK_UNFLUSHED_BYTES_MAX
from rocketpy_broker.services.topics.system import BATCHES_TOPIC
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.call_limits import OWN_QUEUES
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record.properties import DELAY
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2
from tests.support.blocks import wire_block
from tests.support.broker.clients.batch_writer import Job, Task, bodies
from tests.support.broker.running_broker import RunningBroker, StartBroker, until
from tests.support.store.disk_calls import (
    LOG,
    DiskCall,
    before_call,
    holding,
    noted_writes,
    queue_of,
)
from tests.support.time_limits import WAIT_SECONDS_MAX

COMMITTED = broker_pb2.COMMITTED


@contextmanager
def appended() -> Iterator[list[tuple[str, int]]]:
    """Yields a list that gets topic and record count of each append of messages by the end."""
    found: list[tuple[str, int]] = []
    with pytest.MonkeyPatch.context() as patch:
        blocks = noted_writes(patch)
        yield found
    topics = [queue_of(block).topic for block in blocks]
    written = zip(topics, map(len, blocks), strict=True)
    found += [(topic, count) for topic, count in written if topic != BATCHES_TOPIC]


async def count_of(running: RunningBroker, key: str) -> int:
    """Returns the number of messages of topic T with the key."""
    by_key = admin_pb2.QueryMessageRequest(topic="T", key=key)
    return len((await running.admin.QueryMessage(by_key)).record_sizes) // 4


async def test_s08_small_blocks_that_follow_each_other_are_appended_together(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    await running.create_topic("Other")
    job = Job(running)
    for task in range(20):
        await job.stage((task % 3, [b"%d-a" % task]), (task % 2, [b"%d-b" % task, b"c"]))
    job.topic = "Other"
    await job.stage((0, [b"x"]), (1, [b"y"]))
    with appended() as appends:
        answer = await job.commit()
    assert (answer.outcome, answer.record_count) == (COMMITTED, 62)
    assert appends == [("T", 60), ("Other", 2)]
    for queue_id in range(3):
        wanted = []
        for task in range(20):
            wanted += [b"%d-a" % task] * (task % 3 == queue_id)
            wanted += [b"%d-b" % task, b"c"] if task % 2 == queue_id else []
        assert await bodies(running, queue_id) == wanted
    assert await bodies(running, 0, "Other") == [b"x"]
    assert await bodies(running, 1, "Other") == [b"y"]
    counts = [await count_of(running, key) for key in ("0-a", "19-b", "7-b", "no-key")]
    assert counts == [1, 1, 1, 0]


async def test_s08_large_blocks_and_those_that_wait_are_appended_by_themselves(
    running: RunningBroker, job: Job
) -> None:
    large = b"0" * JOINED_BYTES_MAX
    assert running.broker.store.staging.frame_bytes > 1.5 * JOINED_BYTES_MAX
    await job.stage((0, [b"a"]), (0, [b"b"]), (0, [large]), (0, [b"c"]), (0, [b"d"]))
    job.properties = {DELAY: "1"}
    await job.stage((0, [b"later"]), (0, [b"later"]))
    job.properties = {}
    await job.stage((0, [b"e"]))
    with appended() as appends:
        answer = await job.commit()
    assert (answer.outcome, answer.record_count) == (COMMITTED, 8)
    assert [count for _, count in appends] == [2, 1, 2, 1, 1, 1]
    assert await bodies(running) == [b"a", b"b", large, b"c", b"d", b"e"]


async def test_b09_the_loop_goes_on_while_a_thread_writes_what_was_staged(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_held, goes_on = threading.Event(), threading.Event()

    def held(_call: DiskCall) -> None:
        if threading.current_thread() is not threading.main_thread():
            is_held.set()
            assert goes_on.wait(WAIT_SECONDS_MAX)

    before_call(monkeypatch, "pwrite", LOG, held)
    async with start_broker() as running:
        await running.create_topic("T")
        job = Job(running)
        await job.stage((0, [b"a"]))
        try:
            assert (await job.commit(wait_ms_max=0)).outcome == broker_pb2.IN_PROGRESS
            await until(is_held.is_set)
            assert (await job.query(wait_ms_max=0)).outcome == broker_pb2.IN_PROGRESS
            assert await bodies(running) == []
        finally:
            goes_on.set()
        assert (await job.query()).outcome == COMMITTED
        await running.append("T", 0, b"b")
        assert await bodies(running) == [b"a", b"b"]


async def test_s10_a_topic_that_is_deleted_while_a_block_waits_for_its_turn_takes_it_along(
    running: RunningBroker, job: Job
) -> None:
    await job.stage((0, [b"a"]))
    async with running.broker.services.sends.admission.turn_to_write():
        assert (await job.commit(wait_ms_max=0)).outcome == broker_pb2.IN_PROGRESS
        request = admin_pb2.DeleteTopicRequest(topic="T")
        answer = await running.admin.DeleteTopic(request)
        assert answer.status.code == ResponseCode.SUCCESS
    answer = await job.query()
    assert (answer.outcome, answer.record_count) == (COMMITTED, 1)
    await running.create_topic("T")
    assert await bodies(running) == []


async def stage_blocks_of_many_queues(job: Job, count: int) -> None:
    """Stages a task for each block of 100 messages, each message for a queue of its own."""
    one_of_each = wire_block("T", [b"x"] * 100, queue_ids=list(range(100)))
    for number in range(count):
        task = Task(job, number, number + 1)
        await task.send_block(OWN_QUEUES, one_of_each)
        await task.end()
        job.staged.append(task)


async def test_b09_blocks_of_many_queues_are_joined_up_to_a_bound(running: RunningBroker) -> None:
    await running.create_topic("T", queues=100)
    job = Job(running)
    await stage_blocks_of_many_queues(job, 5)
    await job.stage((7, [b"y"] * 30))
    with appended() as appends:
        answer = await job.commit()
    assert (answer.outcome, answer.record_count) == (COMMITTED, 530)
    assert appends == [("T", 200), ("T", 200), ("T", 130)]
    assert await bodies(running, 7) == [b"x"] * 5 + [b"y"] * 30


async def test_b09_a_batch_lets_no_more_wait_for_the_disk_than_large_sends_do(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Twice the limit; a body of this size is an append of its own.
    count, body = 16, b"0" * (BULK_UNFLUSHED_BYTES_MAX // 8)
    async with start_broker(
        FlushDiskType.SYNC_FLUSH, commit_log_segment_bytes=4 * BULK_UNFLUSHED_BYTES_MAX
    ) as running:
        await running.create_topic("T")
        job = Job(running)
        await job.stage(*[(0, [body])] * count)
        commit = running.broker.services.batches.commits._group_commit
        with holding(monkeypatch, "fdatasync", LOG) as gate:
            sent = asyncio.ensure_future(running.append("T", 1, b"a"))
            await gate.reached()
            await job.commit(wait_ms_max=0)
            await until(lambda: commit.waiting_count == 2)
            unflushed_bytes = running.broker.store.unflushed_bytes
        assert BULK_UNFLUSHED_BYTES_MAX < unflushed_bytes < BULK_UNFLUSHED_BYTES_MAX + len(body)
        assert (await sent).status.code == ResponseCode.SUCCESS
        assert (await job.query()).outcome == COMMITTED
        assert len(await bodies(running)) == count


async def test_b09_a_batch_lets_a_flush_show_only_so_many_queues_parts(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T", queues=100)
        job = Job(running)
        blocks = BULK_UNDISPATCHED_MAX // 100 + 10
        await stage_blocks_of_many_queues(job, blocks)
        commit = running.broker.services.batches.commits._group_commit
        with holding(monkeypatch, "fdatasync", LOG) as gate:
            sent = asyncio.ensure_future(running.append("T", 1, b"a"))
            await gate.reached()
            await job.commit(wait_ms_max=0)
            await until(lambda: commit.waiting_count == 2)
            count = running.broker.store.undispatched_count
        # The small send, the decision, and appends of two blocks each.
        assert count == BULK_UNDISPATCHED_MAX + 2
        assert (await sent).status.code == ResponseCode.SUCCESS
        assert (await job.query()).outcome == COMMITTED
        assert [len(await bodies(running, queue_id)) for queue_id in (0, 1, 99)] == [
            *(blocks, blocks + 1, blocks)
        ]
