"""Append: check a block, store it, and wait for what its acknowledgement promises.

The block is checked whole before anything of it is written. A large block is checked and written
on threads, and waits for its turn behind those of other connections; small ones wait for the one
that is being written, and for no other. Holds no state beyond a counter; what a crash does is the
store's matter.
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
# One block is checked while another one is written.
THREADS = 2
# Large blocks wait when so much waits for the disk: a small one's flush has to take it along.
BULK_UNFLUSHED_BYTES_MAX = 8 << 20
# And when the flush has so many queues' parts to show, which takes the loop 10 ms.
BULK_UNDISPATCHED_MAX = 2_000


class Stored(NamedTuple):
    """A block that is stored, the queue it was sent to, and whether its sender waits for the disk.

    A message that has to wait is stored in another queue first: it `is_delayed`.
    """

    queue_id: int
    result: AppendResult
    waits: bool
    is_delayed: bool = False


class AppendService:
    """Takes blocks of clients."""

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
        """Ends the threads."""
        self._threads.shutdown(wait=True)

    @property
    def has_hooks(self) -> bool:
        """True if somebody is told of each send."""
        return bool(self._hooks)

    def append(
        self,
        topic: str,
        queue_id: int,
        records: bytes,
        record_sizes: bytes,
    ) -> Stored:
        """Stores a block of one queue; ANY_QUEUE lets the broker choose, OWN_QUEUES the records.

        The result is no acknowledgement yet: that is `acknowledged`. Raises TopicNotExistError,
        PermissionDeniedError, QueueIdIllegalError, RecordIllegalError, StoreClosedError,
        StoreBusyError, HookAbortError; then nothing of the block is stored.
        """
        context = SendContext(topic, queue_id, len(record_sizes) // 4, len(records))
        return self.hooked(context, lambda: self._append(topic, queue_id, records, record_sizes))

    def hooked(self, context: SendContext, store: Callable[[], Stored]) -> Stored:
        """Stores what a client sent, between the hooks around sends. Raises HookAbortError."""
        if not self._hooks:
            return store()
        with self._telling(context):
            stored = store()
        self._tell(context, stored)
        return stored

    @contextmanager
    def _telling(self, context: SendContext) -> Iterator[None]:
        """Calls the hooks before a send, and those after one that the block fails to make."""
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
        """Returns a client's block, in a writable copy or as it is, if it may be stored.

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
        """As `checked`, whatever queue ids the records say. Raises RecordIllegalError."""
        # What is stored is patched in place, and `bytes` cannot be patched.
        buffer = bytearray(records) if is_copied else records
        return checked_block(topic, buffer, record_sizes, self._limits.body_bytes_max)

    def store(self, queue: QueueKey, block: RecordBlock) -> Stored:
        """Stores a checked block, as `append`. Raises RecordIllegalError, PermissionDeniedError,
        StoreClosedError, StoreBusyError.
        """
        with _record_errors():
            waits = not _declines_to_wait(block)
            placed = self.destinations.placed(queue, block)
            # Also of what waits elsewhere first: the deletion could not take it along any more.
            self._store.deletions.check(queue.topic)
            result = self._store.append(placed.queue, placed.block, AppendHints(placed.found))
            return Stored(queue.queue_id, result, waits, placed.queue != queue)

    def store_at_once(self, queue: QueueKey, block: RecordBlock) -> AppendResult | None:
        """As `store`; None where the block goes elsewhere first, and then nothing is stored."""
        with _record_errors():
            placed = self.destinations.placed(queue, block)
            if placed.queue != queue:
                return None
            return self._store.append(queue, block, AppendHints(placed.found))

    # --- Large blocks ---

    @staticmethod
    def is_large(records: bytes) -> bool:
        """True if a block is for `append_large`."""
        return len(records) > SMALL_BYTES_MAX

    async def append_large(
        self, topic: str, queue_id: int, records: bytes, record_sizes: bytes
    ) -> Stored:
        """As `append`, behind others' small blocks and in turn with others' large ones.

        Raises what `append` does. What is written when the caller is cancelled is stored.
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
        """Those of large blocks before, so that not ever more wait."""
        index = self._store.index
        while index.has_many and index.drain_some():
            await scheduler.take_slot("index")

    async def _append_in_threads(
        self, queue: QueueKey, records: bytes, record_sizes: bytes
    ) -> Stored:
        placed, waits = await self._in_thread(lambda: self._placed(queue, records, record_sizes))
        async with self.turn_to_write():
            # Others had their turns: the topic may be gone, or closed for writing.
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
        """Within the block nobody else has a large block written; small ones went before."""
        async with self._one_at_a_time:
            await scheduler.take_slot("write")
            yield

    async def written(self, under_way: AppendUnderWay) -> AppendResult:
        """Let a thread write a block while it is the caller's turn. Raises StoreClosedError.

        What is written when the caller is cancelled is stored.
        """
        with self.large_writes.writing():
            try:
                await self._in_thread(under_way.write)
            finally:
                # Who is cancelled stores it, and is told of nothing that fails.
                with contextlib.suppress(StoreClosedError):
                    under_way.finish()
        return under_way.finish()

    def _placed(
        self, queue: QueueKey, records: bytes, record_sizes: bytes
    ) -> tuple[Destination, bool]:
        """On a thread: the checked block, and whether its sender waits for the disk."""
        block = self.checked(queue, records, record_sizes)
        with _record_errors():
            return self.destinations.placed(queue, block), not _declines_to_wait(block)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        with scheduler.running_scheduler().thread_at_work():
            return await run_shielded(
                asyncio.get_running_loop().run_in_executor(self._threads, work)
            )

    def queue_of(self, topic: str, queue_id: int) -> QueueKey:
        """Returns the queue that a block goes to: with ANY_QUEUE the topic's next one.

        OWN_QUEUES stays; then `checked` looks at the records' queue ids.

        Raises TopicNotExistError, TopicIllegalError, PermissionDeniedError, QueueIdIllegalError,
        NotServingYetError.
        """
        self.gate.check(topic)
        is_own = queue_id == OWN_QUEUES
        config = self._topics.check_writable(topic, ANY_QUEUE if is_own else queue_id)
        return QueueKey(topic, self._chosen(queue_id, config))

    def queue_ids_of(self, topic: str, queue_ids: Sequence[int]) -> list[int]:
        """As `queue_of` for single messages of one topic; where it refuses one, none has its turn.

        Raises what `queue_of` does.
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
        """Waits while too much waits for the disk; a sender is slowed before it is refused."""
        is_much = unflushed_bytes_max is not None and (
            self._store.unflushed_bytes > unflushed_bytes_max
            or self._store.undispatched_count > BULK_UNDISPATCHED_MAX
        )
        with contextlib.suppress(FlushTimeoutError, StoreClosedError):
            if is_much:
                await self._group_commit.wait(self._store.positions().log_end)
            # Of all who wait, the first may take the room.
            while self._store.is_busy:
                await self._group_commit.wait(self._store.positions().log_end)

    def acknowledges(self, stored: Stored) -> bool:
        """Acknowledges a block, if that waits for nothing; else that is for `acknowledged`."""
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
    """What is wrong with records, as the error for their sender."""
    try:
        yield
    except RecordError as error:
        raise RecordIllegalError(str(error)) from error


def _highest(queue: QueueKey, placed: Destination) -> int:
    """Returns the highest queue that a block goes to at once; ANY_QUEUE for one that waits first."""
    if queue.queue_id != OWN_QUEUES:
        return queue.queue_id
    is_at_once = placed.queue == queue
    return int(placed.block.header["queue_id"].max()) if is_at_once else ANY_QUEUE


def checked_block(
    topic: str, records: bytes | bytearray, record_sizes: bytes, body_bytes_max: int
) -> RecordBlock:
    """Returns a client's block in its buffer, if it may be stored. Any thread may call it.

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
    """True if every record says WAIT=false. Most blocks are through with their first record."""
    begin = int(block.properties_start[0])
    first = bytes(block.data[begin : begin + int(block.properties_length[0])])
    if NO_WAIT not in first:
        return False
    return set(property_column(block, WAIT).to_pylist()) == {"false"}
