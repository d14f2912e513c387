"""Staging: blocks of undecided batches, written to their attempt's file.

A block is checked whole before any of it is written, like one that is appended at once. Threads do
the work, in order for each attempt. The work in flight is bounded in all and for each connection. A
stream is not read further while its block waits. A repeated block is acknowledged and not staged
again. With SYNC_FLUSH an attempt is on disk when its end is acknowledged. After a crash an attempt
continues after the last whole block of its file.

Files are removed when their batch is stored or aborted. They are also removed when a newer job of
the writer starts the same or a later batch. A job without calls for `staging_idle_ms_max` loses its
files too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import (
    StagedIllegalError,
    StoreClosedError,
)
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.runtime.tasks import run_shielded
from rocketpy_broker.services.batches.jobs import Attempt, Job, JobHold, JobTable, check_job
from rocketpy_broker.services.batches.ledger import BatchLedger
from rocketpy_broker.services.batches.staged_files import StagedFiles
from rocketpy_broker.services.send.service import SendService
from rocketpy_broker.store.append.blocks import check_fits
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.staging.area import BatchJob, BlockFrames, StagedAttempt, TaskAttempt
from rocketpy_broker.store.staging.file import StagedCounts
from rocketpy_broker.store.staging.frames import StagedRecords
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.counts import counted

logger = logging.getLogger(__name__)
T = TypeVar("T")
THREADS = 4
# Jobs or tasks handled in one scheduler slot.
CHECKS_A_SLOT = 500


@dataclass(frozen=True, slots=True)
class StageCommand:
    """A block of an attempt, or its end, or a keep-alive without records."""

    attempt: TaskAttempt
    block_number: int
    topic: str
    queue_id: int
    records: bytes
    record_sizes: bytes
    is_last: bool


@dataclass(frozen=True, slots=True)
class Staged:
    """An attempt's staged counts so far; zero for a batch that is committed."""

    counts: StagedCounts
    is_committed: bool = False


class StagingService:
    """The service that stages blocks.

    `load` is called first, `sweep` at intervals, `close` at the end.
    """

    def __init__(
        self,
        store: MessageStore,
        sends: SendService,
        ledger: BatchLedger,
        clock: Clock,
        config: BrokerConfig,
        files: StagedFiles,
    ) -> None:
        self._store = store
        self._files = files
        self._sends = sends
        self._ledger = ledger
        self._is_sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._jobs = JobTable(clock, config.staging_idle_ms_max)
        self.admission = sends.admission
        # Removed attempts; their files may still exist.
        self._leaving: dict[Attempt, None] = {}
        # Set while files may have to be removed later.
        self.has_files = asyncio.Event()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="staging")
        # Work that may take seconds has its own threads, so that other connections' blocks do not
        # wait.
        self._long_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="staging-long")

    async def in_thread(self, work: Callable[[], T], *, long: bool = False) -> T:
        """Runs blocking work in a thread; `long` marks a flush or the read of a whole file.

        A thread cannot be cancelled, so a cancelled caller waits for its end.
        """
        threads = self._long_threads if long else self._threads
        return await run_shielded(asyncio.get_running_loop().run_in_executor(threads, work))

    def begin_in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Starts blocking work in a thread; the caller waits for its end."""
        return asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """Ends the threads."""
        self._threads.shutdown(wait=True)
        self._long_threads.shutdown(wait=True)

    # --- Blocks ---

    def stream(self) -> AbstractContextManager[JobHold]:
        """Returns a hold for the commands of one stream: it keeps their job alive."""
        return self._jobs.hold()

    async def stage(self, command: StageCommand, stream: JobHold | None = None) -> Staged:
        """Stages a block or ends the attempt; `stream` keeps a job that has no files.

        Raises ParameterIllegalError, TopicNotExistError, PermissionDeniedError,
        QueueIdIllegalError, RecordIllegalError, StagedIllegalError, StagingFullError,
        StoreClosedError, StoreBusyError; then nothing of the block is staged.
        """
        check_job(command.attempt.job)
        with nullcontext(stream) if stream is not None else self.stream() as hold:
            if not command.records:
                return await self._stage(command, hold)
            async with self.admission.staged(len(command.records)):
                return await self._stage(command, hold)

    async def _stage(self, command: StageCommand, hold: JobHold) -> Staged:
        name = command.attempt.job
        if name.batch_id <= self._ledger.last_batch(name.writer_id):
            return Staged(StagedCounts(), is_committed=True)
        if self._jobs.find(name) is None:
            hold.use(name)
            self.has_files.set()
            await run_shielded(self._discard_superseded(name))
        job = hold.use(name)
        if not (command.records or command.is_last):
            return Staged(StagedCounts())
        if job.is_committing:
            raise StagedIllegalError("the batch is being committed; nothing more is staged for it")
        attempt = self._attempt(job, command.attempt)
        # A caller that is cancelled while it waits for the lock leaves the attempt unchanged.
        async with attempt.lock:
            with self._discard_if_empty(job, attempt):
                await self._check_place(attempt, command)
                if command.is_last:
                    if not attempt.staged.is_sealed:
                        await self._seal(job, attempt)
                elif command.block_number == attempt.staged.counts.block_count:
                    await self._write(job, attempt, command)
                return Staged(attempt.staged.counts)

    @staticmethod
    @contextmanager
    def _discard_if_empty(job: Job, attempt: Attempt) -> Iterator[None]:
        """Forgets an attempt that has no file: no commit can name it, and no block is lost."""
        try:
            yield
        finally:
            name = attempt.staged.attempt
            if attempt.staged.end == 0:
                attempt.is_gone = True
                # The key may have a new attempt by now.
                if job.attempts.get((name.task, name.token)) is attempt:
                    del job.attempts[name.task, name.token]

    def _attempt(self, job: Job, name: TaskAttempt) -> Attempt:
        key = name.task, name.token
        attempt = job.attempts.get(key)
        if attempt is None:
            log_end = self._store.positions().log_end
            # All attempts share their job's name object.
            own = TaskAttempt(job.name, name.task, name.token)
            attempt = Attempt(self._store.staging.new_attempt(own, log_end))
            job.attempts[key] = attempt
        return attempt

    async def _check_place(self, attempt: Attempt, command: StageCommand) -> None:
        """Raises StagedIllegalError for a block that does not follow the staged ones."""
        staged = attempt.staged
        if staged.end < 0:
            await self.file_call(staged, staged.scan, long=True)
        if attempt.is_gone:
            self._jobs.check_wanted(command.attempt.job)
            raise StagedIllegalError("this attempt was removed; run the task again")
        if staged.end < 0:
            raise StagedIllegalError(f"{staged.file.path.name} is damaged; run the task again")
        count = staged.counts.block_count
        # The end's number is the count of all blocks.
        is_known = command.block_number < count and not command.is_last
        if not (is_known or command.block_number == count):
            raise StagedIllegalError(
                f"block {command.block_number} of task {command.attempt.task} comes after "
                f"{counted(count, 'block')}: blocks between were removed, or lost in a crash. Run "
                "the task again"
            )
        if staged.is_sealed and not (is_known or command.is_last):
            raise StagedIllegalError("this attempt has ended; run the task again")

    async def _write(self, job: Job, attempt: Attempt, command: StageCommand) -> None:
        queue = self._sends.queue_of(command.topic, command.queue_id)
        self._store.check_open()
        staged, area = attempt.staged, self._store.staging
        area.check_space(job.bytes, len(command.records))
        deletion_count = self._store.deletion_counts[queue.topic]
        before = staged.file_bytes

        def write() -> None:
            frames = self._checked_frames(staged, queue, command)
            # Counted before the write, so that all writers together keep to the limit.
            area.reserve_space(job.bytes, frames.file_bytes)
            try:
                staged.write(frames)
                staged.deletion_counts.setdefault(queue.topic, deletion_count)
            finally:
                area.give_back(frames.file_bytes - (staged.file_bytes - before))

        try:
            # One call: a handover to a thread costs as much as a large part of the write.
            await self.file_call(staged, write)
        finally:
            job.bytes += staged.file_bytes - before

    def _checked_frames(
        self, staged: StagedAttempt, queue: QueueKey, command: StageCommand
    ) -> BlockFrames:
        """Returns the frames of a checked block. Runs on a thread."""
        records, sizes = command.records, command.record_sizes
        block = self._sends.checked(queue, records, sizes, is_copied=False)
        store = self._store
        destination = self._sends.destinations.resolve(queue, block, in_batch=True)
        check_fits(destination.block, store.config, store.store_host)
        waits = destination.queue != queue
        stored_sizes = destination.block.sizes if waits else None
        found = StagedRecords(queue, block, destination.sent, stored_sizes)
        return staged.frames_of(found, store.staging.frame_bytes)

    async def _seal(self, job: Job, attempt: Attempt) -> None:
        staged = attempt.staged
        try:
            work = partial(staged.seal, durable=self._is_sync)
            await self.file_call(staged, work, long=True)
        except StoreClosedError:
            # Bytes that may be half on disk are never flushed again.
            job.attempts.pop((staged.attempt.task, staged.attempt.token), None)
            attempt.is_gone = True
            await self.remove_files([staged])
            raise
        if staged.is_sealed:
            self._files.completed(staged)

    async def file_call(
        self, staged: StagedAttempt, work: Callable[[], None], *, long: bool = False
    ) -> None:
        """Runs work on an attempt's file.

        Raises StoreClosedError if the file cannot be used, and the errors of `work`.
        """
        try:
            await self.in_thread(work, long=long)
        except OSError as error:
            raise StoreClosedError(
                f"the staging file {staged.file.path.name} cannot be used ({error.strerror}); "
                "nothing was staged. Check the broker's disk, and run the task again"
            ) from error

    # --- Deciding ---

    @contextmanager
    def committing(self, name: BatchJob) -> Iterator[Job]:
        """Yields the job, which is not discarded within the block. Raises StagedIllegalError."""
        with self._jobs.hold() as hold:
            job = hold.use(name)
            job.is_committing = True
            try:
                yield job
            finally:
                job.is_committing = False

    async def take(self, name: BatchJob, kept: Iterable[StagedAttempt]) -> None:
        """Removes the writer's staged attempts up to a decided batch, except `kept`."""
        attempts: list[Attempt] = []
        for other in self._jobs.up_to(name.writer_id, name.batch_id):
            attempts += self._jobs.discard(other, "the batch is committed")
        places = {id(staged) for staged in kept}
        leaving = [one for one in attempts if id(one.staged) not in places]
        self._leaving.update(dict.fromkeys(leaving))
        await self._remove_leaving(leaving)

    # --- Removing ---

    async def abort(self, name: BatchJob) -> int:
        """Removes a job's staged attempts; returns their number. Raises ParameterIllegalError."""
        check_job(name)
        job = self._jobs.find(name)
        if job is not None and job.is_committing:
            return 0
        attempts = self._discard(name, "the job was aborted")
        await self._remove_leaving(attempts)
        return len(attempts)

    def names(self) -> list[BatchJob]:
        """Returns the names of all jobs."""
        return list(self._jobs)

    async def sweep(self) -> None:
        """Removes jobs that were idle for too long, and files that earlier removals left.

        Clears `has_files` if none remain.
        """
        for number, name in enumerate(list(self._jobs.idle()), 1):
            # The job may have been used again during `take_slot`.
            if self._jobs.is_idle(name):
                self._discard(name, "its job made no call for too long")
            if number % CHECKS_A_SLOT == 0:
                await take_slot()
        await self._remove_leaving(list(self._leaving))
        if not (self._jobs or self._leaving):
            self.has_files.clear()

    async def _discard_superseded(self, name: BatchJob) -> None:
        attempts: list[Attempt] = []
        for other in self._jobs.superseded_jobs(name):
            is_same = other.batch_id == name.batch_id
            what = "another job writes the same batch" if is_same else "a later batch has started"
            attempts += self._discard(other, f"{what}; let one driver run the query")
        await self._remove_leaving(attempts)

    def _discard(self, name: BatchJob, reason: str) -> list[Attempt]:
        """Forgets a job at once, so that it cannot start to commit meanwhile."""
        attempts = self._jobs.discard(name, reason)
        if attempts:
            logger.info(
                "batch %d of writer %r: removing %s (%s)",
                name.batch_id,
                name.writer_id,
                counted(len(attempts), "staged attempt"),
                reason,
            )
        self._leaving.update(dict.fromkeys(attempts))
        return attempts

    async def remove_files(self, attempts: Sequence[StagedAttempt]) -> None:
        """Removes files that are not needed any more."""
        leaving = [Attempt(staged) for staged in attempts]
        self._leaving.update(dict.fromkeys(leaving))
        await self._remove_leaving(leaving)

    async def _remove_leaving(self, attempts: Sequence[Attempt]) -> None:
        """Removes the attempts' files; a later `sweep` removes the remaining ones."""
        for attempt in attempts:
            # Waits for a task that works on the attempt.
            async with attempt.lock:
                pass
        area = self._store.staging
        if attempts:
            removed = await self.in_thread(
                lambda: [one for one in attempts if area.remove(one.staged)]
            )
            for number, attempt in enumerate(removed, 1):
                if number % CHECKS_A_SLOT == 0:
                    await take_slot()
                if attempt in self._leaving:
                    del self._leaving[attempt]
                    area.give_back(attempt.staged.file_bytes)
                    self._files.removed(attempt.staged)

    # --- Start ---

    async def load(self) -> list[StagedAttempt]:
        """Adds the attempts of earlier runs to the jobs and returns them. Raises OSError."""
        kept: dict[TaskAttempt, StagedAttempt] = {}
        copies = []
        # Of several files of one attempt, the longest has all its blocks.
        loaded = await self.in_thread(self._store.staging.load)
        self.has_files.set()
        for staged in sorted(loaded, key=lambda one: one.file_bytes, reverse=True):
            if kept.setdefault(staged.attempt, staged) is not staged:
                logger.warning("removing %s, a copy of another staging file", staged.file.path)
                copies.append(staged)
        await self.remove_files(copies)
        for staged in kept.values():
            job = self._jobs.use(staged.attempt.job)
            job.attempts[staged.attempt.task, staged.attempt.token] = Attempt(staged)
            job.bytes += staged.file_bytes
            self._files.completed(staged)
        return list(kept.values())
