"""H04: the master's list of staging files: pages, positions, held requests, and bounds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rocketpy_broker.config import Replication
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.batches.staged_files import (
    CHANGES_A_PAGE,
    HELD_MS_MAX,
    NUMBERS_A_PAGE,
    REMOVED_MAX,
    SILENT_MS_MAX,
    CopyReport,
    StagedFiles,
)
from rocketpy_broker.services.replication.slaves import SlaveTable
from rocketpy_broker.store.staging.area import BatchJob, StagedAttempt, TaskAttempt
from rocketpy_broker.store.staging.file import StagingFile
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.remoting.headers.cluster import LACKING_MAX, StagedFilesRequest
from tests.broker.replication.promotion.test_h04_batches import (
    SYNC,
    TWO,
    changes,
    has_copies,
)
from tests.support.broker.clients.remoting_client import RemotingBroker
from tests.support.broker.running_broker import StartBroker


def attempt(number: int) -> StagedAttempt:
    name = TaskAttempt(BatchJob("w", 0, 1), number, number)
    return StagedAttempt(name, 0, StagingFile(Path(f"{number:020d}")), is_sealed=True)


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


async def test_h04_a_slave_that_copies_for_long_is_waited_for() -> None:
    clock = ManualClock()
    files = StagedFiles(SlaveTable(SYNC, lambda: 0), clock)
    await files.changes(CopyReport("s"))
    one = attempt(0)
    files.completed(one)
    for _ in range(4):
        clock.advance(SILENT_MS_MAX // 2)
        files.note_activity("s")
        files.note_activity("unknown")
    assert not await files.copied([one], 0)
    clock.advance(SILENT_MS_MAX + 1)
    assert await files.copied([one], 0)


@pytest.mark.parametrize("old_count", [1, CHANGES_A_PAGE + 1])
async def test_h04_the_first_pass_ends_after_many_removals(old_count: int) -> None:
    files, gone = list_of(), attempt(old_count)
    for number in range(old_count):
        files.completed(attempt(number))
    for _ in range(REMOVED_MAX + NUMBERS_A_PAGE // 2):
        files.completed(gone)
        files.removed(gone)
    found = await files.changes(CopyReport("s"))
    begins, page_count = 1, 1
    while not found.is_end:
        found = await files.changes(CopyReport("s", found.run_id, found.position))
        begins, page_count = begins + found.is_start, page_count + 1
    assert begins == 1
    assert page_count < 2 * files._end / CHANGES_A_PAGE


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
