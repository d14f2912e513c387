"""Calls that are cut off, or a broker that stops, while a thread works for them."""

from __future__ import annotations

import asyncio

import pytest

from rocketpy_broker.services.batches import staging_service as staging_module
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.broker.batches.gates import turns
from tests.support.broker.clients.batch_writer import Job, Task, bodies, disk_bytes, staging_files
from tests.support.broker.running_broker import RunningBroker, StartBroker, until
from tests.support.store.disk_calls import STAGING, holding

COMMITTED = broker_pb2.COMMITTED


async def test_s10_a_block_sent_again_after_its_call_was_cut_off_is_staged_once(
    monkeypatch: pytest.MonkeyPatch, running: RunningBroker, job: Job
) -> None:
    task = Task(job, 0, 1)
    await task.send(0, b"0")
    job.staged.append(task)
    with holding(monkeypatch, "pwrite", STAGING) as gate:
        call = running.data.StageBlocks(iter([task.block(0, b"a")]))
        asked = asyncio.ensure_future(call.read())
        await gate.reached()
        call.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await turns(50)
        # The client sends the unanswered block again, over a new stream.
        resent = asyncio.ensure_future(task.send(0, b"a"))
        await turns(50)
    assert (await resent).status.code == ResponseCode.SUCCESS
    await task.send(0, b"b")
    ended = await task.end()
    assert ended.block_count == task.block_count
    assert ended.record_count == task.record_count
    assert ended.bytes == task.record_bytes
    assert (await job.commit()).outcome == COMMITTED
    assert await bodies(running) == [b"0", b"a", b"b"]


async def test_s10_a_cut_off_call_that_waits_takes_nothing_from_the_one_that_is_worked_on(
    monkeypatch: pytest.MonkeyPatch, running: RunningBroker
) -> None:
    await running.create_topic("T")
    task = Task(Job(running), 0, 1)
    request = task.block(0, b"a")
    with holding(monkeypatch, "pwrite", STAGING) as gate:
        first = asyncio.ensure_future(task.send(0, b"a"))
        await gate.reached()
        again = running.data.StageBlocks(iter([request]))
        jobs = running.broker.services.batches.staging._jobs
        [job] = jobs._jobs.values()
        lock = job.attempts[0, 1].lock
        await until(lambda: bool(lock._waiters))
        again.cancel()
        await until(lambda: not lock._waiters)
    assert ((await first).status.code, (await first).block_count) == (0, 1)
    assert (await task.end()).status.code == 0
    task.job.staged.append(task)
    assert (await task.job.commit()).outcome == COMMITTED
    assert await bodies(running) == [b"a"]


async def test_s10_what_a_cut_off_call_has_staged_counts_against_the_budget(
    monkeypatch: pytest.MonkeyPatch, running: RunningBroker
) -> None:
    await running.create_topic("T")
    area = running.broker.store.staging
    job = Job(running)
    with holding(monkeypatch, "pwrite", STAGING) as gate:
        call = running.data.StageBlocks(iter([Task(job, 0, 1).block(0, b"a" * 10_000)]))
        asked = asyncio.ensure_future(call.read())
        await gate.reached()
        call.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await turns(50)
    await until(lambda: 0 < disk_bytes(running) <= area.used_bytes)
    await job.abort()
    assert (area.used_bytes, staging_files(running)) == (0, [])


async def test_s10_an_abort_that_is_cut_off_leaves_no_files(
    monkeypatch: pytest.MonkeyPatch, running: RunningBroker, job: Job
) -> None:
    await job.stage((0, [b"a"]))
    await job.stage((0, [b"b"]))
    with holding(monkeypatch, "pwrite", STAGING) as gate:
        # A block of another attempt is being written.
        writing = asyncio.ensure_future(Task(job, 7, 7).send(0, b"c"))
        await gate.reached()
        call = running.data.AbortBatch(broker_pb2.AbortBatchRequest(job=job.name))
        jobs = running.broker.services.batches.staging._jobs._jobs
        await until(lambda: not jobs)
        call.cancel()
        await turns(50)
    await writing
    await running.broker.services.batches.staging.sweep()
    area = running.broker.store.staging
    assert (area.used_bytes, staging_files(running)) == (0, [])


async def test_s10_a_job_that_begins_to_commit_is_not_discarded_as_idle(
    monkeypatch: pytest.MonkeyPatch, running: RunningBroker
) -> None:
    """Asserts that no other work runs between the check of an attempt and the decision."""
    await running.create_topic("T")
    other, job = Job(running, writer_id="other"), Job(running)
    await other.stage((0, [b"x"]))
    await job.stage((0, [b"a"]))
    with holding(monkeypatch, "unlink", STAGING) as gate:
        running.clock.advance(10 * 3_600_000)
        await gate.reached()
        # The other's files are being removed; this job's driver comes back.
        answer = await job.commit()
    if answer.status.code == ResponseCode.SUCCESS:
        assert (answer.outcome, answer.record_count) == (COMMITTED, 1)
        assert await bodies(running) == [b"a"]
    else:
        assert (await job.query()).outcome == broker_pb2.NOT_COMMITTED


async def test_s10_a_broker_stops_while_a_staging_file_is_read(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holding(monkeypatch, "preadv", STAGING) as gate:
        async with start_broker() as running:
            await running.create_topic("T")
            job = Job(running)
            await job.stage((0, [b"a"]))
            answer = await job.commit(wait_ms_max=0)
            assert answer.outcome == broker_pb2.IN_PROGRESS
            await gate.reached()
            gate.open_soon(1.0)
    async with start_broker() as running:
        job.running = running
        assert (await job.query()).outcome == COMMITTED
        assert await bodies(running) == [b"a"]


async def test_s10_flushes_of_one_job_do_not_hold_another_up(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_broker(flush=FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        large = Job(running)
        tasks = [Task(large, number, 1) for number in range(8)]
        for task in tasks:
            await task.send(0, b"a")
        with holding(monkeypatch, "fdatasync", STAGING, staging_module.THREADS) as gate:
            ends = [asyncio.ensure_future(task.end()) for task in tasks]
            await gate.reached()
            answer = await Task(Job(running, writer_id="another"), 0, 1).send(0, b"b")
            assert answer.status.code == ResponseCode.SUCCESS
        await asyncio.gather(*ends)
