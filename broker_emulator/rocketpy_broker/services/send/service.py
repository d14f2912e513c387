"""The send service: checks, storage and acknowledgement of blocks of records.

A block is checked whole before any part of it is written. A large block is checked and written on
threads. `Admission` owns all waiting before a write, `GroupCommit` the waiting after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import QueueIdIllegalError, RecordIllegalError, StoreError
from rocketpy_broker.hooks import SendContext, SendOutcome
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.services.delay.schedule import DelaySchedule
from rocketpy_broker.services.flush.admission import SMALL_BYTES_MAX
from rocketpy_broker.services.flush.group_commit import GroupCommit
from rocketpy_broker.services.hooks.chain import HookChain
from rocketpy_broker.services.send.batcher import SendBatcher
from rocketpy_broker.services.send.blocks import Stored, checked_block, declines_to_wait
from rocketpy_broker.services.send.destination import Destination, DestinationResolver
from rocketpy_broker.services.send.preconditions import SendPreconditions
from rocketpy_broker.services.send.retry_sends import RetrySends
from rocketpy_broker.services.topics.manager import TopicConfigManager, is_retry
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.dispatch import AppendHints
from rocketpy_broker.store.queues.slices import slice_starts
from rocketpy_broker.store.values import AppendResult, QueueKey
from rocketpy_proto.call_limits import ANY_QUEUE, OWN_QUEUES
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.model.configs import TopicConfig
from rocketpy_proto.record import RecordBlock, RecordError


class SendService:
    """The service for the sends of clients, to topics of any kind."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        group_commit: GroupCommit,
        schedule: DelaySchedule,
        clock: Clock,
        config: BrokerConfig,
        hooks: HookChain | None = None,
        retry_sends: RetrySends | None = None,
    ) -> None:
        """Takes `retry_sends` for a broker with consumer groups."""
        self._store = store
        self._topics = topics
        self._group_commit = group_commit
        self.admission = group_commit.admission
        self.destinations = DestinationResolver(schedule, topics, store.config, config)
        self.preconditions = SendPreconditions(topics, clock, config)
        self._hooks = hooks or HookChain([])
        self._limits = config.limits
        self._retry_sends = retry_sends
        self._batcher = SendBatcher(self)
        self._turn = 0

    def configure(self, config: BrokerConfig) -> None:
        """Takes in a changed configuration."""
        self.preconditions.configure(config)
        self.destinations.configure(config)

    @property
    def has_hooks(self) -> bool:
        """True if a hook is called for each send."""
        return bool(self._hooks)

    async def append(
        self, topic: str, queue_id: int, records: bytes, record_sizes: bytes
    ) -> Stored:
        """Stores a block as `append_now` does, after it was admitted.

        Raises its errors, and for a retry topic SubscriptionGroupNotExistError,
        ParameterIllegalError, ClientsFullError, SendBackError.
        """
        admission = self.admission
        if is_retry(topic) and self._retry_sends is not None:
            return await self._append_retry(
                self._retry_sends, topic, queue_id, records, record_sizes
            )
        if len(records) > SMALL_BYTES_MAX:
            return await self.append_large(topic, queue_id, records, record_sizes)
        if admission.is_busy:
            await admission.store_ready()
        if not admission.is_busy and self._batcher.is_for(queue_id, records, record_sizes):
            stored = await self._batcher.put(topic, queue_id, records, record_sizes)
            if stored is not None:
                return stored
            await admission.store_ready()
        # Not `store_ready` again: a sender that has waited for a flush in vain is answered now.
        await admission.write_over()
        return self.append_now(topic, queue_id, records, record_sizes)

    def takes_single(self, topic: str, body_bytes: int) -> bool:
        """True if `append_single` may store a message now, without waits."""
        is_small = body_bytes <= SMALL_BYTES_MAX
        return is_small and not (self.admission.is_busy or is_retry(topic))

    def append_single(
        self, topic: str, queue_id: int, record: bytes
    ) -> asyncio.Future[Stored | None]:
        """Stores a message as `append` does, without a task.

        The result is None if the message needs `append`; it is then not stored.
        """
        return self._batcher.put(topic, queue_id, record, len(record).to_bytes(4, "big"))

    async def _append_retry(
        self,
        retry_sends: RetrySends,
        topic: str,
        queue_id: int,
        records: bytes,
        record_sizes: bytes,
    ) -> Stored:
        await self.admission.store_ready()
        self.preconditions.check(topic)
        group = await retry_sends.group(topic, len(record_sizes) // 4)
        await self.admission.write_over()
        sent_to = self.queue_of(topic, queue_id)
        block = self.checked(sent_to, records, record_sizes)
        queue, block = await retry_sends.destination(group, sent_to, block, self.admission)
        context = SendContext(topic, queue_id, len(block), len(records))
        return self._hooked(context, lambda: self.store(queue, block))

    def append_now(self, topic: str, queue_id: int, records: bytes, record_sizes: bytes) -> Stored:
        """Stores a block in one queue, or with OWN_QUEUES in the queues of its records.

        With ANY_QUEUE the broker chooses the queue. The result is not acknowledged yet; see
        `acknowledged`. Raises TopicNotExistError, PermissionDeniedError, QueueIdIllegalError,
        RecordIllegalError, StoreClosedError, StoreBusyError, HookAbortError; then nothing of the
        block is stored.
        """

        def store() -> Stored:
            queue = self.queue_of(topic, queue_id)
            return self.store(queue, self.checked(queue, records, record_sizes))

        return self._hooked(
            SendContext(topic, queue_id, len(record_sizes) // 4, len(records)), store
        )

    def _hooked(self, context: SendContext, store: Callable[[], Stored]) -> Stored:
        """Calls `store` between the hooks around a send. Raises HookAbortError."""
        if not self._hooks:
            return store()
        with self._hooks_around(context):
            stored = store()
        self._hooks.after_send(context, _outcome(stored))
        return stored

    @contextmanager
    def _hooks_around(self, context: SendContext) -> Iterator[None]:
        """Calls the hooks before a send; after a StoreError of the `with` body, the later ones."""
        self._hooks.before_send(context)
        try:
            yield
        except StoreError as error:
            self._hooks.after_send(context, SendOutcome(error.code, error.remark, -1, -1, -1))
            raise

    def checked(
        self, queue: QueueKey, records: bytes, record_sizes: bytes, *, is_copied: bool = True
    ) -> RecordBlock:
        """Returns a client's checked block, in a writable copy if `is_copied`.

        With OWN_QUEUES it checks the records' queue ids, too. Any thread may call it. Raises
        RecordIllegalError, TopicNotExistError, QueueIdIllegalError.
        """
        topic, queue_id = queue
        # The store patches records in place, and `bytes` cannot be patched.
        buffer = bytearray(records) if is_copied else records
        block = checked_block(topic, buffer, record_sizes, self._limits.body_bytes_max)
        if queue_id == OWN_QUEUES:
            ids = block.header["queue_id"][slice_starts(block)]
            queue_nums = self._topics.get(topic).write_queue_nums
            wrong = ids[(ids < 0) | (ids >= queue_nums)]
            if len(wrong):
                raise QueueIdIllegalError(topic, int(wrong[0]), queue_nums)
        return block

    def store(self, queue: QueueKey, block: RecordBlock) -> Stored:
        """Stores a checked block as `append_now` does.

        Raises RecordIllegalError, PermissionDeniedError, StoreClosedError, StoreBusyError.
        """
        with _record_errors():
            waits = not declines_to_wait(block)
            destination = self.destinations.resolve(queue, block)
            # Also for a delayed block: the deletion of its topic could not remove it later.
            self._store.deletions.check(queue.topic)
            result = self._store.append(
                destination.queue, destination.block, AppendHints(destination.found)
            )
            return Stored(queue.queue_id, result, waits, destination.delayed(queue))

    def store_at_once(self, queue: QueueKey, block: RecordBlock) -> AppendResult | None:
        """Stores a block as `store` does; returns None, without storing, for a delayed block."""
        with _record_errors():
            destination = self.destinations.resolve(queue, block)
            if destination.queue != queue:
                return None
            return self._store.append(queue, block, AppendHints(destination.found))

    async def append_large(
        self, topic: str, queue_id: int, records: bytes, record_sizes: bytes
    ) -> Stored:
        """Stores a large block as `append_now` does, after small blocks that wait.

        Large blocks of several connections take turns. Raises the errors of `append_now`. If the
        caller is cancelled during the write, the block is stored.
        """
        async with self.admission.large(len(records)):
            context = SendContext(topic, queue_id, len(record_sizes) // 4, len(records))
            with self._hooks_around(context):
                queue = self.queue_of(topic, queue_id)
                stored = await self._append_in_threads(queue, records, record_sizes)
            self._hooks.after_send(context, _outcome(stored))
            return stored

    async def _append_in_threads(
        self, queue: QueueKey, records: bytes, record_sizes: bytes
    ) -> Stored:
        admission = self.admission
        destination, waits = await admission.in_thread(
            lambda: self._destination_of(queue, records, record_sizes)
        )
        async with admission.turn_to_write():
            # Other tasks have run: the topic may be gone, or closed for writing.
            self._topics.check_writable(queue.topic, _highest(queue, destination))
            self._store.deletions.check(queue.topic)
            with _record_errors():
                under_way = self._store.begin_append(
                    destination.queue, destination.block, AppendHints(destination.found)
                )
            result = await admission.write(under_way)
        return Stored(queue.queue_id, result, waits, destination.delayed(queue))

    def _destination_of(
        self, queue: QueueKey, records: bytes, record_sizes: bytes
    ) -> tuple[Destination, bool]:
        """Returns the checked block's destination, and True if its sender waits for the flush.

        Runs on a thread.
        """
        block = self.checked(queue, records, record_sizes)
        with _record_errors():
            return self.destinations.resolve(queue, block), not declines_to_wait(block)

    def queue_of(self, topic: str, queue_id: int) -> QueueKey:
        """Returns the queue for a block; with ANY_QUEUE the next one in rotation.

        OWN_QUEUES stays; then `checked` checks the records' queue ids.

        Raises TopicNotExistError, TopicIllegalError, PermissionDeniedError, QueueIdIllegalError,
        NotServingYetError.
        """
        self.preconditions.check(topic)
        is_own = queue_id == OWN_QUEUES
        config = self._topics.check_writable(topic, ANY_QUEUE if is_own else queue_id)
        return QueueKey(topic, self._chosen(queue_id, config))

    def queue_ids_of(self, topic: str, queue_ids: Sequence[int]) -> list[int]:
        """Returns the queue ids for single messages of one topic, as `queue_of` does.

        If it refuses one of them, the rotation of queues does not advance. Raises the errors of
        `queue_of`.
        """
        self.preconditions.check(topic)
        self._topics.check_writable(topic, min(queue_ids))
        config = self._topics.check_writable(topic, max(queue_ids))
        return [self._chosen(queue_id, config) for queue_id in queue_ids]

    def _chosen(self, queue_id: int, config: TopicConfig) -> int:
        if queue_id != ANY_QUEUE:
            return queue_id
        self._turn += 1
        return self._turn % config.write_queue_nums

    def acknowledges(self, stored: Stored) -> bool:
        """True if a block may be acknowledged at once; else `acknowledged` waits for it.

        It requests a flush for a block if its sender does not wait.
        """
        if stored.waits:
            return self._group_commit.is_acknowledged(stored.result.end_offset)
        self._group_commit.flush_soon()
        return True

    def acknowledgement(self, stored: Stored) -> asyncio.Future[None]:
        """Returns a future that ends as `acknowledged` does; no caller may cancel it.

        Raises StoreClosedError.
        """
        return self._group_commit.acknowledgement(stored.result.end_offset)

    async def acknowledged(self, stored: Stored) -> None:
        """Waits until a block may be acknowledged. Raises StoreClosedError, UnconfirmedError."""
        if not self.acknowledges(stored):
            await self._group_commit.acknowledged(stored.result.end_offset)


def _outcome(stored: Stored) -> SendOutcome:
    result, success = stored.result, ResponseCode.SUCCESS
    return SendOutcome(success, "", stored.queue_id, result.queue_offset, result.physical_offset)


@contextmanager
def _record_errors() -> Iterator[None]:
    """Converts RecordError in the `with` body to RecordIllegalError, the error for the sender."""
    try:
        yield
    except RecordError as error:
        raise RecordIllegalError(str(error)) from error


def _highest(queue: QueueKey, destination: Destination) -> int:
    """Returns the highest queue id of a block; ANY_QUEUE for a delayed block with OWN_QUEUES."""
    if queue.queue_id != OWN_QUEUES:
        return queue.queue_id
    is_at_once = destination.queue == queue
    return int(destination.block.header["queue_id"].max()) if is_at_once else ANY_QUEUE
