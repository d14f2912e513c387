"""H04: copies of staging files: errors of one file, restarts, hostile masters, and bounds."""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rocketpy_broker.config import BrokerRole, Replication
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.server.remoting.processors.replication import processor
from rocketpy_broker.services.batches.service import UNCOPIED
from rocketpy_broker.services.batches.staged_files import (
    CHANGES_A_PAGE,
    HELD_MS_MAX,
    REMOVED_MAX,
    CopyReport,
    StagedFiles,
)
from rocketpy_broker.services.replication.slaves import SlaveTable
from rocketpy_broker.services.slave.errors import MasterLostError
from rocketpy_broker.services.slave.staging_sync import RETRY_MS
from rocketpy_broker.store.staging.area import BatchJob, StagedAttempt, TaskAttempt
from rocketpy_broker.store.staging.copy import StagedCopy
from rocketpy_broker.store.staging.file import ATTEMPT_BYTES_MAX, StagingFile
from rocketpy_broker.store.staging.frames import (
    BlockPosition,
    FrameHead,
    FrameKind,
    attempt_frame,
    seal_frame,
)
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.remoting.headers.cluster import LACKING_MAX, StagedFilesRequest
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.broker.replication.pair import Pair, pair, slave_config
from tests.broker.replication.pair import until as until_later
from tests.broker.replication.test_h04_batches import (
    SYNC,
    TWO,
    changes,
    copied,
    has_copies,
    offer,
    staged,
)
from tests.support.broker.batch_writer import Job, staging_files
from tests.support.broker.remoting_client import RemotingBroker
from tests.support.broker.running_broker import StartBroker

CONTENT = {"writerId": "w", "batchId": 0, "jobToken": 1, "task": 0, "taskToken": 1, "logEnd": 0}
OTHER_VALUES: list[object] = [[], {}, None, "", 1.5, 1 << 64]


async def test_h04_an_error_at_the_begin_of_a_new_run_loses_no_copies(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, stack, first = ManualClock(), AsyncExitStack(), AsyncExitStack()
    async with stack:
        master = await first.enter_async_context(
            start_broker(replication=TWO, remoting_port=0, folder="master", clock=clock)
        )
        config, port = slave_config(master), master.ready.remoting_port
        slave = await stack.enter_async_context(
            start_broker(replication=config, clock=clock, folder="slave")
        )
        await staged(Pair(master, slave))
        names = staging_files(master)
        await first.aclose()
        errors = failing_once(monkeypatch)
        master = await stack.enter_async_context(
            start_broker(replication=TWO, remoting_port=port, folder="master", clock=clock)
        )
        await until_later(clock, lambda: not errors)
        await Job(master, writer_id="another").stage((0, [b"x"]))
        await copied(Pair(master, slave))
        assert {*names} < {*staging_files(slave)}


def failing_once(monkeypatch: pytest.MonkeyPatch) -> list[MasterLostError]:
    """Loses the master at the next look at a copy; the returned list is empty then."""
    errors, real = [MasterLostError("127.0.0.1:1: it is gone")], StagedCopy.is_there

    def look(copy: StagedCopy) -> bool:
        if errors:
            raise errors.pop()
        return real(copy)

    monkeypatch.setattr(StagedCopy, "is_there", look)
    return errors


async def test_h04_a_file_that_the_master_cannot_read_holds_up_no_other_writer(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, bad = processor._piece, f"{0:020d}"

    def piece(path: Path, position: int) -> bytes:
        if path.name == bad:
            raise OSError(errno.EIO, "a bad sector")
        return real(path, position)

    monkeypatch.setattr(processor, "_piece", piece)
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
    real, bad = StagedCopy.add, {f"{0:020d}"}

    def add(copy: StagedCopy, data: bytes) -> None:
        if copy._path.name in bad:
            raise OSError(errno.EFBIG, "file too large")
        real(copy, data)

    monkeypatch.setattr(StagedCopy, "add", add)
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
    assert StagedAttempt.read(path) is not None
    assert not StagedCopy(path, 1).is_there()


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
            offer(both.master, path.name, 1)
        copies = both.slave.broker.store.staging.folder
        await both.until(lambda: [each.name for each in copies.glob("*")] == [f"{902:020d}"])


# --- Bounds ---


def attempt(number: int) -> StagedAttempt:
    name = TaskAttempt(BatchJob("w", 0, 1), number, number)
    return StagedAttempt(name, 0, StagingFile(Path(f"{number:020d}")))


def list_of(config: Replication = TWO) -> StagedFiles:
    return StagedFiles(SlaveTable(config, lambda: 0), ManualClock())


async def test_h04_a_master_that_waits_for_no_slave_looks_at_no_file() -> None:
    named = map(attempt, range(3))
    assert await list_of(Replication()).copied(named, 0)
    assert len([*named]) == 3


async def test_h04_changes_come_in_pages_and_removed_files_in_none() -> None:
    files = list_of()
    attempts = [attempt(each) for each in range(2 * CHANGES_A_PAGE + 1)]
    for each in attempts:
        files.completed(each)
    files.removed(attempts[0])
    seen: list[str] = []
    found = await files.changes(CopyReport("s"))
    assert found.is_start
    while not found.is_end:
        seen += [each.name for each in found.changes]
        found = await files.changes(CopyReport("s", found.run_id, found.position))
        assert not found.is_start
    seen += [each.name for each in found.changes if not each.is_removed]
    assert seen == [each.file.path.name for each in attempts[1:]]


async def test_h04_a_slave_that_lacks_forgotten_removals_begins_again() -> None:
    files = list_of()
    kept, gone = attempt(0), attempt(1)
    files.completed(kept)
    late = await files.changes(CopyReport("late"))
    for _ in range(REMOVED_MAX):
        files.completed(gone)
        files.removed(gone)
    follows = await files.changes(CopyReport("late", late.run_id, late.position))
    assert not follows.is_start
    files.completed(gone)
    files.removed(gone)
    assert len(files._changes) == REMOVED_MAX + 1
    again = await files.changes(CopyReport("late", late.run_id, late.position))
    assert (again.is_start, again.changes[0].name) == (True, kept.file.path.name)


@pytest.mark.parametrize("position", [2, -1, 1 << 62])
async def test_h04_a_position_that_the_master_does_not_have_is_no_copy(position: int) -> None:
    files = list_of()
    files.completed(attempt(0))
    found = await files.changes(CopyReport("s"))
    found = await files.changes(CopyReport("s", found.run_id, position))
    assert found.is_start
    assert not has_copies(files)


async def test_h04_a_slave_has_one_held_request() -> None:
    files = list_of()
    found = await files.changes(CopyReport("s"))
    report = CopyReport("s", found.run_id, found.position)
    first = asyncio.ensure_future(files.changes(report))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(files.changes(report))
    assert (await first).changes == []
    assert len(files._held) == 1
    files.completed(attempt(0))
    assert len((await second).changes) == 1
    assert not files._held


async def test_h04_a_held_request_ends_with_the_broker_and_in_time() -> None:
    clock = ManualClock()
    files = StagedFiles(SlaveTable(TWO, lambda: 0), clock)
    found = await files.changes(CopyReport("s"))
    report = CopyReport("s", found.run_id, found.position)
    held = asyncio.ensure_future(files.changes(report))
    await asyncio.sleep(0)
    clock.advance(HELD_MS_MAX)
    assert (await held).changes == []
    held = asyncio.ensure_future(files.changes(report))
    await asyncio.sleep(0)
    files.stop()
    assert (await held).changes == []
    assert (await files.changes(report)).changes == []


async def test_h04_a_slave_names_no_more_than_some_files(start_broker: StartBroker) -> None:
    async with (
        start_broker(replication=TWO, remoting_port=0) as running,
        RemotingBroker.of(running) as remoting,
    ):
        names = ",".join(f"{each:020d}" for each in range(LACKING_MAX + 1))
        request = StagedFilesRequest("1", lacking=names)
        answer = await remoting.client.ask(Code.GET_STAGED_FILES, request)
        assert "lacking is 101" in str(answer.remark)
        assert (await changes(remoting.client))[0].is_start
