"""The message store, and the order of changes to its files.

The data directory holds RocketMQ's `commitlog/`, `consumequeue/`, `index/`, `checkpoint`, `lock`
and `abort`. Files that RocketMQ does not have are in `rocketpy/`. One thread, the broker's event
loop, calls the store. Only functions documented as blocking run on other threads.

An append passes three stages: *written* (in the log, page cache), *flushed* (on disk), and
*dispatched*. A dispatched record is in its consume queue and the index, and visible to readers.
With SYNC_FLUSH, dispatch follows the flush, so a power cut never removes a record that a reader has
seen. A crash leaves `abort` in place; the next start then completes queues and index from the log,
see `recovery`.
Source: docs/design/storage.md sections 1, 8, 9 and 10.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rocketpy_broker.errors import (
    LogOffsetError,
    StoreBusyError,
    StoreClosedError,
    StoreError,
)
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.store.append.appender import AppendUnderWay, LogAppender
from rocketpy_broker.store.append.batch_marks import BatchMarks
from rocketpy_broker.store.append.log_copy import LogCopy
from rocketpy_broker.store.cleaner import Cleaner, SegmentWait, used_ratio
from rocketpy_broker.store.config import FlushDiskType, StoreConfig
from rocketpy_broker.store.derived import DerivedFiles
from rocketpy_broker.store.dispatcher import Dispatcher
from rocketpy_broker.store.files.checkpoint import StoreCheckpoint
from rocketpy_broker.store.files.directory import DirectoryLostError, StoreDirectory
from rocketpy_broker.store.files.store_id import OtherStoreError
from rocketpy_broker.store.log.flush import FlushPlan
from rocketpy_broker.store.log.scanner import Checksummed, LogScanner, LogSpan, Trust
from rocketpy_broker.store.queues.allocator import QueueAllocator
from rocketpy_broker.store.queues.dispatch import NOTHING_KNOWN, AppendHints
from rocketpy_broker.store.queues.readers.lookup import QueueLookup
from rocketpy_broker.store.queues.readers.messages import MessageLookup
from rocketpy_broker.store.queues.readers.random_reader import RandomReader
from rocketpy_broker.store.queues.readers.range_reader import Reader
from rocketpy_broker.store.recovery.damage_fill import DamageTable, fill_damages
from rocketpy_broker.store.recovery.passes import RecoveryResult, cut
from rocketpy_broker.store.recovery.store_opener import make_parts, recover
from rocketpy_broker.store.removal import (
    SegmentRemoval,
    TopicDeletions,
    TopicEmptying,
    TopicReturn,
)
from rocketpy_broker.store.staging.area import StagingArea
from rocketpy_broker.store.statistics import StoreStatistics
from rocketpy_broker.store.values import (
    AppendResult,
    Damage,
    GetMessageResult,
    GetMessageStatus,
    LogPositions,
    QueueBounds,
    QueueKey,
    ReadLimits,
)
from rocketpy_proto.record import BLANK_BYTES, Host, RecordBlock

logger = logging.getLogger(__name__)
NOTHING_NEEDED = 1 << 62


class MessageStore:
    """The store of one broker. Call `open` before any other method, and `close` at the end."""

    def __init__(self, config: StoreConfig, clock: Clock, store_host: Host) -> None:
        self.config = config
        self._clock = clock
        # The address written into new records. A server with port 0 sets it after the port is
        # known.
        self.store_host = store_host
        self.store_id = ""  # Set by `open`.
        self.statistics = StoreStatistics()
        self._directory = StoreDirectory(config.folder)
        self.recoveries = self._directory.recoveries
        parts = self._parts = make_parts(config, clock)
        self._log, self._queues, self.index = parts.log, parts.queues, parts.index
        self.queue_allocator = QueueAllocator(self._queues, clock)
        self._dispatcher = Dispatcher(self._queues, self.index, self.queue_allocator)
        self._appender = LogAppender(
            config,
            clock,
            self._log,
            self._queues,
            self.queue_allocator,
            self._dispatcher,
            self.statistics,
        )
        # A slave appends through this one, and never through `_appender`.
        self.copy = LogCopy(
            *(config, self._log, self._queues, self.queue_allocator, self._dispatcher),
            self._appender.times,
        )
        self._checkpoint = StoreCheckpoint(config.folder / "checkpoint")
        derived = self._dispatcher, self._appender.times, self._checkpoint, self._directory
        self._derived = DerivedFiles(config, parts, *derived)
        self.plan_manifest = self._derived.plan_manifest
        self.save_manifest = self._derived.save_manifest
        self.flush_derived = self._derived.flush
        self.deleted_below, self.gone_below = self._queues.deleted_below, self._queues.gone_below
        self.cleaner = Cleaner(config.clean_policy, clock, lambda: used_ratio(config.folder))
        self._reader = Reader(self._log, config.hot_bytes, self._keep_apart)
        self.messages = MessageLookup(self._log, self.index, self.gone_below)
        self.queue_lookup = QueueLookup(self._queues, self.messages, self._appender.times)
        self.random_reader = RandomReader(self._log, self._queues, self._keep_apart)
        self.batch_marks = BatchMarks(self._log)
        self.staging = StagingArea(
            config.folder / "rocketpy" / "staging",
            config.staging_bytes_max,
            # Delayed records grow by less than their own size.
            min(config.staging_frame_bytes, (config.commit_log_segment_bytes - BLANK_BYTES) // 2),
        )
        self.deletions = TopicDeletions(
            self._parts, self._appender.finish_append, self._forget_topic
        )
        # Cleaning keeps records from these physical offsets on.
        self.needed_from = NOTHING_NEEDED
        # On a slave: the start of its master's log.
        self.copied_from = NOTHING_NEEDED
        self.open_from: Callable[[], int] = lambda: NOTHING_NEEDED
        self.waiting_from = self.backup_from = self.open_from
        # The number of deletions of each topic since the start.
        self.deletion_counts: Counter[str] = Counter()
        self._refusal: str | None = "the store is not open"
        # The reason for which a slave refuses writes.
        self.slave_refusal: str | None = None
        self._disk_full = False
        self._damaged = DamageTable(self._log, parts.quarantine)

    # --- Start and stop ---

    def open(self) -> RecoveryResult:
        """Locks the directory, loads the files and recovers them.

        Raises StoreLockedError and StoreDirectoryError, and OSError, for example for a full disk.
        """
        self._directory.acquire()
        try:
            self.store_id = self._directory.identify()
            is_last = self._directory.started_last
            parts = self._parts
            result, known = recover(self.config, parts, self._checkpoint, started_last=is_last)
            self._appender.times.recovered(result.last_store_timestamp_ms, result.store_time_falls)
            self._dispatcher.started(result.end, result.last_store_timestamp_ms)
            self._checkpoint.recovered(result.end)
            manifest = self.plan_manifest().make()
            changed = None if manifest == known else manifest
            self._directory.started(result.end, changed, abnormal=result.abnormal)
        except BaseException:
            self._release()
            raise
        # Units of damaged records remain, so data up to the last of them is compared again.
        damaged_ends = [damage.offset + damage.length for damage in result.damages]
        self._reader.checked_from = max(result.begin, *damaged_ends, 0)
        self._reader.written_from = result.end
        self._refusal = None
        return result

    def adopt_id(self, store_id: str) -> None:
        """Makes an empty slave a copy of its master's store. Raises OSError, OtherStoreError."""
        if self._log.end > self._log.begin:
            self.check_id(store_id)
        self._directory.adopt_id(store_id)
        self.store_id = store_id

    @property
    def topic_marks(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """The physical offsets below which topics are deleted, and emptied."""
        return self._queues.marks

    def check_id(self, store_id: str) -> None:
        """Raises OtherStoreError for the id of another store; an empty id fits any store."""
        if store_id not in {"", self.store_id}:
            raise OtherStoreError(store_id, self.store_id)

    @property
    def is_manifest_old(self) -> bool:
        """True if at least a segment's size has been dispatched since the last manifest."""
        return self._derived.is_manifest_old

    def close(self) -> None:
        """Flushes everything and marks a clean stop. Raises OSError; `abort` then remains."""
        if not self._directory.is_held:
            return
        self._appender.finish_append()
        healthy = self._refusal is None
        self._refusal = "the store is stopped"
        try:
            if healthy:
                plan = self.plan_flush()
                plan.run()
                self.flushed(plan)
                self.index.drain()
                self.flush_derived()
                # With a backlog the queues are incomplete, so the next start has to read the log.
                is_behind = self._dispatcher.is_behind or self.index.is_behind
                if not (is_behind or self._derived.is_sealed):
                    self.copy.drop_received()
                    self._log.drop_ahead()
                    # Only now: damage that a read has met may have been a temporary memory error.
                    met, at_ms = self._damaged.records.values(), plan.store_timestamp_ms
                    fill_damages(self._log, self._queues, met, at_ms)
                    self._directory.stopped(self.plan_manifest().make())
        finally:
            self._release()

    def _release(self) -> None:
        self._queues.close()
        self.index.close()
        self._log.close()
        self._directory.release()

    def cut(self, end: int) -> list[Path]:
        """Ends the store at the physical offset `end`, a record's start; `close` has to follow.

        Returns the files that have a copy of the log's bytes from there on. Raises OSError; the
        next `open` then finds a store that ends at `end` or later.
        """
        kept: list[Path] = []
        # The mark is lowered first: what is missing below it would count as damaged.
        self._directory.flushed(end)
        self._directory.flush()
        cut(self._parts, end, kept)
        self._log.flushed = end
        self._dispatcher.started(end, self._log.store_timestamp_ms_at(end))
        self._checkpoint.recovered(end)
        return kept

    # --- Writing ---

    def on_dispatch(self, listener: Callable[[QueueKey], None]) -> None:
        """Calls `listener` with each queue that has new units."""
        self._dispatcher.listener = listener

    @property
    def refusal(self) -> str | None:
        """The reason for which the store refuses writes; None while it accepts them."""
        if self._refusal is None and self._disk_full:
            ratio = self.cleaner.policy.warning_level_ratio
            return (
                f"disk usage is over the limit {ratio:.0%}; free space, or restart the broker with "
                "a higher --disk-full-ratio"
            )
        return self._refusal or self.slave_refusal

    def append(
        self, queue: QueueKey, block: RecordBlock, known: AppendHints = NOTHING_KNOWN
    ) -> AppendResult:
        """Writes a block to `queue`, or to the records' queues (OWN_QUEUES). Patches its buffer.

        The records are neither durable nor visible yet: see `plan_flush` and `flushed`. The append
        hints in `known` save parsing of the records' properties, and number the records.
        Raises StoreClosedError, StoreBusyError, RecordIllegalError; then nothing is stored.
        """
        return self.begin_append(queue, block, known).finish()

    def begin_append(
        self, queue: QueueKey, block: RecordBlock, known: AppendHints = NOTHING_KNOWN
    ) -> AppendUnderWay:
        """Starts an append of a large block, written by another thread. Raises as `append` does.

        The block is stored once the append is finished. The next append finishes it if necessary.
        """
        try:
            self.check_writable()
            self.deletions.check(queue.topic)
            return self._appender.begin(queue, block, known, self.store_host)
        except StoreError:
            self.statistics.put_failed()
            raise

    def check_open(self) -> None:
        """Raises StoreClosedError if the store refuses writes."""
        self.check_directory()
        refusal = self.refusal
        if refusal is not None:
            raise StoreClosedError(refusal)

    def check_writable(self) -> None:
        """Raises StoreClosedError, or StoreBusyError if the store accepts nothing now."""
        self.check_open()
        if self.is_busy:
            raise StoreBusyError(self.unflushed_bytes, self.config.unflushed_bytes_max)

    def next_offset(self, queue: QueueKey) -> int:
        """Returns the queue offset that the next record of `queue` gets."""
        return self._appender.next_offset(queue)

    # --- Flushing and dispatching ---

    def plan_flush(self) -> FlushPlan:
        """Returns the flush that makes everything appended so far durable."""
        return FlushPlan(
            self._log.unflushed_segments(),
            self._log.end,
            self._appender.times.last_ms,
            self._directory.check,
        )

    def flushed(self, plan: FlushPlan) -> None:
        """Marks the records of the finished flush `plan` as durable and visible. Raises OSError."""
        # The mark is written first: a start drops damaged records above it.
        self._directory.flushed(max(self._log.flushed, plan.end))
        self._log.flushed = max(self._log.flushed, plan.end)
        self._checkpoint.physic_msg_timestamp_ms = plan.store_timestamp_ms
        self._dispatcher.dispatch(plan.end)

    def flush_failed(self, error: OSError) -> None:
        """Seals the store after a failed flush: the data may be partly on disk."""
        self._refusal = (
            f"flushing the commit log failed ({error.strerror}): the broker is read-only; check "
            "the disk and restart it"
        )
        if isinstance(error, DirectoryLostError):
            self._refusal = f"the broker is read-only: {error.strerror}"

    def check_directory(self) -> None:
        """Seals the store if its directory is no longer held: see `StoreDirectory.check`."""
        if self._refusal is None:
            try:
                self._directory.check()
            except DirectoryLostError as error:
                logger.critical("%s", error.strerror)
                self.flush_failed(error)

    @property
    def is_lost(self) -> bool:
        """True if another broker may hold the directory."""
        return self._directory.is_lost

    @property
    def is_sealed(self) -> bool:
        """True if nothing may be written or flushed until a restart."""
        return self._refusal is not None

    @property
    def unflushed_bytes(self) -> int:
        """Bytes of the log that may not be durable yet."""
        return self._log.end - self._log.flushed

    @property
    def is_busy(self) -> bool:
        """True if `unflushed_bytes_max` is exceeded with SYNC_FLUSH.

        With ASYNC_FLUSH the operating system slows writers down itself.
        """
        is_sync = self.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        return is_sync and self.unflushed_bytes > self.config.unflushed_bytes_max

    @property
    def flushed_end(self) -> int:
        """The physical offset below which every record is durable."""
        return self._log.flushed

    def dispatch(self) -> None:
        """Dispatches waiting index keys, and units that a full disk has held back."""
        self.queue_allocator.retry()
        self._dispatcher.retry()
        is_sync = self.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._dispatcher.dispatch(self._log.flushed if is_sync else self._log.end)
        self.index.drain()

    def is_dispatched(self, end: int, begin: int = 0) -> bool:
        """True if readers see everything that was appended from `begin` to `end` in the log."""
        return self._dispatcher.is_dispatched(end, begin)

    @property
    def undispatched_count(self) -> int:
        """The number of parts of appends that wait for their dispatch, each for one queue."""
        return self._dispatcher.waiting_count

    def preallocate(self) -> None:
        """Creates the next log segment once the last one is half full. Blocks. Raises OSError.

        May run on another thread than the other methods.
        """
        if self._log.is_half_full:
            self._log.preallocate()

    # --- Reading ---

    def positions(self) -> LogPositions:
        """Returns the start and end of the log, and the positions of flush and dispatch."""
        return LogPositions(self._log.begin, self._log.end, self._log.flushed, self._dispatcher.end)

    @property
    def last_segment_begin(self) -> int:
        """The physical offset at which the log's last segment begins."""
        return self._log.end - self._log.end % self.config.commit_log_segment_bytes

    def scan(self, begin: int) -> Iterator[LogSpan | Damage]:
        """Yields the records from the physical offset `begin` on; see `LogScanner.scan`."""
        trust = Trust(self._log.flushed, Checksummed.ALL)
        return LogScanner(self._log, trust).scan(begin)

    def log_piece(self, offset: int, bytes_max: int) -> memoryview:
        """Returns the log's bytes from `offset` on, of one segment, for a slave; empty at the end.

        With SYNC_FLUSH they are durable. Raises LogOffsetError for an offset outside the log.
        """
        is_sync = self.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        end = self._log.flushed if is_sync else self._log.end
        if end <= offset <= self._log.end:
            return memoryview(b"")
        segment = self._log.files.find(offset)
        if segment is None or offset > end:
            raise LogOffsetError(offset, self._log.begin, end)
        stop = min(offset + bytes_max, segment.end, end)
        return segment.view[offset - segment.base : stop - segment.base]

    def queues(self) -> list[QueueKey]:
        """Returns every queue that has had a message."""
        return list(self._queues.keys())

    @property
    def queue_count(self) -> int:
        """The number of queues that have had a message."""
        return len(self._queues.keys())

    def range_of(self, queue: QueueKey) -> QueueBounds:
        """Returns the minimum and maximum offset that readers can see."""
        return self._queues.range_of(queue)

    def get_message(
        self, queue: QueueKey, offset: int, offset_end: int, limits: ReadLimits
    ) -> GetMessageResult:
        """Reads records of `queue`; see `Reader.get_message`."""
        begin_ms = self._clock.monotonic_ms()
        found = self._queues.get(queue)
        if found is None:
            result = GetMessageResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        else:
            result = self._reader.get_message(found, offset, offset_end, limits)
        self.statistics.got(len(result.sizes), self._clock.monotonic_ms() - begin_ms)
        return result

    def _keep_apart(self, damage: Damage) -> None:
        """Notes a damaged record that a read has found."""
        self.statistics.corrupt_record_count += self._damaged.add(damage)

    # --- Removing ---

    def _forget_topic(self, topic: str) -> None:
        """Removes all messages of a topic that is marked as deleted."""
        self._dispatcher.drop_topic(topic)
        self.deletion_counts[topic] += 1
        self._queues.forget_topic(topic)
        self._appender.forget_topic(topic)

    def expired_segment_count(self, *, manual: bool) -> int:
        """Returns the number of log segments to remove now; see `Cleaner`. Raises OSError."""
        decision = self.cleaner.decide(self._changed_ms(), manual=manual)
        self._disk_full = decision.disk_full
        return min(decision.segment_count, self._safe_segment_count())

    def segment_waits(self, *, manual: bool) -> list[SegmentWait]:
        """Returns the reasons for which log segments stay; see `Cleaner`. Raises OSError."""
        return self.cleaner.waits(self._changed_ms(), self._safe_segment_count(), manual=manual)

    def _changed_ms(self) -> list[float]:
        return [part.changed_ms() for part in self._log.files.segments]

    def _safe_segment_count(self) -> int:
        """Returns the number of oldest segments that are unneeded, flushed and dispatched."""
        needed = min(
            *(self.needed_from, self.copied_from),
            *(self.open_from(), self.waiting_from(), self.backup_from()),
        )
        safe_end = min(self._log.flushed, self._dispatcher.end, needed)
        return sum(part.end <= safe_end for part in self._log.files.segments)

    def plan_emptying(self, topic: str) -> TopicEmptying:
        """Returns the removal of all messages of a topic that readers see.

        Raises StoreClosedError while a queue cannot grow.
        """
        self.dispatch()
        if self._dispatcher.is_holding:
            raise StoreClosedError("queues cannot grow; free space on the disk, and try again")
        return TopicEmptying.of(self._parts, topic, self._dispatcher.end)

    def plan_return(self, deleted: Mapping[str, int], emptied: Mapping[str, int]) -> TopicReturn:
        """Returns the replacement of marks of topics by lower ones, on a slave."""
        self._dispatcher.dispatch(self._log.end)
        return TopicReturn(self._parts, deleted, emptied)

    def plan_removal(self) -> SegmentRemoval:
        """Returns the removal of the log's first segment with its queue and index files."""
        return SegmentRemoval.of(self._parts)

    def removed(self, removal: SegmentRemoval) -> None:
        """Applies the finished `removal` to the loaded store."""
        removal.forget(self._parts)
