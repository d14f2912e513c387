"""Lifetime of staged attempts: rivals, aborts, idle jobs, a full area, restarts."""

from __future__ import annotations

from pathlib import Path

import grpc

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.runtime import scheduler
from rocketpy_broker.services.batches.jobs import CONNECTION_JOBS_MAX, DISCARDED_MAX, ENDED_MAX
from rocketpy_broker.services.batches.service import SWEEP_MS
from rocketpy_broker.store.staging.area import BatchJob
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.support.broker.clients.batch_writer import Job, Task, bodies, staging_files
from tests.support.broker.running_broker import (
    RunningBroker,
    StartBroker,
    another_connection,
    until,
)

ILLEGAL = ResponseCode.MESSAGE_ILLEGAL
COMMITTED, INCOMPLETE = broker_pb2.COMMITTED, broker_pb2.INCOMPLETE
# The body is also the message's key, so the message takes twice its size.
BODY = bytes([97]) * 9_000
IDLE_MS = BrokerConfig(Path()).staging_idle_ms_max


async def swept(running: RunningBroker) -> list[str]:
    """Returns the files that are left after the next sweep."""
    running.clock.advance(SWEEP_MS)
    await running.broker.services.batches.staging.sweep()
    return staging_files(running)


async def test_s02_a_newer_job_puts_away_what_older_ones_have_staged(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    older = Job(running, 5, token=1)
    await older.stage((0, [b"older"]))
    unended = Task(older, 1, 9)
    await unended.send(0, b"older")
    await Job(running, 5, token=2, writer_id="another").stage((0, [b"x"]))
    newer = Job(running, 5, token=3)
    await newer.stage((0, [b"newer"]))
    assert len(staging_files(running)) == 2
    for answer in (await unended.send(0, b"late"), await older.commit()):
        assert answer.status.code == ILLEGAL
        assert "another job writes the same batch" in answer.status.remark
    next_batch = Job(running, 6, token=4)
    await next_batch.stage((0, [b"next"]))
    answer = await newer.commit()
    assert answer.status.code == ILLEGAL
    assert "a later batch has started" in answer.status.remark
    assert (await next_batch.commit()).outcome == COMMITTED
    assert await bodies(running) == [b"next"]


async def test_s02_a_late_job_for_an_older_batch_takes_nothing_from_a_newer(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    newer = Job(running, 6, token=1)
    await newer.stage((0, [b"newer"]))
    await Job(running, 5, token=2).stage((0, [b"older"]))
    assert (await newer.commit()).outcome == COMMITTED
    assert await bodies(running) == [b"newer"]
    assert await swept(running) != []
    running.clock.advance(SWEEP_MS)
    await running.broker.services.batches.commits.remove_stored()
    assert staging_files(running) in ([], staging_files(running)[:1])


async def test_s10_an_abort_removes_and_does_nothing_to_a_committed_batch(
    running: RunningBroker, job: Job
) -> None:
    await job.stage((0, [b"a"]))
    await job.stage((0, [b"b"]))
    assert await Job(running, token=6).abort() == 0
    assert await job.abort() == 2
    assert staging_files(running) == []
    assert running.broker.store.staging.used_bytes == 0
    assert "the job was aborted" in (await job.commit()).status.remark
    job = Job(running, token=5)
    await job.stage((0, [b"a"]))
    await job.commit()
    assert await job.abort() == 0
    assert (await job.query()).outcome == COMMITTED
    assert await bodies(running) == [b"a"]


async def test_s10_what_nothing_is_heard_of_is_removed(running: RunningBroker, job: Job) -> None:
    task = await job.stage((0, [b"a"]))
    running.clock.advance(IDLE_MS - SWEEP_MS - 1)
    assert len(await swept(running)) == 1
    # An open stream is a sign of life, whatever it sends.
    call = running.data.StageBlocks()
    await call.write(broker_pb2.StageBlocksRequest(job=job.name, task=5, task_token=5))
    await call.read()
    running.clock.advance(3 * IDLE_MS)
    assert len(await swept(running)) == 1
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    running.clock.advance(IDLE_MS)
    assert await swept(running) == []
    assert "its job made no call" in (await task.send(0, b"late")).status.remark
    assert "its job made no call" in (await job.commit()).status.remark


async def test_s10_a_full_area_refuses_and_takes_again_when_there_is_room(
    start_broker: StartBroker,
) -> None:
    async with start_broker(staging_bytes_max=40_000) as running:
        await running.create_topic("T")
        await fill_and_empty(running)


async def fill_and_empty(running: RunningBroker) -> None:
    staging = running.broker.store.staging
    first, second = Job(running, writer_id="first"), Job(running, writer_id="second")
    await first.stage((0, [BODY]))
    await second.stage((0, [BODY[:2_000]]))
    full = Task(second, 7, 7)
    answer = await full.send(0, BODY)
    assert answer.status.code == ResponseCode.SYSTEM_BUSY
    assert "--staging-bytes-max" in answer.status.remark
    assert answer.block_count == 0
    await first.abort()
    assert (await full.send(0, BODY)).status.code == ResponseCode.SUCCESS
    # The end of another job would not make room for this.
    answer = await full.send(0, 3 * BODY)
    assert answer.status.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert staging.used_bytes < 40_000


async def test_s10_a_strange_file_is_left_alone_and_a_torn_one_removed(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    folder = tmp_path / "rocketpy" / "staging"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    (folder / ("0" * 20)).write_bytes(b"torn")
    (folder / ("7" * 20)).mkdir()
    async with start_broker() as running:
        assert staging_files(running) == ["7" * 20, "notes.txt"]


async def test_s10_what_is_remembered_of_jobs_is_bounded(running: RunningBroker) -> None:
    await running.create_topic("T")
    table = running.broker.services.batches.staging._jobs
    for number in range(DISCARDED_MAX):
        table.discard(BatchJob("w", number, 1), "it is old")
    for number in range(10):
        await Job(running, writer_id=f"w{number}").stage((0, [b"a"]))
        assert await Job(running, writer_id=f"w{number}").abort() == 1
    counts = len(table._jobs), len(table._by_writer), len(table._discarded)
    assert counts == (0, 0, DISCARDED_MAX)
    assert [name.writer_id for name in table._discarded][-11:] == [
        *("w", *(f"w{number}" for number in range(10)))
    ]


async def test_s10_after_a_restart_files_of_committed_batches_are_gone(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        await Job(running, 1, token=8).stage((0, [b"lost"]))
        job = Job(running, 1)
        await job.stage((0, [b"a"]))
        await job.commit()
    async with start_broker() as running:
        assert staging_files(running) == []
        assert running.broker.store.staging.used_bytes == 0
        assert await bodies(running) == [b"a"]


def sign_of_life(job: Job) -> broker_pb2.StageBlocksRequest:
    return broker_pb2.StageBlocksRequest(job=job.name, task=0, task_token=1)


async def test_s10_a_job_without_files_ends_with_its_stream(running: RunningBroker) -> None:
    await running.create_topic("T")
    table = running.broker.services.batches.staging._jobs
    # One stream names many jobs: it is the stream of the last one.
    call = running.data.StageBlocks()
    for number in range(50):
        await call.write(sign_of_life(Job(running, writer_id=f"w{number}")))
        assert (await call.read()).status.code == ResponseCode.SUCCESS
        assert [name.writer_id for name in table._jobs] == [f"w{number}"]
    await call.done_writing()
    assert await call.read() == grpc.aio.EOF
    await until(lambda: not table._jobs)
    assert table._shares.total == 0
    # A job with files stays.
    await Job(running).stage((0, [b"a"]))
    assert len(table._jobs) == 1


async def test_s10_names_of_jobs_that_ended_are_bounded(running: RunningBroker) -> None:
    table = running.broker.services.batches.staging._jobs
    with table.hold() as hold:
        for number in range(ENDED_MAX):
            hold.use(BatchJob(f"old{number}", 0, 1))
    for number in range(10):
        task = Task(Job(running, writer_id=f"w{number}"), 0, 1)
        assert (await task.ask(sign_of_life(task.job))).status.code == ResponseCode.SUCCESS
        await until(lambda: not table._jobs)
    names = [name.writer_id for name in table._ended]
    assert names == [
        *(f"old{number}" for number in range(10, ENDED_MAX)),
        *(f"w{number}" for number in range(10)),
    ]
    assert table._by_writer.keys() == set(names)


async def test_s02_a_newer_job_puts_away_one_that_ended_without_files(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    table = running.broker.services.batches.staging._jobs
    older = Task(Job(running, 5, token=1), 0, 1)
    assert (await older.ask(sign_of_life(older.job))).status.code == ResponseCode.SUCCESS
    await until(lambda: not table._jobs)
    newer = Job(running, 5, token=2)
    await newer.stage((0, [b"newer"]))
    answer = await older.send(0, b"older")
    assert answer.status.code == ILLEGAL
    assert "another job writes the same batch" in answer.status.remark
    assert (await newer.commit()).outcome == COMMITTED


async def test_s10_a_connection_begins_a_limited_number_of_jobs(running: RunningBroker) -> None:
    await running.create_topic("T")
    table = running.broker.services.batches.staging._jobs
    first = Job(running, writer_id="w0")
    await first.stage((0, [b"a"]))
    [job] = table._jobs.values()
    token = scheduler.connection.set(job.connection)
    for number in range(CONNECTION_JOBS_MAX - 2):
        table.use(BatchJob("w1", number, 1))
    scheduler.connection.reset(token)
    await Job(running, writer_id="w2").stage((0, [b"a"]))
    answer = await Task(Job(running, writer_id="w3"), 0, 1).send(0, b"a")
    assert answer.status.code == ResponseCode.SYSTEM_BUSY
    remark = f"too many jobs of this connection stage batches, limit {CONNECTION_JOBS_MAX}"
    assert remark in answer.status.remark
    async with another_connection(running) as another:
        await Job(another, writer_id="w4").stage((0, [b"a"]))
    assert await first.abort() == 1
    await Job(running, writer_id="w3").stage((0, [b"a"]))
