"""The append service: checks, storage and acknowledgement of blocks of records.

A block is checked whole before any part of it is written. A large block is checked and written on
threads, and waits for the large blocks of other connections. A small block waits only for the large
block that is being written.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple, TypeVar

import numpy as np

from rocketpy_broker.config import Limits
from rocketpy_broker.errors import (
    FlushTimeoutError,
    QueueIdIllegalError,
    RecordIllegalError,
    StoreClosedError,
    StoreError,
)
from rocketpy_broker.hooks import SendContext, SendOutcome
from rocketpy_broker.response_code import ResponseCode
from rocketpy_broker.runtime import scheduler
from rocketpy_broker.runtime.tasks import run_shielded
from rocketpy_broker.services.flush.group_commit import GroupCommit
from rocketpy_broker.services.hooks.chain import HookChain
from rocketpy_broker.services.send.destination import Destination, DestinationResolver
from rocketpy_broker.services.send.in_flight_limiter import SMALL_BYTES_MAX, InFlightLimiter
from rocketpy_broker.services.send.preconditions import SendPreconditions
from rocketpy_broker.services.topics.config import TopicConfig
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.append.appender import AppendUnderWay
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.dispatch import AppendHints
from rocketpy_broker.store.queues.slices import run_starts
from rocketpy_broker.store.values import AppendResult, QueueKey
from rocketpy_proto.call_limits import ANY_QUEUE, OWN_QUEUES
from rocketpy_proto.record import MalformedRecordError, RecordBlock, RecordError, property_column
from rocketpy_proto.record.sys_flag import has_transactions

T = TypeVar("T")
WAIT = "WAIT"
NO_WAIT = b"WAIT\x01false"
# One for the check of a block, one for the write of another.
THREADS = 2
# Unflushed bytes beyond which large blocks wait: the flush of a small block includes them.
BULK_UNFLUSHED_BYTES_MAX = 8 << 20
# Undispatched queue slices beyond which large blocks wait; dispatch takes the loop 10 ms.
BULK_UNDISPATCHED_MAX = 2_000


class Stored(NamedTuple):
    """A stored block with the queue that it was sent to.

    `waits` is True if its sender waits for the flush. `is_delayed` is True if the message is stored
    in another queue first.
    """

    queue_id: int
    result: AppendResult
    waits: bool
    is_delayed: bool = False


class AppendService:
    """The service that stores blocks of clients."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        group_commit: GroupCommit,
        destinations: DestinationResolver,
        gate: SendPreconditions,
        limits: Limits,
        hooks: HookChain | None = None,
    ) -> None:
        self._store = store
        self._topics = topics
        self._group_commit = group_commit
        self.large_writes = group_commit.large_writes
        self.destinations = destinations
        self.gate = gate
        self._hooks = hooks or HookChain([])
        self._limits = limits
        self._turn = 0
        self._in_flight = InFlightLimiter()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="append")
        self._one_at_a_time = asyncio.Lock()

    def close(self) -> None:
        """Waits for running work and ends the threads."""
        self._threads.shutdown(wait=True)

    @property
    def has_hooks(self) -> bool:
        """True if a hook is called for each send."""
        return bool(self._hooks)

    def append(
        self,
        topic: str,
        queue_id: int,
        records: bytes,
        record_sizes: bytes,
    ) -> Stored:
        """Stores a block in one queue, or with OWN_QUEUES in the queues of its records.

        With ANY_QUEUE the broker chooses the queue. The result is not acknowledged yet; see
        `acknowledged`. Raises TopicNotExistError, PermissionDeniedError, QueueIdIllegalError,
        RecordIllegalError, StoreClosedError, StoreBusyError, HookAbortError; then nothing of the
        block is stored.
        """
        context = SendContext(topic, queue_id, len(record_sizes) // 4, len(records))
        return self.hooked(context, lambda: self._append(topic, queue_id, records, record_sizes))

    def hooked(self, context: SendContext, store: Callable[[], Stored]) -> Stored:
        """Calls `store` between the hooks around a send. Raises HookAbortError."""
        if not self._hooks:
            return store()
        with self._telling(context):
            stored = store()
        self._tell(context, stored)
        return stored

    @contextmanager
    def _telling(self, context: SendContext) -> Iterator[None]:
        """Calls the hooks before a send, and the hooks after it if the block raises StoreError."""
        if not self._hooks:
            yield
            return
        self._hooks.before_send(context)
        try:
            yield
        except StoreError as error:
            self._hooks.after_send(context, SendOutcome(error.code, error.remark, -1, -1, -1))
            raise

    def _tell(self, context: SendContext, stored: Stored) -> None:
        if not self._hooks:
            return
        result, success = stored.result, ResponseCode.SUCCESS
        self._hooks.after_send(
            context,
            SendOutcome(success, "", stored.queue_id, result.queue_offset, result.physical_offset),
        )

    def _append(self, topic: str, queue_id: int, records: bytes, record_sizes: bytes) -> Stored:
        queue = self.queue_of(topic, queue_id)
        return self.store(queue, self.checked(queue, records, record_sizes))

    def checked(
        self, queue: QueueKey, records: bytes, record_sizes: bytes, *, is_copied: bool = True
    ) -> RecordBlock:
        """Returns a client's checked block, in a writable copy if `is_copied`.

        Any thread may call it. Raises RecordIllegalError, TopicNotExistError, QueueIdIllegalError.
        """
        topic, queue_id = queue
        block = self.checked_records(topic, records, record_sizes, is_copied=is_copied)
        if queue_id == OWN_QUEUES:
            ids = block.header["queue_id"][run_starts(block)]
            queue_nums = self._topics.get(topic).write_queue_nums
            wrong = ids[(ids < 0) | (ids >= queue_nums)]
            if len(wrong):
                raise QueueIdIllegalError(topic, int(wrong[0]), queue_nums)
        return block

    def checked_records(
        self, topic: str, records: bytes, record_sizes: bytes, *, is_copied: bool = True
    ) -> RecordBlock:
        """Returns a block as `checked` does, without a check of the records' queue ids.

        Raises RecordIllegalError.
        """
        # The store patches records in place, and `bytes` cannot be patched.
        buffer = bytearray(records) if is_copied else records
        return checked_block(topic, buffer, record_sizes, self._limits.body_bytes_max)

    def store(self, queue: QueueKey, block: RecordBlock) -> Stored:
        """Stores a checked block as `append` does.

        Raises RecordIllegalError, PermissionDeniedError, StoreClosedError, StoreBusyError.
        """
        with _record_errors():
            waits = not _declines_to_wait(block)
            placed = self.destinations.placed(queue, block)
            # Also for a delayed block: the deletion of its topic could not remove it later.
            self._store.deletions.check(queue.topic)
            result = self._store.append(placed.queue, placed.block, AppendHints(placed.found))
            return Stored(queue.queue_id, result, waits, placed.queue != queue)

    def store_at_once(self, queue: QueueKey, block: RecordBlock) -> AppendResult | None:
        """Stores a block as `store` does; returns None, without storing, for a delayed block."""
        with _record_errors():
            placed = self.destinations.placed(queue, block)
            if placed.queue != queue:
                return None
            return self._store.append(queue, block, AppendHints(placed.found))

    # --- Large blocks ---

    @staticmethod
    def is_large(records: bytes) -> bool:
        """True if a block is to be stored by `append_large`."""
        return len(records) > SMALL_BYTES_MAX

    async def append_large(
        self, topic: str, queue_id: int, records: bytes, record_sizes: bytes
    ) -> Stored:
        """Stores a large block as `append` does, after small blocks and in turn with large ones.

        Raises the errors of `append`. If the caller is cancelled during the write, the block is
        stored.
        """
        async with self._in_flight.room(scheduler.connection.get(), len(records)):
            await self.room(BULK_UNFLUSHED_BYTES_MAX)
            await scheduler.take_slot("append")
            await self._keys_entered()
            context = SendContext(topic, queue_id, len(record_sizes) // 4, len(records))
            with self._telling(context):
                queue = self.queue_of(topic, queue_id)
                stored = await self._append_in_threads(queue, records, record_sizes)
            self._tell(context, stored)
            return stored

    async def _keys_entered(self) -> None:
        """Enters waiting index keys of earlier large blocks, so that their number stays limited."""
        index = self._store.index
        while index.has_many and index.drain_some():
            await scheduler.take_slot("index")

    async def _append_in_threads(
        self, queue: QueueKey, records: bytes, record_sizes: bytes
    ) -> Stored:
        placed, waits = await self._in_thread(lambda: self._placed(queue, records, record_sizes))
        async with self.turn_to_write():
            # Other tasks have run: the topic may be gone, or closed for writing.
            self._topics.check_writable(queue.topic, _highest(queue, placed))
            self._store.deletions.check(queue.topic)
            with _record_errors():
                under_way = self._store.begin_append(
                    placed.queue, placed.block, AppendHints(placed.found)
                )
            result = await self.written(under_way)
        return Stored(queue.queue_id, result, waits, placed.queue != queue)

    @asynccontextmanager
    async def turn_to_write(self) -> AsyncIterator[None]:
        """Waits for other large writes and a scheduler slot; excludes them within the block."""
        async with self._one_at_a_time:
            await scheduler.take_slot("write")
            yield

    async def written(self, under_way: AppendUnderWay) -> AppendResult:
        """Writes a block on a thread, within the caller's `turn_to_write`.

        If the caller is cancelled during the write, the block is stored. Raises StoreClosedError.
        """
        with self.large_writes.writing():
            try:
                await self._in_thread(under_way.write)
            finally:
                # A cancelled caller also stores the block; it gets no error of the store.
                with contextlib.suppress(StoreClosedError):
                    under_way.finish()
        return under_way.finish()

    def _placed(
        self, queue: QueueKey, records: bytes, record_sizes: bytes
    ) -> tuple[Destination, bool]:
        """Returns the checked block's destination, and True if its sender waits for the flush.

        Runs on a thread.
        """
        block = self.checked(queue, records, record_sizes)
        with _record_errors():
            return self.destinations.placed(queue, block), not _declines_to_wait(block)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        with scheduler.running_scheduler().thread_at_work():
            return await run_shielded(
                asyncio.get_running_loop().run_in_executor(self._threads, work)
            )

    def queue_of(self, topic: str, queue_id: int) -> QueueKey:
        """Returns the queue for a block; with ANY_QUEUE the next one in rotation.

        OWN_QUEUES stays; then `checked` checks the records' queue ids.

        Raises TopicNotExistError, TopicIllegalError, PermissionDeniedError, QueueIdIllegalError,
        NotServingYetError.
        """
        self.gate.check(topic)
        is_own = queue_id == OWN_QUEUES
        config = self._topics.check_writable(topic, ANY_QUEUE if is_own else queue_id)
        return QueueKey(topic, self._chosen(queue_id, config))

    def queue_ids_of(self, topic: str, queue_ids: Sequence[int]) -> list[int]:
        """Returns the queue ids for single messages of one topic, as `queue_of` does.

        If it refuses one of them, the rotation of queues does not advance. Raises the errors of
        `queue_of`.
        """
        self.gate.check(topic)
        self._topics.check_writable(topic, min(queue_ids))
        config = self._topics.check_writable(topic, max(queue_ids))
        return [self._chosen(queue_id, config) for queue_id in queue_ids]

    def _chosen(self, queue_id: int, config: TopicConfig) -> int:
        if queue_id != ANY_QUEUE:
            return queue_id
        self._turn += 1
        return self._turn % config.write_queue_nums

    @property
    def is_busy(self) -> bool:
        """True if a sender has to wait for `room`."""
        return self._store.is_busy

    async def room(self, unflushed_bytes_max: int | None = None) -> None:
        """Waits while too many bytes are unflushed, so that a sender is slowed, not refused.

        Without `unflushed_bytes_max` only the store's own limit counts.
        """
        is_much = unflushed_bytes_max is not None and (
            self._store.unflushed_bytes > unflushed_bytes_max
            or self._store.undispatched_count > BULK_UNDISPATCHED_MAX
        )
        with contextlib.suppress(FlushTimeoutError, StoreClosedError):
            if is_much:
                await self._group_commit.wait(self._store.positions().log_end)
            # Another waiter may have filled the store again.
            while self._store.is_busy:
                await self._group_commit.wait(self._store.positions().log_end)

    def acknowledges(self, stored: Stored) -> bool:
        """True if a block may be acknowledged at once; else `acknowledged` waits for it.

        It requests a flush for a block whose sender does not wait.
        """
        if stored.waits:
            return self._group_commit.is_acknowledged(stored.result.end_offset)
        self._group_commit.flush_soon()
        return True

    async def acknowledged(self, stored: Stored) -> None:
        """Waits until a block may be acknowledged. Raises StoreClosedError, FlushTimeoutError."""
        if not self.acknowledges(stored):
            await self._group_commit.wait(stored.result.end_offset)


@contextmanager
def _record_errors() -> Iterator[None]:
    """Converts RecordError in the block to RecordIllegalError, the error for the sender."""
    try:
        yield
    except RecordError as error:
        raise RecordIllegalError(str(error)) from error


def _highest(queue: QueueKey, placed: Destination) -> int:
    """Returns the highest queue id of a block; ANY_QUEUE for a delayed block with OWN_QUEUES."""
    if queue.queue_id != OWN_QUEUES:
        return queue.queue_id
    is_at_once = placed.queue == queue
    return int(placed.block.header["queue_id"].max()) if is_at_once else ANY_QUEUE


def checked_block(
    topic: str, records: bytes | bytearray, record_sizes: bytes, body_bytes_max: int
) -> RecordBlock:
    """Returns a client's checked block in its buffer. Any thread may call it.

    Raises RecordIllegalError.
    """
    if len(record_sizes) % 4 or not record_sizes:
        raise RecordIllegalError(
            f"record_sizes has {len(record_sizes)} bytes; it must hold one int32 per record, "
            "and at least one"
        )
    sizes = np.frombuffer(record_sizes, ">i4").astype(np.int32)
    try:
        block = RecordBlock.parse(records, sizes)
        block.verify_body_crc()
    except MalformedRecordError as error:
        raise RecordIllegalError(f"the block is malformed: {error}") from error
    if block.single_topic() != topic:
        raise RecordIllegalError(f"the block holds records of other topics than {topic!r:.200}")
    longest = int(block.body_length.max())
    if longest > body_bytes_max:
        raise RecordIllegalError(
            f"a message body has {longest} bytes, the limit is {body_bytes_max}"
        )
    if has_transactions(block.header["sys_flag"]):
        raise RecordIllegalError(
            "the block holds prepared, committed or rolled back records; "
            "send records without transaction bits"
        )
    return block


def _declines_to_wait(block: RecordBlock) -> bool:
    """True if every record has WAIT=false; for most blocks the first record decides."""
    begin = int(block.properties_start[0])
    first = bytes(block.data[begin : begin + int(block.properties_length[0])])
    if NO_WAIT not in first:
        return False
    return set(property_column(block, WAIT).to_pylist()) == {"false"}
