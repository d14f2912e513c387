"""Rolling forward: a decided batch's messages from staging files to the log.

Frames are appended in the order of the decision, each by an ordinary append. Small neighbours are
joined, so that 10,000 tasks make few appends. While one thread writes a frame, another one reads
and checks the next ones. So the event loop never waits for a file system.

Each record carries its number within the decision. After a crash the start finds the last record in
the log, and continues after it. A frame that cannot be read is logged and skipped. The batch is
then incomplete, and its completion record says so.
Source: docs/design/storage.md section 2.3 for the field.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.errors import StoreClosedError
from rocketpy_broker.runtime.clock import Clock, resolve
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.runtime.tasks import run_shielded
from rocketpy_broker.services.batches.log import Batch, Decision, StagedTask
from rocketpy_broker.services.batches.staging_service import StagingService
from rocketpy_broker.services.send.service import SendService
from rocketpy_broker.store.append.batch_marks import first_number
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.dispatch import AppendHints
from rocketpy_broker.store.staging.area import StagedAttempt
from rocketpy_broker.store.staging.file import LOST_ERRNOS, Unreadable
from rocketpy_broker.store.staging.frames import StagedRecords, joined
from rocketpy_proto.call_limits import OWN_QUEUES
from rocketpy_proto.counts import counted

logger = logging.getLogger(__name__)
PROGRESS_MS = 10_000
# Limits of one read by a thread: full-size parts, and parts in all.
PARTS_AT_ONCE, PARTS_MAX = 2, 256
# Larger blocks are not joined: joining copies, and they are worth an append of their own.
JOINED_BYTES_MAX = 256 << 10
# Queue slices of a joined append; each costs the event loop about 10 us. A single
# block may have more.
SLICES_MAX = 256
# Waiters that are woken in one scheduler slot.
WAKE_COUNT = 50


class DecidedBatch:
    """A decided batch that is not stored yet.

    Its first `passed` records have been appended or given up. `stored_count` of them are in the
    log, before `log_end`. `gaps` are ranges of records before `passed` that the broker's start did
    not find in the log. `hindrance` is the error that delays the batch, or "".
    """

    def __init__(
        self, decision: Decision, attempts: Mapping[tuple[int, int], StagedAttempt], log_end: int
    ) -> None:
        self.decision = decision
        self.attempts = attempts
        self.log_end = log_end
        self.passed = 0
        self.stored_count = 0
        self.gaps: list[tuple[int, int]] = []
        self.hindrance = ""
        self.is_done = False
        self._waiters: set[asyncio.Future[None]] = set()

    def found(self, numbers: NDArray[np.int64]) -> None:
        """Takes in the next numbers of records that a start has found in the log, from 1 on."""
        places = np.concatenate([[self.passed], numbers])
        before = np.flatnonzero(np.diff(places) > 1)
        self.gaps += zip(places[before].tolist(), (places[before + 1] - 1).tolist(), strict=True)
        self.passed = int(places.max())
        self.stored_count += len(numbers)

    async def wait(self, clock: Clock, wait_ms_max: int) -> None:
        """Returns when the batch is done, or after `wait_ms_max`."""
        if self.is_done or wait_ms_max <= 0:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        timer = clock.call_later(wait_ms_max, lambda: resolve(waiter))
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiters.discard(waiter)

    async def wake(self) -> None:
        """Marks the batch as done and wakes its waiters, a few per scheduler slot."""
        self.is_done = True
        for number, waiter in enumerate(list(self._waiters), 1):
            resolve(waiter)
            if number % WAKE_COUNT == 0:
                await take_slot()


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a staging file; `before` counts the batch's records before it."""

    before: int
    records: StagedRecords | Unreadable


class RollForward:
    """The service that carries decisions out."""

    def __init__(
        self,
        store: MessageStore,
        sends: SendService,
        staging: StagingService,
        clock: Clock,
    ) -> None:
        self._store = store
        self._admission = sends.admission
        self._destinations = sends.destinations
        self._staging = staging
        self._clock = clock

    async def run(self, pending: DecidedBatch) -> None:
        """Appends the missing records. Raises StoreError; the next call appends the rest."""
        if pending.gaps:
            count = await self._staging.in_thread(lambda: self._deleted_count(pending), long=True)
            pending.stored_count += count
            pending.gaps.clear()
        logged_ms = self._clock.monotonic_ms()
        parts = _parts(pending.decision.batch, pending.attempts, pending.passed)
        with contextlib.closing(parts):
            bytes_max = self._store.staging.frame_bytes
            read = await self._staging.in_thread(lambda: _next_parts(parts, bytes_max))
            while read:
                following = self._staging.begin_in_thread(lambda: _next_parts(parts, bytes_max))
                try:
                    for part in read:
                        await self._append(pending, part)
                finally:
                    # A generator must not be closed while a thread runs it.
                    read = await run_shielded(following)
                if self._clock.monotonic_ms() - logged_ms >= PROGRESS_MS:
                    logged_ms = self._clock.monotonic_ms()
                    self._log_progress(pending)

    async def _append(self, pending: DecidedBatch, part: _Part) -> None:
        decision, records = pending.decision, part.records
        if isinstance(records, Unreadable):
            _give_up(pending, part.before, records)
            return
        count = len(records.block)
        # It waits as a large send does: the next small send must also flush these bytes.
        await self._admission.store_ready(for_bulk=True)
        async with self._admission.turn_to_write():
            await self._admission.store_ready()
            # Records of a topic that was deleted since the decision count as stored.
            if not self._is_deleted(decision, records):
                number = first_number(decision.queue_offset, part.before)
                queue, block, found = records.queue, records.block, records.found
                if found.may_wait:
                    destination = self._destinations.resolve_decided(queue, block)
                    queue, block, found = destination.queue, destination.block, destination.found
                known = AppendHints(found, number, is_joined=True)
                under_way = self._store.begin_append(queue, block, known)
                pending.log_end = (await self._admission.write(under_way)).end_offset
        pending.stored_count += count
        pending.passed = part.before + count
        pending.hindrance = ""

    def _is_deleted(self, decision: Decision, records: StagedRecords) -> bool:
        """True if the topic has been deleted since the decision."""
        return decision.physical_offset < self._store.deleted_below(records.queue.topic)

    def _deleted_count(self, pending: DecidedBatch) -> int:
        """Returns the number of records in gaps that were skipped because of a deletion. Blocks."""
        decision, gaps = pending.decision, np.array(pending.gaps)
        # The number of gap records before each bound; it does not grow between gaps.
        counts = np.cumsum(np.diff(gaps, prepend=gaps[:, :1], axis=1))
        begin, end = int(gaps[0, 0]), int(gaps[-1, 1])
        count = 0
        with contextlib.closing(_parts(decision.batch, pending.attempts, begin)) as parts:
            for part in itertools.takewhile(lambda part: part.before < end, parts):
                records = part.records
                if isinstance(records, StagedRecords) and self._is_deleted(decision, records):
                    bounds = part.before, part.before + len(records.block)
                    count += int(np.diff(np.interp(bounds, gaps.ravel(), counts))[0])
        return count

    @staticmethod
    def _log_progress(pending: DecidedBatch) -> None:
        batch = pending.decision.batch
        logger.info(
            "batch %d of writer %r: stored %d of %s",
            batch.job.batch_id,
            batch.job.writer_id,
            pending.stored_count,
            counted(batch.record_count, "message"),
        )


def _give_up(pending: DecidedBatch, before: int, lost: Unreadable) -> None:
    job = pending.decision.batch.job
    logger.critical(
        "batch %d of writer %r is committed, and has lost %s: %s",
        job.batch_id,
        job.writer_id,
        counted(lost.record_count, "message"),
        lost.reason,
    )
    pending.passed = before + lost.record_count


def _next_parts(parts: Iterator[_Part], bytes_max: int) -> list[_Part]:
    """Returns the next parts, each of `bytes_max` at most, or of one frame. Blocks.

    It returns several, since the handover of a small part to a thread costs more than the part.
    """
    some: list[_Part] = []
    taken_bytes = 0
    while taken_bytes < PARTS_AT_ONCE * bytes_max and len(some) < PARTS_MAX:
        part = next(parts, None)
        if part is None:
            break
        some.append(part)
        taken_bytes += _bytes(part)
    return list(_joined(some, bytes_max))


def _joined(some: Sequence[_Part], bytes_max: int) -> Iterator[_Part]:
    """Yields neighbours of one topic as one part of at most `bytes_max`.

    Large parts are not copied.
    """
    begin = taken_bytes = slice_count = 0
    for end, part in enumerate(some):
        taken_bytes += _bytes(part)
        slice_count += _slice_count(part)
        fits = taken_bytes <= bytes_max and slice_count <= SLICES_MAX
        if end > begin and not (fits and _may_join(some[end - 1], part)):
            yield _one_of(some[begin:end])
            begin, taken_bytes, slice_count = end, _bytes(part), _slice_count(part)
    if some:
        yield _one_of(some[begin:])


def _one_of(some: Sequence[_Part]) -> _Part:
    if len(some) == 1:
        return some[0]
    records = [part.records for part in some if isinstance(part.records, StagedRecords)]
    return _Part(some[0].before, joined(records))


def _may_join(one: _Part, other: _Part) -> bool:
    if isinstance(one.records, Unreadable) or isinstance(other.records, Unreadable):
        return False
    is_small = max(_bytes(one), _bytes(other)) <= JOINED_BYTES_MAX
    waits = one.records.found.may_wait or other.records.found.may_wait
    return is_small and not waits and one.records.queue.topic == other.records.queue.topic


def _bytes(part: _Part) -> int:
    return len(part.records.block.data) if isinstance(part.records, StagedRecords) else 0


def _slice_count(part: _Part) -> int:
    """Returns the largest possible number of queue slices."""
    records = part.records
    if isinstance(records, Unreadable) or records.queue.queue_id != OWN_QUEUES:
        return 1
    return 1 + int(np.count_nonzero(np.diff(records.block.header["queue_id"])))


def _parts(
    batch: Batch, attempts: Mapping[tuple[int, int], StagedAttempt], passed: int
) -> Generator[_Part]:
    """Yields a batch's records after the first `passed`. Blocks. Raises StoreClosedError."""
    before = 0
    for task in batch.tasks:
        if passed < before + task.counts.record_count:
            staged = attempts.get((task.task, task.token))
            for found in _found(task, staged, max(passed - before, 0)):
                yield _Part(before + found.first_record, found.records)
        before += task.counts.record_count


@dataclass(frozen=True, slots=True)
class _Found:
    """Records of a file, from its record `first_record` on."""

    first_record: int
    records: StagedRecords | Unreadable


def _found(task: StagedTask, staged: StagedAttempt | None, begin: int) -> Generator[_Found]:
    """Yields the records of one file from `begin` on; for unreadable ones the reason."""
    place, count = begin, task.counts.record_count
    reason = "their staging file is missing"
    try:
        if staged is not None:
            reason = f"{staged.file.path} ends before them, or is damaged"
            with staged.reading() as reader:
                while reader is not None and place < count:
                    records = reader.next_records(place)
                    if records is None or reader.first_record > place:
                        break
                    yield _Found(place, records)
                    place = reader.end_record
    except OSError as error:
        if error.errno not in LOST_ERRNOS:
            raise StoreClosedError(f"a staging file cannot be read: {error}") from error
        reason = str(error)
    if place < count:
        yield _Found(place, Unreadable(place, count - place, reason))
