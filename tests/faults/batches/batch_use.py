"""A store with the services that batches need, without a server.

`Desk` is one run, from the start with its recovery to a stop, a kill or a power cut. A flush runs
when a call waits for one, so that a run repeats the same calls.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from rocketpy_broker.config import BrokerConfig, Replication
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.batches.commit_check import CommitCheck
from rocketpy_broker.services.batches.ledger import BatchLedger
from rocketpy_broker.services.batches.log import Batch, StagedTask
from rocketpy_broker.services.batches.outcome import BatchState
from rocketpy_broker.services.batches.roll_forward import RollForward
from rocketpy_broker.services.batches.service import RETRY_MS, BatchService
from rocketpy_broker.services.batches.staged_files import StagedFiles
from rocketpy_broker.services.batches.staging_service import StageCommand, Staged, StagingService
from rocketpy_broker.services.config_files.saver import save_now
from rocketpy_broker.services.delay.schedule import DelaySchedule, TimerLimits
from rocketpy_broker.services.flush.group_commit import GroupCommit
from rocketpy_broker.services.replication.slaves import SlaveTable
from rocketpy_broker.services.send.service import SendService
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.config import STAGING_FRAME_BYTES, FlushDiskType, FlushTimes
from rocketpy_broker.store.index.layout import IndexFormat
from rocketpy_broker.store.staging.area import BatchJob, TaskAttempt
from rocketpy_broker.store.staging.file import StagedCounts
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.configs import TopicConfig
from tests.faults.images import block_of, read_bodies
from tests.support.store.disk_calls import LOG, DiskCall, before_call
from tests.support.store.messages import OTHER, QUEUE, delete_topic, flush_log
from tests.support.store.stores import store_in

T = TypeVar("T")
WRITER = "a query"
SMALL_INDEX = IndexFormat(8, 16)
MINUTE_MS = 60_000
WEEK_MS = 7 * 86_400_000
# Frames with which each record is an append, so that a crash may come between any two.
ONE_BY_ONE = 1


class FlushWhenAsked(GroupCommit):
    """A group commit without loop and thread: the waiting call flushes."""

    async def wait(self, end_offset: int) -> None:
        """Flushes the appended bytes, unless they are flushed or no call waits.

        Raises StoreClosedError.
        """
        if self._sync and self._store.flushed_end < end_offset:
            self._store.check_open()
            try:
                flush_log(self._store)
            except OSError as error:
                self._store.flush_failed(error)
                self._store.check_open()


@dataclass
class Desk:
    """One run of store and services over a folder, with an index too small for RocketMQ."""

    folder: Path
    flush: FlushDiskType = FlushDiskType.SYNC_FLUSH
    index: IndexFormat = SMALL_INDEX
    clock: ManualClock = field(default_factory=ManualClock)
    frame_bytes: int = STAGING_FRAME_BYTES

    def __post_init__(self) -> None:
        config = BrokerConfig(self.folder, flush_disk_type=self.flush)
        self.store = store_in(
            self.folder,
            self.clock,
            self.flush,
            index_slot_count=self.index.slot_count,
            index_entry_count_max=self.index.entry_count_max,
            staging_frame_bytes=self.frame_bytes,
        )
        settings = self.folder / "config"
        store, clock, limits = self.store, self.clock, config.limits
        self._topics = TopicConfigManager(settings, clock, "cluster", "broker")
        self.ledger = BatchLedger(
            settings, clock, lambda: store.flushed_end, WEEK_MS, 10 * MINUTE_MS
        )
        flushes = FlushWhenAsked(store, clock, self.flush, FlushTimes())
        timer = TimerLimits(True, config.timer_delay_ms_max, config.timer_pending_max, lambda: 0)
        scheduling = DelaySchedule(
            store.config.delay_levels, clock, timer, store.config.commit_log_segment_bytes
        )
        appends = SendService(store, self._topics, flushes, scheduling, clock, config)
        files = StagedFiles(SlaveTable(Replication(), lambda: 0), clock)
        self.staging = StagingService(store, appends, self.ledger, clock, config, files)
        rolling = RollForward(store, appends, self.staging, clock)
        self.batches = BatchService(
            store,
            self.staging,
            CommitCheck(store, self._topics, self.staging, files),
            rolling,
            self.ledger,
            flushes,
            clock,
            limits,
        )

    def open(self) -> None:
        """Starts, and completes the work of an earlier run."""
        self.store.open()
        self._topics.load()
        self.ledger.load()
        for queue in (QUEUE, OTHER):
            if not self._topics.exists(queue.topic):
                asyncio.run(self._topics.update(TopicConfig(queue.topic), create_only=True))
        self._run(self._recover)

    def _start(self, work: Coroutine[object, object, None]) -> None:
        self._scope.start(work)

    async def _recover(self, _: TaskScope) -> None:
        await self.batches.recover(self._start)
        while self.batches._pending:  # noqa: ASYNC110 (there is no signal)
            await asyncio.sleep(0)
        await self.batches.remove_stored()

    def _run(self, work: Callable[[TaskScope], Coroutine[object, object, T]]) -> T:
        """Runs `work` with the tasks that it starts."""

        async def main() -> T:
            async with TaskScope() as self._scope:
                return await work(self._scope)

        return asyncio.run(main())

    def stop(self) -> None:
        """Stops cleanly."""
        self.staging.close()
        save_now(self.ledger)
        self.store.close()

    def crash(self) -> None:
        """Releases everything, as the system does with the files of a killed process."""
        self.staging.close()
        self.store._release()

    def stage(
        self,
        batch_id: int,
        token: int,
        task: int,
        *blocks: tuple[QueueKey, list[bytes]],
        ends: bool = True,
    ) -> StagedTask:
        """Stages an attempt with these blocks, and its end unless `ends` is false."""
        job = BatchJob(WRITER, batch_id, token)
        end = [(QUEUE, list[bytes]())] if ends else []

        async def work(_: TaskScope) -> StagedTask:
            staged = Staged(StagedCounts())
            for number, (queue, bodies) in enumerate([*blocks, *end]):
                block = block_of(queue.topic, bodies) if bodies else None
                command = StageCommand(
                    TaskAttempt(job, task, token),
                    number,
                    *queue,
                    b"" if block is None else block.data.tobytes(),
                    b"" if block is None else np.asarray(block.sizes, ">i4").tobytes(),
                    block is None,
                )
                staged = await self.staging.stage(command)
            return StagedTask(task, token, staged.counts)

        return self._run(work)

    def path_of(self, batch_id: int, token: int, task: int) -> Path:
        """Returns the file of an attempt."""
        job = self.staging._jobs.find(BatchJob(WRITER, batch_id, token))
        assert job is not None
        path: Path = job.attempts[task, token].staged.file.path
        return path

    def commit(self, batch_id: int, token: int, *tasks: StagedTask) -> BatchState:
        """Commits a batch, and waits for its end."""
        batch = Batch(BatchJob(WRITER, batch_id, token), tasks)

        async def work(_: TaskScope) -> BatchState:
            state = await self.batches.commit(batch, 60_000)
            await self.batches.remove_stored()
            return state

        return self._run(work)

    def commit_held_up(
        self, batch_id: int, token: int, tasks: list[StagedTask], meanwhile: Callable[[], None]
    ) -> BatchState:
        """Commits a batch; calls `meanwhile` each time that it waits, then retries."""
        batch = Batch(BatchJob(WRITER, batch_id, token), tuple(tasks))

        async def work(_: TaskScope) -> BatchState:
            asked = asyncio.ensure_future(self.batches.commit(batch, WEEK_MS))
            while not asked.done():
                pending = self.batches._pending.get(WRITER)
                if pending is not None and pending.hindrance:
                    meanwhile()
                    # Housekeeping does the same.
                    self.store.dispatch()
                    self.clock.advance(RETRY_MS)
                await asyncio.sleep(0)
            return await asked

        return self._run(work)

    def abort(self, batch_id: int, token: int) -> int:
        """Aborts a job; returns the number of removed attempts."""
        job = BatchJob(WRITER, batch_id, token)
        return self._run(lambda _: self.batches.abort(job))

    def query(self, batch_id: int, token: int) -> BatchState:
        """Returns the state of a batch."""
        job = BatchJob(WRITER, batch_id, token)
        return self._run(lambda _: self.batches.query(job, 0))

    def write(self, batch_id: int, token: int, size: int = 3) -> BatchState:
        """Stages a batch in both queues, the later task first, and commits it."""
        later = (QUEUE, messages_of(batch_id, size, b"more"))
        first = [(QUEUE, messages_of(batch_id, size)), (OTHER, messages_of(batch_id, 2))]
        tasks = [
            self.stage(batch_id, token, 1, *first),
            self.stage(batch_id, token, 0, later),
        ]
        return self.commit(batch_id, token, *reversed(tasks))


def messages_of(batch_id: int, size: int, word: bytes = b"body") -> list[bytes]:
    """Returns the bodies of one block."""
    return [b"%b-%d-%d" % (word, batch_id, number) for number in range(size)]


def expected_of(batch_id: int, size: int = 3) -> dict[QueueKey, list[bytes]]:
    """Returns the messages that `Desk.write` makes visible, by queue."""
    return {
        QUEUE: messages_of(batch_id, size, b"more") + messages_of(batch_id, size),
        OTHER: messages_of(batch_id, 2),
    }


def check_visible(desk: Desk, batch_ids: list[int]) -> None:
    """Asserts that readers see these batches, whole and in order, and nothing else."""
    for queue in (QUEUE, OTHER):
        wanted = [body for batch_id in batch_ids for body in expected_of(batch_id)[queue]]
        assert read_bodies(desk.store, queue) == wanted, queue


def delete_between_runs(folder: Path, topic: str) -> None:
    """Deletes a topic before the next start recovers."""
    desk = Desk(folder)
    desk.store.open()
    delete_topic(desk.store, topic)
    desk.crash()


class Room:
    """A budget of `left` appends, None for unlimited; `record_count` counts the taken records."""

    left: int | None = None
    record_count = 0

    def take(self, call: DiskCall) -> None:
        """Takes a write of records to the log from the budget. Raises OSError if it is used up."""
        block = call.records
        if block is None:
            return
        if self.left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.left = self.left and self.left - 1
        self.record_count += len(block)


@contextmanager
def limited_room(log: str = LOG) -> Iterator[Room]:
    """Limits the disk of logs to a budget of appends."""
    room = Room()
    with pytest.MonkeyPatch.context() as patch:
        before_call(patch, "pwrite", log, room.take)
        yield room
