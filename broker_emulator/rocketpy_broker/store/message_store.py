"""The message store: commit log, consume queues, and the order in which they change.

On disk below the data directory: `commitlog/`, `consumequeue/`, `lock`, `abort`. One thread calls
it (the broker's event loop); only a `FlushPlan` runs elsewhere.

An append goes through three stages: *written* (in the log, page cache), *flushed* (on disk), and
*dispatched* (in its consume queue, visible to readers). With SYNC_FLUSH dispatch follows the
flush, so nobody reads what a power cut can take back. A crash leaves `abort` behind; the next
start then scans the whole log and completes the queues from it.
Source: spec/storage.md sections 1, 8, 9 and 10.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rocketpy_broker.clock import Clock
from rocketpy_broker.errors import StoreClosedError, StoreLockedError
from rocketpy_broker.store import files, reader
from rocketpy_broker.store.commit_log import CommitLog
from rocketpy_broker.store.consume_queue_table import ConsumeQueueTable
from rocketpy_broker.store.dispatch import DispatchRequest, block_units
from rocketpy_broker.store.flush import FlushDiskType, FlushPlan
from rocketpy_broker.store.recovery import Recovery, RecoveryResult
from rocketpy_broker.store.values import (
    AppendResult,
    GetMessageResult,
    GetMessageStatus,
    QueueKey,
    QueueRange,
)
from rocketpy_proto.record import Host, RecordBlock

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Where and how to store; sizes in bytes. Defaults are RocketMQ's (spec section 1)."""

    folder: Path
    commit_log_segment_bytes: int = 1 << 30
    consume_queue_file_bytes: int = 6_000_000
    flush_disk_type: FlushDiskType = FlushDiskType.SYNC_FLUSH


@dataclass(frozen=True, slots=True)
class _Written:
    """An append on its way to its queue; `end` is where it ends in the log."""

    end: int
    request: DispatchRequest


class MessageStore:
    """The store of one broker. Call `open` once before anything else, `close` at the end."""

    def __init__(self, config: StoreConfig, clock: Clock, store_host: Host) -> None:
        self.config = config
        self._clock = clock
        # The address that new records carry; a server with port 0 knows its own only late.
        self.store_host = store_host
        folder = config.folder
        self._log = CommitLog(folder / "commitlog", config.commit_log_segment_bytes)
        self._queues = ConsumeQueueTable(
            folder / "consumequeue",
            folder / "config" / "deletedTopics.json",
            config.consume_queue_file_bytes,
        )
        self._next_offsets: dict[QueueKey, int] = {}
        self._undispatched: deque[_Written] = deque()
        self._lock_descriptor: int | None = None
        self._refusal: str | None = "the store is not open"
        self._listener: Callable[[QueueKey], None] = lambda _queue: None

    def open(self) -> RecoveryResult:
        """Lock the directory, load and recover. Raises StoreLockedError, StoreDirectoryError."""
        folder = files.make_folder(self.config.folder)
        for name in ("commitlog", "consumequeue", "config"):
            files.make_folder(folder / name)
        self._take_lock(folder / "lock")
        try:
            self._log.load()
            self._queues.load()
            abort = folder / "abort"
            result = Recovery(self._log, self._queues, abnormal=abort.exists()).run()
            abort.write_text(str(os.getpid()), encoding="ascii")
            files.sync_folder(folder)
        except BaseException:
            self._release()
            raise
        self._refusal = None
        return result

    def _take_lock(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(descriptor)
            raise StoreLockedError(path) from error
        os.pwrite(descriptor, b"lock", 0)
        self._lock_descriptor = descriptor

    def on_dispatch(self, listener: Callable[[QueueKey], None]) -> None:
        """Call `listener` with each queue that has got new units."""
        self._listener = listener

    @property
    def refusal(self) -> str | None:
        """Why the store takes no writes; None while it takes them."""
        return self._refusal

    def append(self, queue: QueueKey, block: RecordBlock) -> AppendResult:
        """Write a block of records of one queue. `block` lies in a writable buffer and is patched.

        The records are neither durable nor visible yet: see `plan_flush` and `flushed`.
        Raises StoreClosedError, RecordIllegalError; then nothing of the block is stored.
        """
        if self._refusal is not None:
            raise StoreClosedError(self._refusal)
        queue_offset = self.next_offset(queue)
        now_ms = self._clock.now_ms()
        try:
            offset = self._log.prepare(len(block.data))
            block.patch_stored(
                queue_offset_first=queue_offset,
                physical_offset_first=offset,
                store_timestamp_ms=now_ms,
                store_host=self.store_host,
                queue_id=queue.queue_id,
            )
            units = block_units(block, offset)
            self._log.append(block.data.data)
        except OSError as error:
            raise StoreClosedError(
                f"the commit log cannot be written ({error.strerror}); nothing was stored"
            ) from error
        self._next_offsets[queue] = queue_offset + len(block)
        end = self._log.end
        request = DispatchRequest(queue, queue_offset, units)
        self._undispatched.append(_Written(end, request))
        if self.config.flush_disk_type is FlushDiskType.ASYNC_FLUSH:
            self._dispatch(end)
        return AppendResult(queue, queue_offset, offset, end, len(block), now_ms)

    def plan_flush(self) -> FlushPlan:
        """What has to be flushed to make everything appended so far durable."""
        return FlushPlan(self._log.unflushed_segments(), self._log.end)

    def flushed(self, plan: FlushPlan) -> None:
        """`plan` has been run: its records are durable and, from now on, visible."""
        self._log.flushed = max(self._log.flushed, plan.end)
        self._dispatch(plan.end)

    def flush_failed(self, error: OSError) -> None:
        """A flush failed: take no more writes, and never flush again what may be half on disk."""
        self._refusal = (
            f"flushing the commit log failed ({error.strerror}): the broker is read-only; "
            "see to the disk and restart it"
        )

    @property
    def flushed_end(self) -> int:
        """Physical offset below which every record is durable."""
        return self._log.flushed

    def dispatch(self) -> None:
        """Try again what could not be dispatched before, as when the disk was full."""
        is_sync = self.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._dispatch(self._log.flushed if is_sync else self._log.end)

    def _dispatch(self, end: int) -> None:
        """Dispatch appends up to `end`; one that fails waits, and those behind it."""
        while self._undispatched and self._undispatched[0].end <= end:
            request = self._undispatched[0].request
            try:
                self._queues.append(request.queue, request.queue_offset, request.units)
            except OSError as error:
                logger.warning("queue %s cannot grow, its messages wait: %s", request.queue, error)
                return
            self._undispatched.popleft()
            self._listener(request.queue)

    def next_offset(self, queue: QueueKey) -> int:
        """The queue offset that the next record of `queue` gets."""
        known = self._next_offsets.get(queue)
        return self._queues.range_of(queue).max_offset if known is None else known

    def queues(self) -> list[QueueKey]:
        """Every queue that has had a message."""
        return list(self._queues.keys())

    def range_of(self, queue: QueueKey) -> QueueRange:
        """Minimum and maximum offset of what readers can see."""
        return self._queues.range_of(queue)

    def get_message(
        self, queue: QueueKey, offset: int, offset_end: int, bytes_max: int
    ) -> GetMessageResult:
        """Read records of `queue`; see `reader.get_message`."""
        found = self._queues.get(queue)
        if found is None:
            return GetMessageResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        return reader.get_message(self._log, found, offset, offset_end, bytes_max)

    def delete_topic(self, topic: str) -> None:
        """Remove the topic's queues; its records can never come back. Raises OSError."""
        self._undispatched = deque(
            written for written in self._undispatched if written.request.queue.topic != topic
        )
        self._queues.delete_topic(topic, self._log.end)
        for queue in [queue for queue in self._next_offsets if queue.topic == topic]:
            del self._next_offsets[queue]

    def flush_queues(self) -> None:
        """Make the consume queues durable. Blocks. Raises OSError."""
        self._queues.flush()

    def close(self) -> None:
        """Flush all and leave a cleanly stopped store. Raises OSError; `abort` then stays."""
        if self._lock_descriptor is None:
            return
        healthy = self._refusal is None
        self._refusal = "the store is stopped"
        try:
            if healthy:
                plan = self.plan_flush()
                plan.run()
                self.flushed(plan)
                self._queues.flush()
                # With a backlog the queues are incomplete, so the next start has to read the log.
                if not self._undispatched:
                    files.remove_file(self.config.folder / "abort")
        finally:
            self._release()

    def _release(self) -> None:
        self._queues.close()
        self._log.close()
        if self._lock_descriptor is not None:
            os.close(self._lock_descriptor)
            self._lock_descriptor = None
