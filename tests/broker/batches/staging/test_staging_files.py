"""Files of the staging area: their sizes, their removal, and files beside them."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from rocketpy_broker.services.batches.outcome import Outcome
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.faults.batches.batch_use import Desk
from tests.faults.images import read_bodies, workshop
from tests.support.blocks import wire_block
from tests.support.broker.clients.batch_writer import Job, Task, bodies, disk_bytes, staging_files
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.store.disk_calls import STAGING, before_call, failing
from tests.support.store.messages import QUEUE

COMMITTED = broker_pb2.COMMITTED


async def test_s10_files_that_could_not_be_removed_are_removed_later(
    monkeypatch: pytest.MonkeyPatch, running: RunningBroker, job: Job
) -> None:
    await job.stage((0, [b"a"]))
    with monkeypatch.context() as patch:
        before_call(patch, "unlink", STAGING, failing(errno.EIO))
        await job.abort()
    area = running.broker.store.staging
    await running.broker.services.batches.staging.sweep()
    assert (area.used_bytes, staging_files(running)) == (0, [])


async def test_s10_a_file_that_cannot_be_removed_keeps_no_other_from_it(
    running: RunningBroker, job: Job
) -> None:
    for body in (b"a", b"b", b"c"):
        await job.stage((0, [body]))
    store = running.broker.store
    first = staging_files(running)[0]
    (store.staging.folder / first).unlink()
    (store.staging.folder / first).mkdir()
    assert await job.abort() == 3
    assert staging_files(running) == [first]
    assert store.staging.used_bytes == 4096
    (store.staging.folder / first).rmdir()
    await running.broker.services.batches.staging.sweep()
    assert store.staging.used_bytes == 0


async def test_s10_an_older_copy_of_a_staging_file_beside_it_is_not_taken_for_it(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        job = Job(running)
        await job.stage((0, [b"a"]), (0, [b"b"]))
    folder = tmp_path / "rocketpy" / "staging"
    (own,) = folder.iterdir()
    (folder / f"{int(own.name) + 5:020d}").write_bytes(own.read_bytes()[:-70])
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        job.running = running
        assert (await job.commit()).outcome == COMMITTED
        assert await bodies(running) == [b"a", b"b"]
        await running.append("T", 1, b"flushes the completion")
        await running.broker.services.batches.commits.remove_stored()
        assert staging_files(running) == []
        assert running.broker.store.staging.used_bytes == 0


async def test_s10_small_files_count_as_the_disk_counts_them(
    running: RunningBroker, job: Job
) -> None:
    for _ in range(20):
        await job.stage((0, [b"a"]))
    assert disk_bytes(running) <= running.broker.store.staging.used_bytes


async def test_s10_a_refused_block_leaves_no_attempt(running: RunningBroker) -> None:
    await running.create_topic("T")
    job = Job(running, topic="nowhere")
    for token in range(20):
        answer = await Task(job, token, token).send(0, b"a")
        assert answer.status.code == ResponseCode.TOPIC_NOT_EXIST
    table = running.broker.services.batches.staging._jobs._jobs
    assert sum(len(found.attempts) for found in table.values()) == 0


async def test_s10_an_attempt_whose_first_block_found_no_room_goes_on(
    monkeypatch: pytest.MonkeyPatch, job: Job
) -> None:
    task = Task(job, 0, 1)
    with monkeypatch.context() as patch:
        before_call(patch, "pwrite", STAGING, failing(errno.ENOSPC))
        answer = await task.send(0, b"a")
    assert answer.status.code == ResponseCode.SERVICE_NOT_AVAILABLE
    answer = await task.send(0, b"a")
    assert answer.status.code == ResponseCode.SUCCESS, answer.status.remark


async def test_s10_keys_count_before_they_are_written(running: RunningBroker) -> None:
    await running.create_topic("T")
    store = running.broker.store.staging
    job = Job(running)
    task = Task(job, 0, 1)
    block = wire_block("T", [b""] * 30, keys=[" ".join("abcdefghij" * 1500)] * 30)
    request = task.block(0, b"")
    request.records, request.record_sizes = block.records, block.record_sizes
    store.bytes_max = int(len(block.records) * 1.3)
    answer = await task.ask(request)
    assert store.used_bytes <= store.bytes_max, (answer, store.used_bytes, store.bytes_max)


def test_s10_a_file_that_another_start_may_read_stops_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with workshop() as folder:
        desk = Desk(folder)
        desk.open()
        task = desk.stage(0, 1, 0, (QUEUE, [b"a"]))
        desk.stop()
        refused = Desk(folder)
        with monkeypatch.context() as patch:
            before_call(patch, "open", STAGING, failing(errno.EMFILE))
            with pytest.raises(OSError, match="Too many open files"):
                refused.open()
        refused.crash()
        desk = Desk(folder)
        desk.open()
        assert desk.commit(0, 1, task).outcome is Outcome.COMMITTED
        assert read_bodies(desk.store, QUEUE) == [b"a"]
        desk.crash()
