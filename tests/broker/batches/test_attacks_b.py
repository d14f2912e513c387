"""One client against all others: cancelled calls, refused blocks, many small files, slow disks."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterator

import pytest

from rocketpy_broker.response_code import ResponseCode
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.staging.area import StagedAttempt
from rocketpy_broker.store.staging.file import StagingFile
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.blocks import wire_block
from tests.broker.batches.writer import Job, Task, staging_files
from tests.broker.conftest import RunningBroker, StartBroker


class Gate:
    """Holds threads up until it opens."""

    def __init__(self) -> None:
        self.is_open = threading.Event()
        self.waiting = 0
        self.passed = 0

    def __call__(self) -> None:
        self.waiting += 1
        self.is_open.wait()
        self.passed += 1


@pytest.fixture
def gate() -> Iterator[Gate]:
    """A gate that is open at the end, so that threads end."""
    made = Gate()
    yield made
    made.is_open.set()


def hold_writes(monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
    """Let every block wait at the gate before it is written."""
    write = StagedAttempt.write

    def held(staged: StagedAttempt, *arguments: object) -> None:
        gate()
        write(staged, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(StagedAttempt, "write", held)


async def until_true(condition: Callable[[], bool]) -> None:
    """Let the loop run until something is true."""
    while not condition():  # noqa: ASYNC110 (nothing else tells)
        await asyncio.sleep(0.001)


def disk_bytes(running: RunningBroker) -> int:
    """What the files of the staging area take on the disk."""
    folder = running.broker.store.staging.folder
    return sum(path.stat().st_blocks * 512 for path in folder.iterdir())


async def test_a_cancelled_block_stays_in_the_count(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    hold_writes(monkeypatch, gate)
    async with start_broker() as running:
        await running.create_topic("T")
        job = Job(running)
        task = Task(job, 0, 1)
        call = running.data.StageBlocks(iter([task.block(0, b"a" * 10_000)]))
        await until_true(lambda: gate.waiting == 1)
        call.cancel()
        # The broker's turn: it learns of the end of the stream while the thread writes.
        await asyncio.sleep(0.2)
        gate.is_open.set()
        await until_true(lambda: gate.passed == 1)
        await until_true(lambda: disk_bytes(running) > 0)
        await job.abort()
        assert staging_files(running) == []
        assert running.broker.store.staging.used_bytes == 0


async def test_a_cancelled_abort_leaves_no_file(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        job = Job(running)
        first = await job.stage((0, [b"a"]))
        hold_writes(monkeypatch, gate)
        busy = Task(job, 7, 8)
        staging = running.data.StageBlocks(iter([busy.block(0, b"b")]))
        await until_true(lambda: gate.waiting == 1)
        abort = running.data.AbortBatch(broker_pb2.AbortBatchRequest(job=job.name))
        table = running.broker.rooms.batches.staging._jobs._jobs
        await until_true(lambda: not table)
        abort.cancel()
        await asyncio.sleep(0.2)
        gate.is_open.set()
        await staging.read()
        await until_true(lambda: gate.passed == 1)
        assert first.block_count == 1
        await asyncio.sleep(0.2)
        await running.broker.rooms.batches.staging.sweep()
        assert staging_files(running) == []
        assert running.broker.store.staging.used_bytes == 0


async def test_small_files_count_as_the_disk_counts_them(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        job = Job(running)
        for _ in range(20):
            await job.stage((0, [b"a"]))
        assert disk_bytes(running) <= running.broker.store.staging.used_bytes


async def test_a_refused_block_leaves_no_attempt(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        job = Job(running, topic="nowhere")
        for token in range(20):
            answer = await Task(job, token, token).send(0, b"a")
            assert answer.status.code == ResponseCode.TOPIC_NOT_EXIST
        table = running.broker.rooms.batches.staging._jobs._jobs
        assert sum(len(found.attempts) for found in table.values()) == 0


async def test_an_attempt_whose_first_block_found_no_room_goes_on(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        job = Job(running)
        task = Task(job, 0, 1)
        append = StagingFile.append

        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(StagingFile, "append", full)
        answer = await task.send(0, b"a")
        assert answer.status.code == ResponseCode.SERVICE_NOT_AVAILABLE
        monkeypatch.setattr(StagingFile, "append", append)
        answer = await task.send(0, b"a")
        assert answer.status.code == ResponseCode.SUCCESS, answer.status.remark


async def test_flushes_of_one_job_do_not_hold_another_up(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    flush = StagingFile.flush

    def held(file: StagingFile) -> None:
        gate()
        flush(file)

    async with start_broker(flush=FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        large = Job(running)
        tasks = [Task(large, number, 1) for number in range(8)]
        for task in tasks:
            await task.send(0, b"a")
        monkeypatch.setattr(StagingFile, "flush", held)
        ends = [asyncio.ensure_future(task.end()) for task in tasks]
        await until_true(lambda: gate.waiting >= 4)
        other = Task(Job(running, writer_id="another"), 0, 1)
        answer = asyncio.ensure_future(other.send(0, b"b"))
        done, _ = await asyncio.wait([answer], timeout=2)
        gate.is_open.set()
        await asyncio.gather(*ends)
        assert done


async def test_keys_count_before_they_are_written(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        store = running.broker.store.staging
        job = Job(running)
        task = Task(job, 0, 1)
        block = wire_block("T", [b""] * 30, keys=[" ".join("abcdefghij" * 1500)] * 30)
        request = task.block(0, b"")
        request.records, request.record_sizes = block.records, block.record_sizes
        store._bytes_max = int(len(block.records) * 1.3)
        answer = await task.ask(request)
        assert store.used_bytes <= store._bytes_max, (answer, store.used_bytes, store._bytes_max)
