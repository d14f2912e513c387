"""Appends of record blocks to the commit log.

Each block gets a physical offset and its stored fields, is written, and is dispatched. Another
thread may write the bytes of a large block. Until that block is finished, the log ends before it
and nothing else is appended. The next append finishes it first. So there is one writer at a time,
in one order. A crash during a write leaves bytes after the log's end. Used by `MessageStore` alone,
on its thread, unless a method says otherwise.
Source: docs/design/storage.md section 10.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from rocketpy_broker.errors import StoreClosedError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.store.append.batch_marks import number
from rocketpy_broker.store.append.blocks import tags_and_keys
from rocketpy_broker.store.config import FlushDiskType, StoreConfig
from rocketpy_broker.store.dispatcher import Dispatcher
from rocketpy_broker.store.log.commit_log import CommitLog
from rocketpy_broker.store.log.segment import Segment
from rocketpy_broker.store.queues.allocator import QueueAllocator
from rocketpy_broker.store.queues.dispatch import AppendHints, block_requests
from rocketpy_broker.store.queues.slices import offset_bases, queue_slices
from rocketpy_broker.store.queues.table import ConsumeQueueTable
from rocketpy_broker.store.statistics import Put, StoreStatistics
from rocketpy_broker.store.times import StoreTimes
from rocketpy_broker.store.values import AppendResult, QueueKey
from rocketpy_proto.call_limits import OWN_QUEUES
from rocketpy_proto.record import Host, RecordBlock


class AppendUnderWay:
    """A block with its place in the log: `write` it on any thread, then `finish`."""

    def __init__(
        self,
        log: CommitLog,
        segment: Segment,
        block: RecordBlock,
        done: Callable[[], AppendResult],
        failed: Callable[[], None],
    ) -> None:
        self._log = log
        # Kept here because threads must not look it up: segments may be removed meanwhile.
        self._segment = segment
        self._block = block
        self._done, self._failed = done, failed
        self._writing = threading.Lock()
        self._has_begun = self._is_written = self._is_advanced = self._has_failed = False
        self._error: OSError | None = None
        self._result: AppendResult | None = None

    def write(self) -> None:
        """Writes the bytes, unless that was tried before. Blocks. Any thread may call it.

        `finish` raises the error of a failed write.
        """
        with self._writing:
            if not self._has_begun:
                self._has_begun = True
                try:
                    self._log.write(self._block, self._segment)
                    self._is_written = True
                except OSError as error:
                    self._error = error

    def finish(self) -> AppendResult:
        """Waits for `write`, or does it, and adds the block to the log. Raises StoreClosedError."""
        self.write()
        if not self._is_written:
            if not self._has_failed:
                self._has_failed = True
                self._failed()
            # Bytes that were not written are never part of the log, whatever the reason.
            reason = "an earlier error" if self._error is None else self._error.strerror
            raise StoreClosedError(
                f"the commit log cannot be written ({reason}); nothing was stored"
            ) from self._error
        if not self._is_advanced:
            # Done once, even if a later step fails: a hole in the log would end it at the next
            # start.
            self._is_advanced = True
            self._log.advance(self._block)
            self._result = self._done()
        if self._result is None:
            raise StoreClosedError("the block is stored, but its queues and indexes are not")
        return self._result


class LogAppender:
    """Appender of one log, in one order."""

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        log: CommitLog,
        queues: ConsumeQueueTable,
        queue_allocator: QueueAllocator,
        dispatcher: Dispatcher,
        statistics: StoreStatistics,
    ) -> None:
        self._config = config
        self._clock = clock
        self._log = log
        self._queues = queues
        self._queue_allocator = queue_allocator
        self._dispatcher = dispatcher
        self._statistics = statistics
        self.times = StoreTimes(clock)
        self._next_offsets: dict[QueueKey, int] = {}
        self._under_way: AppendUnderWay | None = None

    def finish_append(self) -> None:
        """Finishes the append in progress. Blocks while a thread writes it."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            # The caller of that append gets the error.
            with contextlib.suppress(StoreClosedError):
                under_way.finish()

    def begin(
        self, queue: QueueKey, block: RecordBlock, known: AppendHints, store_host: Host
    ) -> AppendUnderWay:
        """Gives a block its place in the log and patches its fields.

        Raises StoreClosedError, QueueGrowthError, RecordIllegalError.
        """
        self.finish_append()
        begin_ms = self._clock.monotonic_ms()
        slices = queue_slices(queue, block, self.next_offset, is_joined=known.is_joined)
        self._queue_allocator.reserve(slices)
        now_ms = self.times.next_ms()
        try:
            segment = self._log.prepare(len(block.data), len(block))
        except OSError as error:
            raise StoreClosedError(
                f"the commit log cannot be written ({error.strerror}); nothing was stored"
            ) from error
        offset = self._log.end
        number(block, known.first_number)
        block.patch_stored(
            queue_offset_first=offset_bases(slices),
            physical_offset_first=offset,
            store_timestamp_ms=now_ms,
            store_host=store_host,
            queue_id=None if queue.queue_id == OWN_QUEUES else queue.queue_id,
        )
        found = known.found or tags_and_keys(queue, block, self._config)
        requests = block_requests(slices, block, offset, found, self._config.delay_levels)

        def done() -> AppendResult:
            self.times.stored(offset, now_ms)
            for one, request in zip(slices, requests, strict=True):
                self._next_offsets[one.queue] = one.queue_offset + len(request.units)
            end = self._log.end
            self._dispatcher.add(requests, end, now_ms)
            if self._config.flush_disk_type is FlushDiskType.ASYNC_FLUSH:
                self._dispatcher.dispatch(end)
            took_ms = self._clock.monotonic_ms() - begin_ms
            self._statistics.put(Put(queue, len(block), len(block.data), took_ms, known.cause))
            first = slices[0].queue_offset
            return AppendResult(queue, first, offset, end, len(block), now_ms)

        failed = self._statistics.put_failed
        self._under_way = AppendUnderWay(self._log, segment, block, done, failed)
        return self._under_way

    def next_offset(self, queue: QueueKey) -> int:
        """Returns the queue offset that the next record of `queue` gets."""
        known = self._next_offsets.get(queue)
        return self._queues.range_of(queue).max_offset if known is None else known

    def forget_topic(self, topic: str) -> None:
        """Resets the queue offsets of a deleted topic."""
        for queue in [queue for queue in self._next_offsets if queue.topic == topic]:
            del self._next_offsets[queue]
