"""The send batcher, which stores single messages as one block.

A block costs nearly the same with one message as with a hundred. So a single message waits for the
next pass of the event loop. It is then stored with all other waiting messages of its topic, sorted
by queue. A lone message waits no longer than that. A message that cannot be batched, such as a
refused or a delayed one, is stored or refused alone. So each sender gets the answer that it would
get alone. If a topic has more waiting messages than one block holds, the other messages are bulk:
they wait for scheduler slots, so that other calls make progress.

State in memory: the messages of one pass. A crash before their block is written loses them; none of
them was acknowledged.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from rocketpy_broker.errors import (
    BrokerError,
    QueueIdIllegalError,
    RecordIllegalError,
    StoreClosedError,
)
from rocketpy_broker.runtime.scheduler import connection, running_scheduler
from rocketpy_broker.services.flush.admission import SMALL_BYTES_MAX
from rocketpy_broker.services.send.blocks import NO_WAIT, Stored
from rocketpy_broker.store.values import AppendResult, QueueKey
from rocketpy_proto.call_limits import ANY_QUEUE, BLOCK_QUEUES_MAX, OWN_QUEUES
from rocketpy_proto.record import RecordBlock

if TYPE_CHECKING:
    from rocketpy_broker.services.send.service import SendService

# Each message may have another queue.
BATCH_SENDS_MAX = BLOCK_QUEUES_MAX
# Connections that wait for a slot of bulk at the same time.
SLOTS_MAX = 64
# A message that is stored alone counts as at least this size, so a block has a few of them.
ALONE_BYTES = SMALL_BYTES_MAX // 4
# Marks of messages that cannot, or probably cannot, be batched; checks find the rest.
ALONE = (NO_WAIT, b"DELAY\x01", b"TIMER_DEL", b"TRAN_MSG\x01")


@dataclass(slots=True, eq=False)
class Send:
    """A message, its connection, and the future of its sender."""

    connection: str
    queue_id: int
    record: bytes
    record_sizes: bytes
    stored: asyncio.Future[Stored | None]


class SendBatcher:
    """The batcher of clients' single messages."""

    def __init__(self, sends: SendService) -> None:
        self._sends = sends
        self._admission = sends.admission
        # The next topic comes first.
        self._by_topic: dict[str, list[Send]] = {}
        # Topics that wait for slots; their new messages join them.
        self._bulk: dict[str, list[Send]] = {}
        # Connections that wait for a slot; not empty while `_bulk` has messages.
        self._waiting = set[str]()
        # True after a failed flush: while the store is busy, each sender of bulk waits by itself.
        self._is_stuck = False

    @staticmethod
    def is_for(queue_id: int, records: bytes, record_sizes: bytes) -> bool:
        """True if a block is a single message that may be batched."""
        is_single = len(record_sizes) == 4 and int.from_bytes(record_sizes, "big") == len(records)
        return is_single and queue_id != OWN_QUEUES

    def put(
        self, topic: str, queue_id: int, records: bytes, record_sizes: bytes
    ) -> asyncio.Future[Stored | None]:
        """Stores a message as `SendService.append_now` does, in a batch.

        If the store is busy, the message is not stored and the result is None: the caller waits for
        room and sends the message alone. If the future is cancelled, the message may be stored or
        not.
        """
        loop = asyncio.get_running_loop()
        send = Send(connection.get(), queue_id, records, record_sizes, loop.create_future())
        if topic in self._bulk:
            self._bulk[topic].append(send)
            self._wait_for_slot(send.connection)
            return send.stored
        if not self._by_topic:
            loop.call_soon(self._store_next)
        self._by_topic.setdefault(topic, []).append(send)
        return send.stored

    def _store_next(self) -> None:
        """Stores a block of one topic; the next topic is stored in the next pass of the loop."""
        if self._admission.is_writing:
            self._admission.when_write_over(self._store_next)
            return
        topic, sends = self._next_block(self._by_topic)
        if self._by_topic:
            asyncio.get_running_loop().call_soon(self._store_next)
        self._store_block(topic, sends)

    def _store_bulk(self, connection_id: str) -> None:
        """Stores a block of one topic in a slot of a connection."""
        if self._admission.is_writing:
            # Not at once: many slots may have been granted during the write.
            self._admission.when_write_over(lambda: self._take_slot(connection_id))
            return
        if self._admission.is_busy and not self._is_stuck:
            # If its sender waited by itself, a message could be stored after a later one of its
            # connection.
            self._admission.when_flushed(lambda is_done: self._flushed(connection_id, is_done))
            return
        self._is_stuck = self._admission.is_busy
        self._waiting.remove(connection_id)
        if self._bulk:
            self._store_block(*self._next_block(self._bulk))

    def _next_block(self, by_topic: dict[str, list[Send]]) -> tuple[str, list[Send]]:
        """Returns the messages of a block of the first topic; its other messages become bulk."""
        topic = next(iter(by_topic))
        sends = by_topic.pop(topic)
        count = _count_of_block(sends, has_hooks=self._sends.has_hooks)
        if len(sends) > count:
            self._bulk[topic] = sends[count:]
        for send in next(iter(self._bulk.values()), [])[:SLOTS_MAX]:
            self._wait_for_slot(send.connection)
        return topic, sends[:count]

    def _wait_for_slot(self, connection_id: str) -> None:
        if connection_id not in self._waiting and len(self._waiting) < SLOTS_MAX:
            self._waiting.add(connection_id)
            self._take_slot(connection_id)

    def _take_slot(self, connection_id: str) -> None:
        slot = running_scheduler().slot(connection_id, "send")
        slot.add_done_callback(lambda _: self._store_bulk(connection_id))

    def _flushed(self, connection_id: str, is_done: bool) -> None:
        self._is_stuck = not is_done
        self._take_slot(connection_id)

    def _store_block(self, topic: str, sends: list[Send]) -> None:
        """Stores messages of senders that still wait."""
        sends = [send for send in sends if not send.stored.done()]
        try:
            self._store(topic, sends)
        finally:
            # An unexpected error ends the wait of all senders.
            for send in sends:
                if not send.stored.done():
                    send.stored.set_exception(StoreClosedError("the message cannot be stored"))

    def _store(self, topic: str, sends: list[Send]) -> None:
        """Stores messages together; after a refusal, stores each half of them in the same way."""
        # Hooks are called for each message, and a busy store accepts none.
        if len(sends) < 2 or self._sends.has_hooks or self._admission.is_busy:
            self._store_each(topic, sends)
            return
        try:
            if self._store_together(topic, sends):
                return
        except (RecordIllegalError, QueueIdIllegalError):
            pass
        except BrokerError:
            # The error is the same for all messages; each sender gets its own.
            self._store_each(topic, sends)
            return
        middle = len(sends) // 2
        self._store(topic, sends[:middle])
        self._store(topic, sends[middle:])

    def _store_each(self, topic: str, sends: list[Send]) -> None:
        for send in sends:
            if self._admission.is_busy:
                send.stored.set_result(None)
                continue
            try:
                stored = self._sends.append_now(
                    topic, send.queue_id, send.record, send.record_sizes
                )
            except BrokerError as error:
                send.stored.set_exception(error)
            else:
                send.stored.set_result(stored)

    def _store_together(self, topic: str, sends: list[Send]) -> bool:
        """True if all messages are stored; if False, or if it raises BrokerError, none is."""
        queue_ids = self._sends.queue_ids_of(topic, [send.queue_id for send in sends])
        for send, queue_id in zip(sends, queue_ids, strict=True):
            # Chosen once: if the messages are stored alone later, each keeps its queue.
            send.queue_id = queue_id
        sends = sorted(sends, key=attrgetter("queue_id"))
        records = b"".join([send.record for send in sends])
        if any(mark in records for mark in ALONE):
            return False
        sizes = b"".join([send.record_sizes for send in sends])
        block = self._sends.checked(QueueKey(topic, ANY_QUEUE), records, sizes)
        block.header["queue_id"] = [send.queue_id for send in sends]
        result = self._sends.store_at_once(QueueKey(topic, OWN_QUEUES), block)
        if result is None:
            return False
        _set_results(sends, topic, block, result)
        return True


def _count_of_block(sends: list[Send], *, has_hooks: bool) -> int:
    """Returns the number of messages, from the first on, that fit in a small block; at least 1.

    The messages of cancelled senders have no weight: they are not stored.
    """
    weight = left = 0
    for count, send in enumerate(sends):
        if send.stored.done():
            continue
        # The search in a record costs as much as its checks, so it ends with this block's records.
        weight += _weight(send.record, has_hooks)
        left += 1
        if weight > SMALL_BYTES_MAX or left > BATCH_SENDS_MAX:
            return max(count, 1)
    return len(sends)


def _weight(record: bytes, is_alone: bool) -> int:
    if len(record) >= ALONE_BYTES:
        return len(record)
    is_alone = is_alone or any(mark in record for mark in ALONE)
    return ALONE_BYTES if is_alone else len(record)


def _set_results(sends: list[Send], topic: str, block: RecordBlock, result: AppendResult) -> None:
    """Sets each sender's result: the position of its message."""
    queue_ids = block.header["queue_id"].tolist()
    queue_offsets = block.header["queue_offset"].tolist()
    physical_offsets = block.header["physical_offset"].tolist()
    end, time_ms = result.end_offset, result.store_timestamp_ms
    for send, queue_id, queue_offset, physical_offset in zip(
        sends, queue_ids, queue_offsets, physical_offsets, strict=True
    ):
        queue = QueueKey(topic, queue_id)
        one = AppendResult(queue, queue_offset, physical_offset, end, 1, time_ms)
        send.stored.set_result(Stored(queue_id, one, waits=True))
