"""Batches of prepared records: visible all at once, exactly once, or never.

A writer prepares blocks and then asks for them in one request. *Deciding* is one record in the
batches' queue; from then on the batch is committed, whatever happens. *Rolling forward* appends the
prepared records once more, as committed ones, behind the decision. With SYNC_FLUSH nobody sees
them before they are on disk, and the log is cut at its first torn record, so what can be seen is
always preceded by a decision that is on disk. A *completion* spares the next start the search.

A crash before the decision leaves prepared records that nobody ever sees. One after it leaves a
decision without completion: the start looks behind it in the log for the last record that was
committed for it, and goes on behind that one. A writer's last batch is in the ledger; that batch
and those before it are answered with ALREADY_COMMITTED.

What hinders the rolling forward (a full or slow disk, a client that hangs up) leaves the batch
pending: it is finished by the writer's next request, by `run`, or by the next start.
Rows S7, S8 of the fault tests; spec/storage.md section 14.3 for the form of committed records.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.clock import Clock, give_way, sleep
from rocketpy_broker.config import Limits
from rocketpy_broker.errors import (
    ParameterIllegalError,
    RecordIllegalError,
    StoreClosedError,
    StoreError,
)
from rocketpy_broker.services.appending import AppendService
from rocketpy_broker.services.batch_ledger import BatchLedger
from rocketpy_broker.services.batch_log import BATCHES_QUEUE, Batch, BatchLog, Decision
from rocketpy_broker.services.group_commit import GroupCommit
from rocketpy_broker.services.topics import TopicConfigManager
from rocketpy_broker.store.message_store import NOTHING_NEEDED, MessageStore

logger = logging.getLogger(__name__)
WRITER_ID_CHARACTERS_MAX = 255
RETRY_MS = 5_000


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What became of a request; `record_count` messages have become visible by it."""

    is_new: bool
    batch_id: int
    record_count: int


class _Pending:
    """A decided batch on its way: `offset`, in the range `index`, is the next record to commit."""

    def __init__(self, decision: Decision, log_end: int) -> None:
        self.decision = decision
        self.ranges = decision.batch.ranges
        self.index = 0
        self.offset = self.ranges[0].offset if self.ranges else 0
        # Up to where the log has to be on disk for what has been done so far.
        self.log_end = log_end
        self.record_count = 0

    def go_to(self, index: int, offset: int) -> None:
        """Go on at `offset` of a range, or with the next range if that is its end."""
        if offset >= self.ranges[index].end:
            index += 1
            offset = self.ranges[index].offset if index < len(self.ranges) else 0
        self.index, self.offset = index, offset

    def last_of(self, committed: NDArray[np.int64]) -> tuple[int, int] | None:
        """Range and offset of the last of these prepared records that belongs to this batch."""
        begins = np.array([wanted.offset for wanted in self.ranges], np.int64)
        ends = np.array([wanted.end for wanted in self.ranges], np.int64)
        order = np.argsort(begins)
        places = np.searchsorted(begins[order], committed, "right") - 1
        inside = (places >= 0) & (committed < ends[order][places])
        if not inside.any():
            return None
        last = int(np.flatnonzero(inside)[-1])
        return int(order[places[last]]), int(committed[last])


class BatchService:
    """Commits batches. `recover` comes before anything else; `run` is for as long as it serves."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        ledger: BatchLedger,
        appends: AppendService,
        group_commit: GroupCommit,
        clock: Clock,
        limits: Limits,
    ) -> None:
        self._store = store
        self._topics = topics
        self._ledger = ledger
        self._appends = appends
        self._group_commit = group_commit
        self._clock = clock
        self._limits = limits
        self._log = BatchLog(store, clock)
        self._pending: dict[str, _Pending] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def commit(self, batch: Batch) -> BatchResult:
        """Make all of a batch visible, unless it or a later one of its writer has been before.

        Raises ParameterIllegalError, TopicNotExistError, RecordIllegalError; then nothing is done.
        Raises StoreError, as StoreBusyError or StoreClosedError; then the batch may have been
        decided, and asking again tells.
        """
        _check_names(batch)
        async with self._lock(batch.writer_id):
            await self._finish(batch.writer_id)
            last = self._ledger.last_batch(batch.writer_id)
            if batch.batch_id <= last:
                return BatchResult(is_new=False, batch_id=last, record_count=0)
            await self._check(batch)
            self._decide(batch)
            count = await self._finish(batch.writer_id)
            return BatchResult(is_new=True, batch_id=batch.batch_id, record_count=count)

    def _lock(self, writer_id: str) -> asyncio.Lock:
        """One request of a writer at a time. The lock lives as long as somebody has it."""
        return self._locks.setdefault(writer_id, asyncio.Lock())

    # --- Deciding ---

    async def _check(self, batch: Batch) -> None:
        _check_ranges(batch, self._limits.body_bytes_max)
        self._check_there(batch)
        for wanted in batch.ranges:
            offset, count = wanted.offset, 0
            while offset < wanted.end:
                block = self._store.prepared.check_part(wanted, offset, batch.prepared_token)
                offset += len(block.data)
                count += len(block)
                await give_way()
            if count != wanted.record_count:
                raise RecordIllegalError(
                    f"{count} prepared records lie at {wanted.offset} to {wanted.end} of the log, "
                    f"the request says {wanted.record_count}; write the batch again"
                )
        # Cleaning and deleting had their turns in between.
        self._check_there(batch)

    def _check_there(self, batch: Batch) -> None:
        for wanted in batch.ranges:
            self._topics.get(wanted.queue.topic)
            self._store.prepared.check_there(wanted)

    def _decide(self, batch: Batch) -> None:
        decision = self._log.append_decision(batch)
        self._decided(decision)
        self._note_progress()

    def _decided(self, decision: Decision) -> None:
        batch = decision.batch
        log_end = self._store.positions().log_end
        self._pending[batch.writer_id] = _Pending(decision, log_end)
        self._ledger.decided(batch.writer_id, batch.batch_id, decision.store_timestamp_ms)

    def _note_progress(self) -> None:
        """Tell cleaning and the ledger what is still to be done."""
        pending = self._pending.values()
        needed = [wanted.offset for one in pending for wanted in one.ranges]
        self._store.needed_from = min(needed, default=NOTHING_NEEDED)
        next_offset = self._store.next_offset(BATCHES_QUEUE)
        first = min((one.decision.queue_offset for one in pending), default=next_offset)
        self._ledger.done(first, self._store.positions().log_end)

    # --- Rolling forward ---

    async def _finish(self, writer_id: str) -> int:
        """Carry out the writer's decision, if there is one; return how many records that took.

        Raises StoreError; the batch is then still pending.
        """
        pending = self._pending.get(writer_id)
        if pending is None:
            return 0
        await self._roll_forward(pending)
        await self._group_commit.wait(pending.log_end)
        if not self._store.is_dispatched(pending.log_end):
            raise StoreClosedError(
                "the batch is stored, but its queues cannot grow; free some space on the disk "
                "and commit it again"
            )
        del self._pending[writer_id]
        # Before the completion, which nobody flushes: the ledger must not count on it.
        self._note_progress()
        if pending.ranges:
            # Without it the next start looks for what is missing, and finds nothing.
            with contextlib.suppress(StoreError):
                self._log.append_completion(pending.decision.batch)
        return pending.record_count

    async def _roll_forward(self, pending: _Pending) -> None:
        while pending.index < len(pending.ranges):
            await self._appends.room()
            wanted = pending.ranges[pending.index]
            part = self._store.prepared.committed_part(wanted, pending.offset)
            if part.block is not None:
                result = self._store.append(wanted.queue, part.block)
                pending.log_end = result.end_offset
                pending.record_count += result.record_count
            pending.go_to(pending.index, part.end)
            await give_way()

    async def run(self) -> None:
        """Finish, for ever, what nobody asks for any more: its client is gone, or the disk was."""
        while True:
            await sleep(self._clock, RETRY_MS)
            for writer_id in list(self._pending):
                async with self._lock(writer_id):
                    if self._store.refusal is None:
                        await self._try_to_finish(writer_id)

    async def _try_to_finish(self, writer_id: str) -> None:
        try:
            await self._finish(writer_id)
        except StoreError as error:
            logger.warning("a decided batch of %r has to wait: %s", writer_id, error)

    # --- Start ---

    async def recover(self) -> None:
        """Learn from the log what was decided, and carry out what a crash has interrupted.

        The flush loop has to run; clients may come afterwards.
        """
        for entry in self._log.read(self._ledger.next_offset):
            if isinstance(entry, Decision):
                self._decided(entry)
            else:
                # A writer has one batch at a time on its way.
                self._pending.pop(entry.writer_id, None)
                self._ledger.decided(entry.writer_id, entry.batch_id, entry.store_timestamp_ms)
        if not self._pending:
            return
        self._find_progress()
        self._note_progress()
        for writer_id in list(self._pending):
            logger.warning("rolling forward a batch of %r that was decided before", writer_id)
            await self._try_to_finish(writer_id)

    def _find_progress(self) -> None:
        """Let each pending batch go on behind the last record that was committed for it."""
        pending = [one for one in self._pending.values() if one.ranges]
        begin = min((one.decision.physical_offset for one in pending), default=None)
        if begin is None:
            return
        for committed in self._store.prepared.committed_from(begin):
            for one in pending:
                last = one.last_of(committed)
                if last is not None:
                    one.go_to(last[0], self._store.prepared.end_of(last[1]))


def _check_names(batch: Batch) -> None:
    if not 1 <= len(batch.writer_id) <= WRITER_ID_CHARACTERS_MAX:
        accepted = f"1 to {WRITER_ID_CHARACTERS_MAX} characters"
        raise ParameterIllegalError("writer_id", batch.writer_id, accepted)
    if batch.batch_id < 0:
        raise ParameterIllegalError("batch_id", batch.batch_id, "0 or more")


def _check_ranges(batch: Batch, body_bytes_max: int) -> None:
    """What can be said of the ranges without looking at the log."""
    if batch.ranges and batch.prepared_token == 0:
        raise ParameterIllegalError("prepared_token", 0, "the one of the batch's blocks, not 0")
    decision_bytes = len(batch.to_json())
    if decision_bytes > body_bytes_max:
        raise RecordIllegalError(
            f"{len(batch.ranges)} ranges make a decision of {decision_bytes} bytes, the limit is "
            f"{body_bytes_max}; prepare fewer and larger blocks"
        )
    end = 0
    for wanted in sorted(batch.ranges, key=lambda wanted: wanted.offset):
        if wanted.offset < end or wanted.length <= 0 or wanted.record_count <= 0:
            raise RecordIllegalError(
                f"the range of {wanted.record_count} records in {wanted.length} bytes at "
                f"{wanted.offset} is empty, or overlaps another that ends at {end}; "
                "name each prepared block once"
            )
        end = wanted.end
