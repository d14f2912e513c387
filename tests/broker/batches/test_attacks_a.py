"""Attacks on batches: calls that are cut off while a thread works, and what is put away late."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from rocketpy_broker import clock
from rocketpy_broker.errors import StoreClosedError
from rocketpy_broker.response_code import ResponseCode
from rocketpy_broker.services.batches import staging as staging_module
from rocketpy_broker.services.batches.service import RETRY_MS, Outcome
from rocketpy_broker.store import message_store
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.staging.area import StagedAttempt, StagingArea, disk_bytes
from rocketpy_broker.store.staging.file import FrameReader
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2
from tests.broker.batches.test_hindered import hindered
from tests.broker.batches.writer import Job, Task, bodies, staging_files
from tests.broker.conftest import StartBroker
from tests.faults.batch_use import Desk, check_visible
from tests.faults.images import workshop
from tests.store.messages import flush_log

COMMITTED = broker_pb2.COMMITTED


async def turns(count: int) -> None:
    """Let others do what they can."""
    for _ in range(count):
        await asyncio.sleep(0.001)


class Gate:
    """Holds a call on its thread until it may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        self.reached, self.goes_on = threading.Event(), threading.Event()
        real = getattr(owner, name)

        def held(*arguments: object, **named: object) -> object:
            if not self.reached.is_set():
                self.reached.set()
                assert self.goes_on.wait(60)
            return real(*arguments, **named)

        monkeypatch.setattr(owner, name, held)

    async def wait(self) -> None:
        while not self.reached.is_set():  # noqa: ASYNC110 (a thread tells)
            await asyncio.sleep(0.001)


async def test_s10_a_block_sent_again_after_its_call_was_cut_off_is_staged_once(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        job = Job(running)
        task = Task(job, 0, 1)
        await task.send(0, b"0")
        job.staged.append(task)
        gate = Gate(monkeypatch, StagedAttempt, "write")
        request = task.block(0, b"a")
        call = running.data.StageBlocks(iter([request]))
        asked = asyncio.ensure_future(call.read())
        await gate.wait()
        call.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await turns(50)
        # The client sends what was not answered again, over a new stream.
        resent = asyncio.ensure_future(task.send(0, b"a"))
        await turns(50)
        gate.goes_on.set()
        assert (await resent).status.code == ResponseCode.SUCCESS
        await task.send(0, b"b")
        ended = await task.end()
        assert ended.block_count == task.block_count
        assert ended.record_count == task.record_count
        assert ended.bytes == task.record_bytes
        assert (await job.commit()).outcome == COMMITTED
        assert await bodies(running) == [b"0", b"a", b"b"]


async def test_s10_what_a_cut_off_call_has_staged_counts_against_the_budget(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        job = Job(running)
        task = Task(job, 0, 1)
        gate = Gate(monkeypatch, StagedAttempt, "write")
        call = running.data.StageBlocks(iter([task.block(0, b"a" * 10_000)]))
        asked = asyncio.ensure_future(call.read())
        await gate.wait()
        call.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await turns(20)
        gate.goes_on.set()
        await turns(20)
        area = running.broker.store.staging
        held = sum(disk_bytes(path.stat().st_size) for path in area.folder.iterdir())
        assert area.used_bytes == held
        await job.abort()
        assert (area.used_bytes, staging_files(running)) == (0, [])


async def test_s10_an_abort_that_is_cut_off_leaves_no_files(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        job = Job(running)
        await job.stage((0, [b"a"]))
        await job.stage((0, [b"b"]))
        # A block of another attempt is being written.
        gate = Gate(monkeypatch, StagedAttempt, "write")
        writing = asyncio.ensure_future(Task(job, 7, 7).send(0, b"c"))
        await gate.wait()
        call = running.data.AbortBatch(broker_pb2.AbortBatchRequest(job=job.name))
        await turns(50)
        call.cancel()
        await turns(20)
        gate.goes_on.set()
        await writing
        await running.broker.rooms.batches.staging.sweep()
        area = running.broker.store.staging
        assert (area.used_bytes, staging_files(running)) == (0, [])


async def test_s10_files_that_could_not_be_removed_are_removed_later(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        job = Job(running)
        await job.stage((0, [b"a"]))
        with monkeypatch.context() as patch:

            def fail(*_: object, **__: object) -> None:
                raise OSError(5, "Input/output error")

            patch.setattr(Path, "unlink", fail)
            await job.abort()
        area = running.broker.store.staging
        await running.broker.rooms.batches.staging.sweep()
        assert (area.used_bytes, staging_files(running)) == (0, [])


async def test_s10_a_job_that_begins_to_commit_is_not_put_away_as_idle(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing comes between the check of an attempt and the decision."""
    async with start_broker() as running:
        await running.create_topic("T")
        other, job = Job(running, writer_id="other"), Job(running)
        await other.stage((0, [b"x"]))
        await job.stage((0, [b"a"]))
        gate = Gate(monkeypatch, StagingArea, "remove")
        running.clock.advance(10 * 3_600_000)
        await gate.wait()
        # The other's files are being removed; this job's driver comes back.
        real = clock.give_way

        async def long_turn() -> None:
            gate.goes_on.set()
            for _ in range(100):
                await asyncio.sleep(0.001)
            await real()

        monkeypatch.setattr(staging_module, "give_way", long_turn)
        answer = await job.commit()
        gate.goes_on.set()
        if answer.status.code == ResponseCode.SUCCESS:
            assert (answer.outcome, answer.record_count) == (COMMITTED, 1)
            assert await bodies(running) == [b"a"]
        else:
            assert (await job.query()).outcome == broker_pb2.NOT_COMMITTED


async def test_s10_a_broker_stops_while_a_staging_file_is_read(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        job = Job(running)
        await job.stage((0, [b"a"]))
        gate = Gate(monkeypatch, FrameReader, "next_records")
        answer = await job.commit(wait_ms_max=0)
        assert answer.outcome == broker_pb2.IN_PROGRESS
        await gate.wait()
        threading.Timer(1.0, gate.goes_on.set).start()
    async with start_broker() as running:
        job.running = running
        assert (await job.query()).outcome == COMMITTED
        assert await bodies(running) == [b"a"]


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
        await running.broker.rooms.batches.commits.remove_spent()
        assert staging_files(running) == []
        assert running.broker.store.staging.used_bytes == 0


async def test_s10_a_topic_deleted_before_a_restart_takes_what_was_staged(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        job = Job(running)
        await job.stage((0, [b"a"]))

        await running.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(topic="T"))
        await running.create_topic("T")
    async with start_broker() as running:
        job.running = running
        answer = await job.commit()
        assert answer.status.code != ResponseCode.SUCCESS
        assert await bodies(running) == []


async def test_s10_a_topic_deleted_in_the_middle_is_no_loss(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:

    append, left = MessageStore.append, [99]

    def counted(store: MessageStore, *arguments: object) -> object:
        if left[0] == 0:
            raise StoreClosedError("no room")
        left[0] -= 1
        return append(store, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(MessageStore, "append", counted)
    monkeypatch.setattr(message_store, "FRAME_BYTES", 1)
    async with start_broker() as running:
        await running.create_topic("T")
        await running.create_topic("U")
        job = Job(running)
        await job.stage((0, [b"a", b"b", b"c"]))
        job.topic = "U"
        await job.stage((0, [b"d", b"e"]))
        left[0] = 2
        await hindered(job)
        await running.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(topic="T"))
        left[0] = 1
        running.clock.advance(RETRY_MS)
        pending = running.broker.rooms.batches.commits._pending[job.writer_id]
        while pending.passed < 4:  # noqa: ASYNC110 (nothing else tells)
            await asyncio.sleep(0)
    left[0] = 99
    async with start_broker() as running:
        job.running = running
        answer = await job.query()
        assert await bodies(running, topic="U") == [b"d", b"e"]
        assert (answer.outcome, answer.record_count) == (COMMITTED, 5)


@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_s10_a_batch_is_stored_once_though_its_decision_is_damaged_behind_its_completion(
    flush: FlushDiskType,
) -> None:
    with workshop() as folder:
        desk = Desk(folder, flush)
        desk.open()
        desk.write(0, 1)
        desk.write(1, 1)
        flush_log(desk.store)
        desk.crash()
        segment = folder / "commitlog" / f"{0:020d}"
        content = bytearray(segment.read_bytes())
        content[content.index(b'"batchId":0') + 3] ^= 1
        content[content.index(b'"batchId":1') + 3] ^= 1
        segment.write_bytes(content)
        desk = Desk(folder, flush)
        desk.open()
        assert desk.write(1, 2).outcome is Outcome.ALREADY_COMMITTED
        check_visible(desk, [0, 1])
        desk.crash()
