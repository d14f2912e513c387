"""Batches of staged blocks: visible as a whole exactly once, or never.

Tasks stage blocks; then a job requests the commit of named task attempts in one request. *Deciding*
appends one record to the batches queue. From then on the batch is committed. *Rolling forward*
appends the staged blocks after the decision. With SYNC_FLUSH, consumers see them only after they
are on disk. The log is cut at its first torn record. So visible messages always follow a decision
that is on disk. A *completion* then saves the next start a search for the batch's records.

A crash before the decision leaves staging files. A commit after the restart still finds them; files
that no commit names never become visible. A crash after the decision leaves it without completion.
The start then finds the last record that was appended for the decision, and continues after it. The
ledger holds a writer's last batch; that batch and earlier ones are not decided again.

A full or slow disk leaves the batch pending. The broker retries until it is stored, and queries
return the reason. Rolling forward needs no client: it continues after all of them have
disconnected.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

from rocketpy_broker.config import Limits
from rocketpy_broker.errors import (
    RecordIllegalError,
    StoreClosedError,
    StoreError,
)
from rocketpy_broker.runtime.clock import Clock, sleep, wait_until_set
from rocketpy_broker.runtime.log_throttle import LogThrottle
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.batches.commit_check import CommitCheck
from rocketpy_broker.services.batches.jobs import check_job
from rocketpy_broker.services.batches.ledger import NO_BATCH, BatchLedger, LedgerEntry
from rocketpy_broker.services.batches.log import BATCHES_QUEUE, Batch, BatchLog, Decision
from rocketpy_broker.services.batches.outcome import BatchState, Outcome
from rocketpy_broker.services.batches.roll_forward import DecidedBatch, RollForward
from rocketpy_broker.services.batches.staging_service import StagingService
from rocketpy_broker.services.flush.group_commit import GroupCommit
from rocketpy_broker.services.replication.errors import SlaveNotAvailableError
from rocketpy_broker.store.append.batch_marks import numbers_of
from rocketpy_broker.store.message_store import NOTHING_NEEDED, MessageStore
from rocketpy_broker.store.staging.area import BatchJob, StagedAttempt
from rocketpy_proto.counts import counted

logger = logging.getLogger(__name__)
RETRY_MS = 5_000
SWEEP_MS = 1_000
# Batches that are rolled forward concurrently; each has four frames in memory.
ROLL_FORWARDS_MAX = 4
# Topics that the log names for one batch.
TOPICS_NAMED = 10

UNCOPIED = (
    "the batch is not decided: too few slaves have copies of its staged blocks (slaves of RocketMQ "
    "make none). Check the slaves"
)

StartTask = Callable[[Coroutine[object, object, None]], None]


@dataclass(frozen=True, slots=True)
class _RemovableFiles:
    """Files to be removed once the log is on disk up to `log_end`."""

    attempts: list[StagedAttempt]
    log_end: int


class BatchService:
    """The service that commits batches.

    `recover` is called first; `run` runs until the broker stops.
    """

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
        self._throttle = LogThrottle(clock)
        self._log = BatchLog(store, clock)
        self._pending: dict[str, DecidedBatch] = {}
        self._removable: list[_RemovableFiles] = []
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._roll_forward_slots = asyncio.Semaphore(ROLL_FORWARDS_MAX)
        self._start: StartTask

    # --- Requests ---

    async def commit(self, batch: Batch, wait_ms_max: int) -> BatchState:
        """Decides a batch, unless it or a later one of its writer was decided before.

        A task of its own rolls a decided batch forward. Returns when that task has ended, or after
        the wait. If the writer's previous batch is not stored after the wait, nothing is decided.
        The returned state then describes that previous batch. Raises ParameterIllegalError,
        TopicNotExistError, QueueIdIllegalError, StagedIllegalError, RecordIllegalError,
        StoreBusyError, StoreClosedError; then nothing is decided.
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
                    if not await self._check.are_copied(staged, batch.tasks, wait_ms_max):
                        return replace(self._state(job), hindrance=UNCOPIED)
                    attempts = await self._check.attempts(staged, batch.tasks)
                    self._start(self._carry_out(self._decide(batch, body, attempts)))
            await self._staging.take(job, self._needed(job.writer_id))
        return await self.query(job, wait_ms_max)

    async def query(self, job: BatchJob, wait_ms_max: int) -> BatchState:
        """Returns the state of a batch; waits for one that is pending.

        Raises ParameterIllegalError.
        """
        check_job(job)
        pending = self._pending.get(job.writer_id)
        if pending is not None and pending.decision.batch.job.batch_id == job.batch_id:
            await pending.wait(self._clock, wait_ms_max)
        return self._state(job)

    async def abort(self, job: BatchJob) -> int:
        """Removes a job's staged blocks and returns the number of attempts.

        Raises ParameterIllegalError.
        """
        check_job(job)
        async with self._lock(job.writer_id):
            return await self._staging.abort(job)

    async def forget_writers(self) -> None:
        """Forgets all writers and staged blocks, except batches that are being stored."""
        for name in self._staging.names():
            await self.abort(name)
        # A start then skips earlier completions. They would bring their writers back.
        self._note_progress()
        self._ledger.forget_all(kept=self._pending)

    def _lock(self, writer_id: str) -> asyncio.Lock:
        """Returns the lock that admits one request of a writer at a time.

        The lock exists as long as a request uses it.
        """
        return self._locks.setdefault(writer_id, asyncio.Lock())

    def _needed(self, writer_id: str) -> Iterable[StagedAttempt]:
        """Returns the attempts that are being stored."""
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
        lack = f"{_described(job, *counts)}; the broker's log names what was lost"
        return BatchState(Outcome.INCOMPLETE, entry.batch_id, *counts, hindrance=lack)

    # --- Deciding ---

    async def _body(self, batch: Batch) -> bytes:
        """Returns the decision's body. Raises RecordIllegalError if it is too large."""
        body = await self._staging.in_thread(batch.to_json)
        if len(body) > self._body_bytes_max:
            raise RecordIllegalError(
                f"{len(batch.tasks)} tasks make a decision of {len(body)} bytes, limit "
                f"{self._body_bytes_max}. Write with fewer tasks, for example after coalesce()"
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
        """Notifies log cleaning and the ledger of the pending decisions."""
        decisions = [one.decision for one in self._pending.values()]
        self._store.needed_from = min(
            (decision.physical_offset for decision in decisions), default=NOTHING_NEEDED
        )
        next_offset = self._store.next_offset(BATCHES_QUEUE)
        first = min((decision.queue_offset for decision in decisions), default=next_offset)
        self._ledger.done(first, self._store.positions().log_end)

    # --- Rolling forward ---

    async def _carry_out(self, pending: DecidedBatch) -> None:
        """Stores a decided batch; retries until that succeeds."""
        job = pending.decision.batch.job
        while not pending.is_done:
            try:
                async with self._roll_forward_slots:
                    await self._roll_forward.run(pending)
                    await self._make_visible(pending)
                # RocketMQ's rule: a master without slaves near its log's end does not wait.
                with contextlib.suppress(SlaveNotAvailableError):
                    await self._group_commit.acknowledged(pending.log_end)
            except StoreError as error:
                pending.hindrance = str(error)
                if self._throttle.may_log():
                    logger.warning(
                        "batch %d of writer %r is committed, but not stored yet; %d such batches "
                        "in all: %s",
                        *(job.batch_id, job.writer_id, len(self._pending), error),
                    )
                await sleep(self._clock, RETRY_MS)
            else:
                await self._group_commit.admission.write_over()
                self._finish(pending)
                await pending.wake()

    async def _make_visible(self, pending: DecidedBatch) -> None:
        """Makes the stored messages visible. Raises StoreError if that is not possible yet."""
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
                "%s, topics %s", _described(batch.job, *counts), sorted(topics)[:TOPICS_NAMED]
            )
        self._ledger.decided(batch.job.writer_id, _entry(decision, stored_count))
        # Before the completion: nothing waits for its flush, so the ledger must not depend on it.
        self._note_progress()
        log_end = pending.log_end
        # Without a completion the next start searches for missing messages and finds none.
        with contextlib.suppress(StoreError):
            log_end = self._log.append_completion(batch, stored_count).end_offset
        self._removable.append(_RemovableFiles(list(pending.attempts.values()), log_end))
        self._staging.has_files.set()
        self._group_commit.flush_soon()

    async def run(self) -> None:
        """Removes unneeded files until stopped; sleeps while there are none."""
        while True:
            if not self._removable:
                await wait_until_set(self._staging.has_files, self._clock)
            await sleep(self._clock, SWEEP_MS)
            await self.remove_stored()
            await self._staging.sweep()

    async def remove_stored(self) -> None:
        """Removes the files of batches once all their messages are on disk."""
        flushed = self._store.flushed_end
        removable = [one for one in self._removable if one.log_end <= flushed]
        self._removable = [one for one in self._removable if one.log_end > flushed]
        for one in removable:
            await self._staging.remove_files(one.attempts)

    # --- Start ---

    async def recover(self, start: StartTask) -> None:
        """Loads decisions from the log and continues the interrupted ones.

        `start` starts tasks that end with the broker. Raises OSError if the staging files cannot be
        listed.
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
            logger.warning(
                "rolling forward a batch of writer %r that was decided before the start", writer_id
            )
            start(self._carry_out(pending))

    def _undone(self) -> list[Decision]:
        """Returns the decisions without completion; adds the completed ones to the ledger."""
        undone: dict[str, Decision] = {}
        for entry in self._log.read(self._ledger.next_offset):
            if isinstance(entry, Decision):
                undone[entry.batch.job.writer_id] = entry
            else:
                # A writer has one pending batch at a time.
                decision = undone.pop(entry.job.writer_id, None)
                record_count = entry.record_count
                if decision is not None:
                    record_count = decision.batch.record_count
                elif entry.job.batch_id <= self._ledger.last_batch(entry.job.writer_id):
                    continue
                done = LedgerEntry(
                    entry.job.batch_id,
                    entry.store_timestamp_ms,
                    record_count,
                    entry.stored_count,
                    entry.is_single,
                    entry.job.token if decision is None else decision.batch.job.token,
                )
                self._ledger.decided(entry.job.writer_id, done)
        return list(undone.values())

    async def _find_progress(self) -> None:
        """Moves each pending batch past the last record that was appended for it."""
        pending = list(self._pending.values())
        begin = min((one.decision.physical_offset for one in pending), default=None)
        if begin is None:
            return
        for numbers in self._store.batch_marks.numbers_from(begin):
            for one in pending:
                own = numbers_of(one.decision.queue_offset, numbers)
                if len(own):
                    one.found(own)
            await take_slot()


def _described(job: BatchJob, stored_count: int, record_count: int) -> str:
    of_whom = f"batch {job.batch_id} of writer {job.writer_id!r}"
    return f"{of_whom} shows {stored_count} of its {counted(record_count, 'message')}"


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
