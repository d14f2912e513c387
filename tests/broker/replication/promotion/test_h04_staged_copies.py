"""H04: copies of staging files: errors of one file, restarts, hostile masters, and bounds."""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from rocketpy_broker.config import BrokerRole, Replication
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.batches.service import UNCOPIED
from rocketpy_broker.services.batches.staged_files import (
    StagedFiles,
)
from rocketpy_broker.services.slave.staging_sync import RETRY_MS
from rocketpy_broker.store.files import durable
from rocketpy_broker.store.staging.area import StagedAttempt
from rocketpy_broker.store.staging.copy import StagedCopy
from rocketpy_broker.store.staging.file import ATTEMPT_BYTES_MAX, StagingFile
from rocketpy_broker.store.staging.frames import (
    BlockPosition,
    FrameHead,
    FrameKind,
    attempt_frame,
    seal_frame,
)
from rocketpy_proto.model.codes import RequestCode, ResponseCode
from rocketpy_proto.remoting import RemotingCommand
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.broker.replication.pair import Pair, pair, slave_config
from tests.broker.replication.pair import until as until_later
from tests.broker.replication.promotion.test_h04_batches import (
    SYNC,
    TWO,
    copied,
    has_copies,
    offer,
    staged,
)
from tests.support.broker.clients.batch_writer import Job, Task, staging_files
from tests.support.broker.clients.remoting_relay import Answer, relayed
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.store.disk_calls import DiskCall, before_call, failing, holding

MASTERS, SLAVES = "*/master/rocketpy/staging/*", "*/slave/rocketpy/staging/*"
CONTENT = {"writerId": "w", "batchId": 0, "jobToken": 1, "task": 0, "taskToken": 1, "logEnd": 0}
OTHER_VALUES: list[object] = [[], {}, None, "", 1.5, 1 << 64]


@dataclass
class RestartablePair(Pair):
    """A pair whose master can stop, and start again at its port."""

    begin: Callable[[int | None], AbstractAsyncContextManager[RunningBroker]]
    running: AsyncExitStack

    async def stop_master(self) -> None:
        await self.running.aclose()

    async def start_master(self) -> None:
        again = self.begin(self.master.ready.remoting_port)
        self.master = await self.running.enter_async_context(again)


@asynccontextmanager
async def restartable(
    start_broker: StartBroker, answer: Answer = lambda _: None
) -> AsyncIterator[RestartablePair]:
    clock = ManualClock()

    def begin(port: int | None) -> AbstractAsyncContextManager[RunningBroker]:
        return start_broker(replication=TWO, remoting_port=port, folder="master", clock=clock)

    async with AsyncExitStack() as running:
        master = await running.enter_async_context(begin(0))
        async with (
            relayed(master, answer) as reached,
            start_broker(replication=slave_config(reached), clock=clock, folder="slave") as slave,
        ):
            yield RestartablePair(master, slave, begin, running)


async def test_h04_an_error_at_the_begin_of_a_new_run_loses_no_copies(
    start_broker: StartBroker,
) -> None:
    errors = list[ResponseCode]()

    def answer(request: RemotingCommand) -> RemotingCommand | None:
        is_piece = request.code == RequestCode.READ_STAGED_FILE
        return request.answer(errors.pop()) if errors and is_piece else None

    async with restartable(start_broker, answer) as both:
        await staged(both)
        names = staging_files(both.master)
        await both.stop_master()
        # The slave has to copy this file again, which fails at first.
        (both.slave.broker.store.staging.folder / min(names)).unlink()
        errors.append(ResponseCode.SYSTEM_ERROR)
        await both.start_master()
        await both.until(lambda: not errors)
        await Job(both.master, writer_id="another").stage((0, [b"x"]))
        await copied(both)
        assert {*names} < {*staging_files(both.slave)}


async def test_h04_a_file_that_the_master_cannot_read_holds_up_no_other_writer(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_call(monkeypatch, "pread", f"*/staging/{0:020d}", failing(errno.EIO))
    async with pair(start_broker, TWO) as both:
        await both.master.create_topic("T", queues=1)
        await both.synced()
        await Job(both.master, writer_id="other").stage((0, [b"x"]))
        job = Job(both.master)
        await job.stage((0, [b"a"]))
        assert (await committed(both, job)).outcome == broker_pb2.COMMITTED


async def test_h04_a_file_that_the_slave_cannot_write_holds_up_its_batch_only(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = [errno.EFBIG]

    def full(call: DiskCall) -> None:
        if bad:
            failing(bad[0])(call)

    before_call(monkeypatch, "pwrite", f"*/staging/{0:020d}.tmp", full)
    async with pair(start_broker, TWO) as both:
        await both.master.create_topic("T", queues=1)
        await both.synced()
        hindered, job = Job(both.master, writer_id="other"), Job(both.master)
        await hindered.stage((0, [b"x"]))
        await job.stage((0, [b"a"]))
        assert (await committed(both, job)).outcome == broker_pb2.COMMITTED
        answer = await hindered.commit(wait_ms_max=0)
        assert (answer.outcome, answer.hindrance) == (broker_pb2.NOT_COMMITTED, UNCOPIED)
        bad.clear()
        both.master.clock.advance(RETRY_MS)
        assert (await committed(both, hindered)).outcome == broker_pb2.COMMITTED


async def committed(both: Pair, job: Job) -> broker_pb2.BatchResponse:
    """Commits a job while the clock goes on."""
    committing = asyncio.ensure_future(job.commit())
    await both.until(committing.done)
    return committing.result()


async def test_h04_a_restarted_slave_is_counted_once(start_broker: StartBroker) -> None:
    three = Replication(BrokerRole.SYNC_MASTER, port=0, in_sync_replicas=3)
    async with start_broker(replication=three, remoting_port=0, folder="master") as master:
        files, clock = master.broker.services.batches.files, master.clock
        await master.create_topic("T", queues=1)
        await Job(master).stage((0, [b"a"]))
        for _ in range(2):
            async with start_broker(
                replication=slave_config(master), clock=clock, folder="slave"
            ) as slave:
                await until_later(clock, lambda: reached(files) == [files._end])
                assert staging_files(slave) == staging_files(master)
        assert not has_copies(files)


def reached(files: StagedFiles) -> list[int]:
    return [each.position for each in files._copiers.values()]


@pytest.mark.parametrize(("config", "is_decided"), [(TWO, False), (SYNC, True)])
async def test_h04_in_sync_replicas_are_waited_for_also_when_no_slave_has_asked(
    start_broker: StartBroker, config: Replication, is_decided: bool
) -> None:
    async with start_broker(replication=config) as running:
        await running.create_topic("T", queues=1)
        job = Job(running)
        await job.stage((0, [b"a"]))
        answer = await job.commit(wait_ms_max=0)
        assert (answer.hindrance != UNCOPIED) is is_decided


# --- Ends of attempts ---


async def test_h04_an_end_that_is_cancelled_and_repeated_is_copied(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(start_broker, TWO) as both:
        await both.master.create_topic("T", queues=1)
        await both.synced()
        job = Job(both.master)
        task = Task(job, 0, 1)
        await task.send(0, b"a")
        files = both.master.broker.services.batches.files
        request = broker_pb2.StageBlocksRequest(
            job=job.name, task=0, task_token=1, block_number=1, is_last=True
        )
        with holding(monkeypatch, "close", MASTERS) as gate:
            call = both.master.data.StageBlocks(iter([request]))
            reading = asyncio.ensure_future(call.read())
            await gate.reached()
            call.cancel()
            await asyncio.wait([reading])
        assert (await task.end()).status.code == 0
        job.staged.append(task)
        assert (await committed(both, job)).outcome == broker_pb2.COMMITTED
        assert files._end


async def test_h04_a_commit_during_an_end_waits_for_its_copy(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(start_broker, TWO) as both:
        await both.master.create_topic("T", queues=1)
        await both.synced()
        job = Job(both.master)
        task = Task(job, 0, 1)
        await task.send(0, b"a")
        job.staged.append(task)
        before_call(monkeypatch, "open", SLAVES, failing(errno.ENOSPC))
        with holding(monkeypatch, "close", MASTERS) as gate:
            ending = asyncio.ensure_future(task.end())
            await gate.reached()
            committing = asyncio.ensure_future(job.commit(wait_ms_max=0))
            await asyncio.sleep(0.05)
        assert (await ending).status.code == 0
        answer = await committing
        assert (answer.outcome, answer.hindrance) == (broker_pb2.NOT_COMMITTED, UNCOPIED)


# --- Restarts ---


async def test_h04_a_name_that_comes_again_is_another_file(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with restartable(start_broker) as both:
        await both.master.create_topic("T", queues=1)
        await both.synced()
        await Job(both.master, writer_id="aborted").stage((0, [b"x"]), token=1)
        await copied(both)
        await both.stop_master()
        # The end of an abort that the slave has not heard of.
        [name] = staging_files(both.slave)
        (tmp_path / "master" / "rocketpy" / "staging" / name).unlink()
        await both.start_master()
        await Job(both.master).stage((0, [b"a"]), token=1)
        await copied(both)
        paths = [each.broker.store.staging.folder / name for each in (both.master, both.slave)]
        assert paths[0].read_bytes() == paths[1].read_bytes()


async def test_h04_a_copy_that_cannot_be_read_once_is_not_removed(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_broker(replication=TWO, remoting_port=0, folder="master") as master:
        config, clock = slave_config(master), master.clock
        async with start_broker(replication=config, clock=clock, folder="slave") as slave:
            await staged(Pair(master, slave))
            names = staging_files(slave)
        errors = [errno.EMFILE]

        def look(call: DiskCall) -> None:
            if errors:
                failing(errors.pop())(call)

        removed: list[Path] = []
        monkeypatch.setattr(durable, "remove_files", removed.extend)
        async with start_broker(replication=config, clock=clock, folder="slave") as slave:
            before_call(monkeypatch, "open", SLAVES, look)
            folder = slave.broker.store.staging.folder
            (folder / "lost+found").mkdir()
            await copied_but(master, clock)
            assert not {each.name for each in removed} & {*names, "lost+found"}


async def copied_but(master: RunningBroker, clock: ManualClock) -> None:
    """Waits until a slave has all files, after it has lacked some."""
    files = master.broker.services.batches.files
    await until_later(clock, lambda: any(each.lacking for each in files._copiers.values()))
    await until_later(clock, lambda: has_copies(files))


# --- Files of a hostile master ---


@pytest.mark.parametrize(
    "content",
    [
        b"[" * (ATTEMPT_BYTES_MAX // 2),
        b"{" * (ATTEMPT_BYTES_MAX // 2),
        b'{"x":' + b"[" * (ATTEMPT_BYTES_MAX // 2),
        b"",
        b"\xff",
        b"null",
        b" " * ATTEMPT_BYTES_MAX + json.dumps(CONTENT).encode(),
        *(
            json.dumps({**CONTENT, name: value}).encode()
            for name, value in itertools.product(CONTENT, OTHER_VALUES)
        ),
        *(
            json.dumps({each: CONTENT[each] for each in CONTENT if each != name}).encode()
            for name in CONTENT
        ),
    ],
)
def test_h04_a_frame_that_no_broker_has_written_is_no_attempt(
    tmp_path: Path, content: bytes
) -> None:
    path = staging_file(tmp_path / f"{0:020d}", content)
    assert StagedAttempt.read(path) is None
    assert not StagedCopy(path, 1).is_there()


def test_h04_a_frame_that_names_more_bytes_than_its_file_has_takes_no_memory(
    tmp_path: Path,
) -> None:
    path = tmp_path / f"{0:020d}"
    end = StagingFile(path).create(attempt_frame(json.dumps(CONTENT).encode()))
    most = (1 << 31) - 1
    head = FrameHead(FrameKind.BLOCK, True, 1, 0, 0, most, 0, most, most, 0)
    with path.open("r+b") as file:
        file.seek(end)
        file.write(head.to_bytes())
    found = StagedAttempt.read(path)
    assert found is not None
    assert not StagedCopy(path, found.fingerprint).is_there()


def staging_file(path: Path, content: bytes) -> Path:
    """Writes a sealed file without blocks."""
    file = StagingFile(path)
    end = file.create(attempt_frame(content))
    file.append(end, [seal_frame(BlockPosition(0, 0))])
    return path


async def test_h04_a_hostile_file_ends_no_slave(start_broker: StartBroker) -> None:
    async with pair(start_broker, TWO) as both:
        await both.synced()
        folder = both.master.broker.store.staging.folder
        folder.mkdir(exist_ok=True)
        for number, content in enumerate([b"[" * 8_000, b"null", json.dumps(CONTENT).encode()]):
            path = staging_file(folder / f"{900 + number:020d}", content)
            found = StagedAttempt.read(path)
            offer(both.master, path.name, 1 if found is None else found.fingerprint)
        copies = both.slave.broker.store.staging.folder
        await both.until(lambda: [each.name for each in copies.glob("*")] == [f"{902:020d}"])
