"""Backups of a running broker's store: of one moment, one at a time, while cleaning waits."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import pytest

from rocketpy_broker.errors import StoreClosedError
from rocketpy_broker.services.admin.backup_service import (
    STALL_MS_MAX,
    BackupError,
    BackupService,
    BackupStart,
    BackupStep,
)
from rocketpy_broker.store.backup.target import BackupTarget
from rocketpy_broker.store.check.read_only import StoreSizes
from rocketpy_broker.store.check.whole_store import Fault, StoreCheck
from rocketpy_broker.store.cleaner import CleanPolicy, WaitReason
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.rocketpy.v1 import admin_pb2
from tests.support.broker.running_broker import RunningBroker, StartBroker, until
from tests.support.store.messages import read_all
from tests.support.store.stores import store_in

QUEUE = QueueKey("T", 0)
BODY = bytes(300_000)
Steps = AsyncGenerator[BackupStep, None]


def service(running: RunningBroker) -> BackupService:
    return running.broker.services.admin.backups


def paths(steps: list[BackupStep]) -> list[str]:
    return [piece.path for step in steps if isinstance(step, list) for piece in step]


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a path for a copy, outside the store."""
    return tmp_path_factory.mktemp("copies") / "copy"


def copied(running: RunningBroker, steps: list[BackupStep], folder: Path) -> MessageStore:
    """Asserts that a check finds no fault in the copy; returns it as an opened store."""
    config = running.broker.store.config
    sizes = config.commit_log_segment_bytes, config.consume_queue_file_bytes
    with BackupTarget(folder) as target:
        for step in steps:
            if isinstance(step, BackupStart):
                start = step
                target.begin(step.total_bytes)
            else:
                for piece in step:
                    target.write(piece)
        target.leave_as_stopped(start.log_end, sizes[0])
        target.note_end(start.log_end)
        target.finish()
    found = StoreCheck(folder, StoreSizes.of(folder)).run()
    assert [one for one in found if isinstance(one, Fault)] == []
    store = store_in(folder, segment_bytes=sizes[0], queue_file_bytes=sizes[1])
    result = store.open()
    assert (result.abnormal, result.in_doubt, result.records_scanned) == (False, [], 0)
    return store


async def filled(running: RunningBroker, count: int = 10) -> None:
    await running.create_topic("T")
    for number in range(count):
        assert (await running.append("T", 0, b"%d" % number + BODY)).status.code == 0


@pytest.mark.parametrize("flush", list(FlushDiskType))
async def test_b13_a_copy_is_as_the_store_was_and_starts_without_a_look_at_the_log(
    start_broker: StartBroker, place: Path, flush: FlushDiskType
) -> None:
    async with start_broker(flush) as running:
        await filled(running)
        steps: list[BackupStep] = []
        async with aclosing(service(running).run()) as run:
            async for step in run:
                steps.append(step)
                # Messages that are sent meanwhile are not in the copy.
                await running.append("T", 0, b"later")
        original = running.broker.store
        store = copied(running, steps, place)
        assert read_all(store, QUEUE) == [b"%d" % number + BODY for number in range(10)]
        assert store.store_id == original.store_id
        newest = original.recoveries.newest_id
        [start] = [step for step in steps if isinstance(step, BackupStart)]
        # Queries that have read further are notified where the copy ends.
        assert store.recoveries.log_end_since(newest) == start.log_end
        store.close()


async def test_b13_an_empty_store_and_one_that_was_cleaned_can_be_copied(
    start_broker: StartBroker, place: Path, tmp_path: Path
) -> None:
    policy = CleanPolicy(confirm_ms=0)
    async with start_broker(FlushDiskType.SYNC_FLUSH, clean_policy=policy) as running:
        empty = [step async for step in service(running).run()]
        copied(running, empty, place).close()
        await filled(running)
        await running.append("T", 1, BODY)
        clean = running.broker.services.admin.store_admin.clean_expired_files
        for path in (tmp_path / "commitlog").iterdir():
            os.utime(path, (1, 1))
        cleaning = asyncio.ensure_future(clean())
        while not cleaning.done():
            running.clock.advance(100)
            await asyncio.sleep(0)
        assert cleaning.result().removed_file_count > 0
        steps = [step async for step in service(running).run()]
        store = copied(running, steps, place.with_name("cleaned"))
        assert store.range_of(QUEUE) == running.broker.store.range_of(QUEUE)
        assert store.positions().log_begin == running.broker.store.positions().log_begin > 0
        # Segments of the copy expire by their ages, too.
        first = min((store.config.folder / "commitlog").iterdir())
        assert first.stat().st_mtime == 1
        store.close()


async def test_b13_a_queue_whose_messages_are_all_gone_goes_on_where_it_was(
    start_broker: StartBroker, place: Path, tmp_path: Path
) -> None:
    async with start_broker(
        FlushDiskType.SYNC_FLUSH,
        clean_policy=CleanPolicy(confirm_ms=0),
        consume_queue_file_bytes=20,
    ) as running:
        await running.create_topic("T")
        await running.append("T", 1, b"a", b"b", b"c")
        for _ in range(10):
            await running.append("T", 0, BODY)
        for path in (tmp_path / "commitlog").iterdir():
            os.utime(path, (1, 1))
        cleaning = asyncio.ensure_future(
            running.broker.services.admin.store_admin.clean_expired_files()
        )
        while not cleaning.done():
            running.clock.advance(100)
            await asyncio.sleep(0)
        gone = QueueKey("T", 1)
        bounds = running.broker.store.range_of(gone)
        assert bounds.min_offset == bounds.max_offset == 3
        steps = [step async for step in service(running).run()]
        store = copied(running, steps, place)
        assert store.range_of(gone) == bounds
        store.close()


async def test_b13_one_backup_runs_at_a_time(running: RunningBroker) -> None:
    await filled(running, 2)
    async with aclosing(service(running).run()) as first:
        assert isinstance(await anext(first), BackupStart)
        with pytest.raises(BackupError, match="another backup of the store is running"):
            await anext(service(running).run())
        call = running.admin.BackupStore(admin_pb2.BackupStoreRequest())
        [answer] = [response async for response in call]
        assert (answer.status.code, answer.is_complete) == (BackupError.code, False)
    async with aclosing(service(running).run()) as again:
        assert isinstance(await anext(again), BackupStart)


async def test_b13_cleaning_waits_for_a_backup_and_says_so(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker(
        FlushDiskType.SYNC_FLUSH, clean_policy=CleanPolicy(confirm_ms=0)
    ) as running:
        await filled(running)
        for path in (tmp_path / "commitlog").iterdir():
            os.utime(path, (1, 1))
        clean = running.broker.services.admin.store_admin.clean_expired_files
        async with aclosing(service(running).run()) as run:
            await anext(run)
            cleaned = await clean()
            assert cleaned.removed_file_count == 0
            reasons = [wait.reason for wait in cleaned.waiting_segments]
            assert reasons == [WaitReason.NEEDED.value]
        assert running.broker.store.segment_waits(manual=True)[0].reason is WaitReason.BATCH


async def test_b13_a_backup_that_nobody_reads_gives_way(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker(
        FlushDiskType.SYNC_FLUSH, clean_policy=CleanPolicy(confirm_ms=0)
    ) as running:
        await filled(running)
        for path in (tmp_path / "commitlog").iterdir():
            os.utime(path, (1, 1))
        async with aclosing(service(running).run()) as run:
            await anext(run)
            running.clock.advance(STALL_MS_MAX + 1)
            assert running.broker.store.segment_waits(manual=True)[0].reason is WaitReason.BATCH
            async with aclosing(service(running).run()) as other:
                assert isinstance(await anext(other), BackupStart)
                with pytest.raises(BackupError, match="was not read for 120 s"):
                    await anext(run)
                await anext(other)


async def test_b13_a_topic_that_is_deleted_meanwhile_makes_the_copy_start_again(
    place: Path, running: RunningBroker
) -> None:
    await filled(running, 3)
    await running.create_topic("Short")
    await running.append("Short", 0, b"x")
    steps: list[BackupStep] = []
    async with aclosing(service(running).run()) as run:
        async for step in run:
            if not steps:
                request = admin_pb2.DeleteTopicRequest(topic="Short")
                assert (await running.admin.DeleteTopic(request)).status.code == 0
            steps.append(step)
    assert [isinstance(step, BackupStart) for step in steps].count(True) == 2
    store = copied(running, steps, place)
    assert {queue.topic for queue in store.queues()} == {"T"}
    store.close()


async def test_b13_a_topic_deleted_at_every_start_ends_the_backup(running: RunningBroker) -> None:
    await running.create_topic("T")

    async def delete_at_each_step() -> None:
        async for _ in service(running).run():
            running.broker.store.deletion_counts["T"] += 1

    with pytest.raises(BackupError, match="topics were deleted during each of 10 starts"):
        await delete_at_each_step()


async def test_b13_a_store_that_takes_no_messages_is_backed_up_when_it_is_stopped(
    running: RunningBroker,
) -> None:
    await filled(running, 1)
    running.broker.store.flush_failed(OSError(5, "Input/output error"))
    with pytest.raises(StoreClosedError, match="cannot be backed up while its broker runs"):
        await anext(service(running).run())


async def test_b13_a_client_that_goes_leaves_nothing_running(running: RunningBroker) -> None:
    await filled(running, 20)
    call = running.admin.BackupStore(admin_pb2.BackupStoreRequest())
    assert (await call.read()).is_start
    call.cancel()
    await until(lambda: not service(running)._running)
    steps = [step async for step in service(running).run()]
    assert "rocketpy/manifest.json" in paths(steps)


async def test_b13_what_is_unknown_is_copied_and_what_is_made_anew_is_not(
    tmp_path: Path, running: RunningBroker
) -> None:
    await filled(running, 2)
    for name in ("config/rocksdb/CURRENT", "timerlog/0", "config/other.json", "notes"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    found = set(paths([step async for step in service(running).run()]))
    known = {"config/rocksdb/CURRENT", "timerlog/0", "config/other.json", "notes"}
    assert known <= found
    assert "rocketpy/storeId" in found
    assert not found & {"abort", "lock", "rocketpy/flushed"}
    assert not [name for name in found if "staging" in name or name.endswith(".tmp")]
