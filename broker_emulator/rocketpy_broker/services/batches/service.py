"""Batches of staged blocks: visible all at once, exactly once, or never.

Tasks stage blocks, and then a job asks for what counts of them in one request. *Deciding* is one
record in the batches' queue; from then on the batch is committed, whatever happens. *Rolling
forward* appends the staged blocks behind the decision. With SYNC_FLUSH nobody sees them before they
are on disk, and the log is cut at its first torn record, so what can be seen is always preceded by
a decision that is on disk. A *completion* spares the next start the search.

A crash before the decision leaves staging files that nobody ever sees. One after it leaves a
decision without completion: the start looks behind it in the log for the last record that was
appended for it, and goes on behind that one. A writer's last batch is in the ledger; that batch and
those before it are not decided again.

What hinders the rolling forward (a full or slow disk) leaves the batch pending: it is tried again
until it is stored, and who asks is told the reason. No client carries it: it goes on when all of
them have gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from enum import Enum
from weakref import WeakValueDictionary

from rocketpy_broker.config import Limits
from rocketpy_broker.errors import (
    RecordIllegalError,
    StoreClosedError,
    StoreError,
)
from rocketpy_broker.runtime.clock import Clock, sleep
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.batches.commit_check import CommitCheck
from rocketpy_broker.services.batches.ledger import NO_BATCH, BatchLedger, LedgerEntry
from rocketpy_broker.services.batches.log import BATCHES_QUEUE, Batch, BatchLog, Decision
from rocketpy_broker.services.batches.roll_forward import DecidedBatch, RollForward
from rocketpy_broker.services.batches.staging_service import StagingService, check_job
from rocketpy_broker.services.flush.group_commit import GroupCommit
from rocketpy_broker.store.append.batch_marks import numbers_of
from rocketpy_broker.store.message_store import NOTHING_NEEDED, MessageStore
from rocketpy_broker.store.staging.area import BatchJob, StagedAttempt

logger = logging.getLogger(__name__)
RETRY_MS = 5_000
SWEEP_MS = 1_000
# Batches that are rolled forward at the same time; each has four frames in memory.
ROLLING_MAX = 4
# Named in the log for one batch.
TOPICS_TOLD = 10

StartTask = Callable[[Coroutine[object, object, None]], None]


class Outcome(Enum):
    """What has become of a batch, from the view of one job."""

    COMMITTED = 1
    ALREADY_COMMITTED = 2
    IN_PROGRESS = 3
    INCOMPLETE = 4
    NOT_COMMITTED = 5


@dataclass(frozen=True, slots=True)
class BatchState:
    """The outcome; the rest is about the writer's last decided batch, -1 where there is none.

    `hindrance` is what holds it up, or whose it is and what it lacks for ever.
    """

    outcome: Outcome
    batch_id: int = NO_BATCH
    record_count: int = 0
    record_count_decided: int = 0
    hindrance: str = ""


@dataclass(frozen=True, slots=True)
class _Spent:
    """Files that may go once the log is on disk up to `log_end`."""

    attempts: list[StagedAttempt]
    log_end: int


class BatchService:
    """Commits batches. `recover` comes before anything else; `run` is for as long as it serves."""

    def __init__(
        self,
        store: MessageStore,
        staging: StagingService,
        check: CommitCheck,
        roll_forward: RollForward,
        ledger: BatchLedger,
        group_commit: GroupCommit,
        clock: Clock,
        limits: Limits,
    ) -> None:
        self._store = store
        self._staging = staging
        self._check = check
        self._roll_forward = roll_forward
        self._ledger = ledger
        self._group_commit = group_commit
        self._clock = clock
        self._body_bytes_max = limits.body_bytes_max
        self._log = BatchLog(store, clock)
        self._pending: dict[str, DecidedBatch] = {}
        self._spent: list[_Spent] = []
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._turns = asyncio.Semaphore(ROLLING_MAX)
        self._start: StartTask

    # --- Requests ---

    async def commit(self, batch: Batch, wait_ms_max: int) -> BatchState:
        """Decides on a batch, unless it or a later one of its writer has been before.

        What is decided is rolled forward by a task of its own. Answers when that has ended, or when
        the wait is over; if the writer's batch before this one is not stored by then, nothing is
        decided, and the answer is about that one. Raises ParameterIllegalError, TopicNotExistError,
        QueueIdIllegalError, StagedIllegalError, RecordIllegalError, StoreBusyError,
        StoreClosedError; then nothing is decided.
        """
        job = batch.job
        check_job(job)
        async with self._lock(job.writer_id):
            if job.batch_id > self._ledger.last_batch(job.writer_id):
                earlier = self._pending.get(job.writer_id)
                if earlier is not None:
                    await earlier.wait(self._clock, wait_ms_max)
                    if not earlier.is_done:
                        return self._state(earlier.decision.batch.job)
                body = await self._body(batch)
                with self._staging.committing(job) as staged:
                    attempts = await self._check.attempts(staged, batch.tasks)
                    self._start(self._carry_out(self._decide(batch, body, attempts)))
            await self._staging.take(job, self._needed(job.writer_id))
        return await self.query(job, wait_ms_max)

    async def query(self, job: BatchJob, wait_ms_max: int) -> BatchState:
        """What has become of a batch; waits for one that is on its way.

        Raises ParameterIllegalError.
        """
        check_job(job)
        pending = self._pending.get(job.writer_id)
        if pending is not None and pending.decision.batch.job.batch_id == job.batch_id:
            await pending.wait(self._clock, wait_ms_max)
        return self._state(job)

    async def abort(self, job: BatchJob) -> int:
        """Removes what a job has staged; return how many attempts. Raises ParameterIllegalError."""
        check_job(job)
        async with self._lock(job.writer_id):
            return await self._staging.abort(job)

    async def forget_writers(self) -> None:
        """Forgets every writer, and what is staged, but for batches that are being stored."""
        for name in self._staging.names():
            await self.abort(name)
        # Past the completions too, which a start would take for batches of their writers.
        self._note_progress()
        self._ledger.forget_all(kept=self._pending)

    def _lock(self, writer_id: str) -> asyncio.Lock:
        """Returns one request of a writer at a time. The lock lives as long as somebody has it."""
        return self._locks.setdefault(writer_id, asyncio.Lock())

    def _needed(self, writer_id: str) -> Iterable[StagedAttempt]:
        """Attempts that are being stored."""
        pending = self._pending.get(writer_id)
        return () if pending is None else pending.attempts.values()

    def _state(self, job: BatchJob) -> BatchState:
        entry = self._ledger.last(job.writer_id)
        if entry is None or entry.batch_id < job.batch_id:
            last = NO_BATCH if entry is None else entry.batch_id
            return BatchState(Outcome.NOT_COMMITTED, last)
        counts = entry.stored_count, entry.record_count
        pending = self._pending.get(job.writer_id)
        if entry.batch_id > job.batch_id:
            return BatchState(Outcome.ALREADY_COMMITTED, entry.batch_id, *counts)
        if pending is not None:
            counts = pending.stored_count, entry.record_count
            return BatchState(
                Outcome.IN_PROGRESS, entry.batch_id, *counts, hindrance=pending.hindrance
            )
        outcome = Outcome.COMMITTED if entry.job_token == job.token else Outcome.ALREADY_COMMITTED
        if entry.stored_count == entry.record_count:
            return BatchState(outcome, entry.batch_id, *counts)
        lack = f"{_told(job, *counts)}; what was lost is in the broker's log"
        return BatchState(Outcome.INCOMPLETE, entry.batch_id, *counts, hindrance=lack)

    # --- Deciding ---

    async def _body(self, batch: Batch) -> bytes:
        """Returns the decision's body. Raises RecordIllegalError where it is too large."""
        body = await self._staging.in_thread(batch.to_json)
        if len(body) > self._body_bytes_max:
            raise RecordIllegalError(
                f"{len(batch.tasks)} tasks make a decision of {len(body)} bytes, the limit is "
                f"{self._body_bytes_max}; write with fewer tasks, as by coalesce"
            )
        return body

    def _decide(self, batch: Batch, body: bytes, attempts: list[StagedAttempt]) -> DecidedBatch:
        pending = self._decided(self._log.append_decision(batch, body), attempts)
        self._note_progress()
        return pending

    def _decided(self, decision: Decision, attempts: list[StagedAttempt]) -> DecidedBatch:
        batch = decision.batch
        log_end = self._store.positions().log_end
        by_task = {(one.attempt.task, one.attempt.token): one for one in attempts}
        pending = self._pending[batch.job.writer_id] = DecidedBatch(decision, by_task, log_end)
        self._ledger.decided(batch.job.writer_id, _entry(decision, 0))
        return pending

    def _note_progress(self) -> None:
        """Tell cleaning and the ledger what is still to be done."""
        decisions = [one.decision for one in self._pending.values()]
        self._store.needed_from = min(
            (decision.physical_offset for decision in decisions), default=NOTHING_NEEDED
        )
        next_offset = self._store.next_offset(BATCHES_QUEUE)
        first = min((decision.queue_offset for decision in decisions), default=next_offset)
        self._ledger.done(first, self._store.positions().log_end)

    # --- Rolling forward ---

    async def _carry_out(self, pending: DecidedBatch) -> None:
        """Stores a decided batch, however often that takes."""
        job = pending.decision.batch.job
        while not pending.is_done:
            try:
                async with self._turns:
                    await self._roll_forward.run(pending)
                    await self._make_visible(pending)
            except StoreError as error:
                pending.hindrance = str(error)
                logger.warning(
                    "batch %d of writer %r is decided and has to wait: %s",
                    job.batch_id,
                    job.writer_id,
                    error,
                )
                await sleep(self._clock, RETRY_MS)
            else:
                await self._group_commit.large_writes.over()
                self._finish(pending)
                await pending.wake()

    async def _make_visible(self, pending: DecidedBatch) -> None:
        """Raises StoreError where what is stored cannot be seen yet."""
        await self._group_commit.wait(pending.log_end)
        begin = pending.decision.physical_offset
        if not self._store.is_dispatched(pending.log_end, begin):
            raise StoreClosedError(
                "the batch is stored, but its queues cannot grow; free some space on the disk"
            )

    def _finish(self, pending: DecidedBatch) -> None:
        decision = pending.decision
        batch, stored_count = decision.batch, pending.stored_count
        del self._pending[batch.job.writer_id]
        if stored_count < batch.record_count:
            topics = {topic for one in pending.attempts.values() for topic in one.queue_ids}
            counts = stored_count, batch.record_count
            logger.critical(
                "%s, topics %s", _told(batch.job, *counts), sorted(topics)[:TOPICS_TOLD]
            )
        self._ledger.decided(batch.job.writer_id, _entry(decision, stored_count))
        # Before the completion, which nobody flushes: the ledger must not count on it.
        self._note_progress()
        log_end = pending.log_end
        # Without it the next start looks for what is missing, and finds nothing.
        with contextlib.suppress(StoreError):
            log_end = self._log.append_completion(batch, stored_count).end_offset
        self._spent.append(_Spent(list(pending.attempts.values()), log_end))
        self._group_commit.flush_soon()

    async def run(self) -> None:
        """Removes what is not needed any more, for ever."""
        while True:
            await sleep(self._clock, SWEEP_MS)
            await self.remove_spent()
            await self._staging.sweep()

    async def remove_spent(self) -> None:
        """Removes the files of batches whose messages are on disk."""
        flushed = self._store.flushed_end
        spent = [one for one in self._spent if one.log_end <= flushed]
        self._spent = [one for one in self._spent if one.log_end > flushed]
        for one in spent:
            await self._staging.remove_files(one.attempts)

    # --- Start ---

    async def recover(self, start: StartTask) -> None:
        """Learns from the log what was decided, and go on with what a crash has interrupted.

        `start` starts tasks that end with the broker. Raises OSError where the staging files cannot
        be listed.
        """
        self._start = start
        loaded = await self._staging.load()
        by_job: defaultdict[BatchJob, list[StagedAttempt]] = defaultdict(list)
        for one in loaded:
            by_job[one.attempt.job].append(one)
        for decision in self._undone():
            self._decided(decision, by_job[decision.batch.job])
        batches = [(one.attempt.job.writer_id, one.attempt.job.batch_id) for one in loaded]
        for writer_id, batch_id in dict.fromkeys(batches):
            if batch_id <= self._ledger.last_batch(writer_id):
                done = BatchJob(writer_id, batch_id, 0)
                await self._staging.take(done, self._needed(writer_id))
        await self._find_progress()
        self._note_progress()
        for writer_id, pending in self._pending.items():
            logger.warning("rolling forward a batch of %r that was decided before", writer_id)
            start(self._carry_out(pending))

    def _undone(self) -> list[Decision]:
        """Returns the decisions without completion; the ledger learns of the others."""
        undone: dict[str, Decision] = {}
        for entry in self._log.read(self._ledger.next_offset):
            if isinstance(entry, Decision):
                undone[entry.batch.job.writer_id] = entry
            else:
                # A writer has one batch at a time on its way.
                decision = undone.pop(entry.job.writer_id, None)
                record_count = entry.record_count
                if decision is not None:
                    record_count = decision.batch.record_count
                elif entry.job.batch_id <= self._ledger.last_batch(entry.job.writer_id):
                    continue
                stored_count = record_count if entry.stored_count is None else entry.stored_count
                done = LedgerEntry(
                    entry.job.batch_id,
                    entry.store_timestamp_ms,
                    record_count,
                    stored_count,
                    entry.is_single,
                    entry.job.token if decision is None else decision.batch.job.token,
                )
                self._ledger.decided(entry.job.writer_id, done)
        return list(undone.values())

    async def _find_progress(self) -> None:
        """Let each pending batch go on behind the last record that was appended for it."""
        pending = list(self._pending.values())
        begin = min((one.decision.physical_offset for one in pending), default=None)
        if begin is None:
            return
        for numbers in self._store.numbered.numbers_from(begin):
            for one in pending:
                own = numbers_of(one.decision.queue_offset, numbers)
                if len(own):
                    one.found(own)
            await take_slot()


def _told(job: BatchJob, stored_count: int, record_count: int) -> str:
    of_whom = f"batch {job.batch_id} of writer {job.writer_id!r}"
    return f"{of_whom} shows {stored_count} of its {record_count} messages"


def _entry(decision: Decision, stored_count: int) -> LedgerEntry:
    batch = decision.batch
    return LedgerEntry(
        batch.job.batch_id,
        decision.store_timestamp_ms,
        batch.record_count,
        stored_count,
        batch.is_single,
        batch.job.token,
    )
