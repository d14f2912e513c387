"""Gathering: single messages that come while the loop is at work are stored as one block.

A block costs nearly the same with one message as with a hundred. So a single message waits until
the loop has looked at what else has come, and goes into the log with all others of its topic,
sorted by queue. Nobody waits longer for it: alone, a message is stored at once in the loop's next
pass. What does not go with others, such as a message that is refused or has to wait until it is
due, is stored or refused by itself, so each sender gets the answer that it would get alone.

Holds the messages of one pass, in memory; a crash before their block is written loses them, and
none was acknowledged.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from operator import attrgetter

from rocketpy_broker.errors import (
    BrokerError,
    QueueIdIllegalError,
    RecordIllegalError,
    StoreClosedError,
)
from rocketpy_broker.services.send.append_service import NO_WAIT, AppendService, Stored
from rocketpy_broker.services.send.in_flight_limiter import SMALL_BYTES_MAX
from rocketpy_broker.store.values import AppendResult, QueueKey
from rocketpy_proto.call_limits import BLOCK_QUEUES_MAX, OWN_QUEUES
from rocketpy_proto.record import RecordBlock

# Each may be of another queue.
GATHERED_MAX = BLOCK_QUEUES_MAX
# What says that a message goes with no others, or most likely does; the rest is found by checks.
ALONE = (NO_WAIT, b"DELAY\x01", b"TIMER_DEL", b"TRAN_MSG\x01")


@dataclass(slots=True, eq=False)
class Send:
    """One message, and who waits for it."""

    queue_id: int
    record: bytes
    record_sizes: bytes
    stored: asyncio.Future[Stored | None]


class SendBatcher:
    """Stores single messages of clients."""

    def __init__(self, appends: AppendService) -> None:
        self._appends = appends
        # The topic whose turn it is comes first.
        self._by_topic: dict[str, list[Send]] = {}

    @staticmethod
    def is_for(queue_id: int, records: bytes, record_sizes: bytes) -> bool:
        """True if a block is a single message that may be gathered."""
        is_single = len(record_sizes) == 4 and int.from_bytes(record_sizes, "big") == len(records)
        return is_single and queue_id != OWN_QUEUES

    async def append(
        self, topic: str, queue_id: int, records: bytes, record_sizes: bytes
    ) -> Stored | None:
        """As `AppendService.append`; None where others took the room: wait for it, and send alone.

        A message whose sender is cancelled may be stored or not.
        """
        loop = asyncio.get_running_loop()
        if not self._by_topic:
            loop.call_soon(self._store_next)
        send = Send(queue_id, records, record_sizes, loop.create_future())
        self._by_topic.setdefault(topic, []).append(send)
        return await send.stored

    def _store_next(self) -> None:
        """A block of one topic; others have their turns before the next."""
        writes = self._appends.large_writes
        if writes.is_writing:
            writes.when_over(self._store_next)
            return
        topic = next(iter(self._by_topic))
        sends = self._by_topic.pop(topic)
        count = _count_of_block(sends)
        if len(sends) > count:
            self._by_topic[topic] = sends[count:]
        if self._by_topic:
            asyncio.get_running_loop().call_soon(self._store_next)
        sends = [send for send in sends[:count] if not send.stored.done()]
        try:
            self._store(topic, sends)
        finally:
            # After an error that nobody foresaw nobody waits for ever.
            for send in sends:
                if not send.stored.done():
                    send.stored.set_exception(StoreClosedError("the message cannot be stored"))

    def _store(self, topic: str, sends: list[Send]) -> None:
        """Together; if that cannot be, in halves, so that one message costs the others little."""
        # Hooks see every message by itself, and a busy store takes none.
        if len(sends) < 2 or self._appends.has_hooks or self._appends.is_busy:
            self._store_each(topic, sends)
            return
        try:
            if self._store_together(topic, sends):
                return
        except (RecordIllegalError, QueueIdIllegalError):
            pass
        except BrokerError:
            # It is the same for all; each is told by itself.
            self._store_each(topic, sends)
            return
        middle = len(sends) // 2
        self._store(topic, sends[:middle])
        self._store(topic, sends[middle:])

    def _store_each(self, topic: str, sends: list[Send]) -> None:
        for send in sends:
            if self._appends.is_busy:
                send.stored.set_result(None)
                continue
            try:
                stored = self._appends.append(topic, send.queue_id, send.record, send.record_sizes)
            except BrokerError as error:
                send.stored.set_exception(error)
            else:
                send.stored.set_result(stored)

    def _store_together(self, topic: str, sends: list[Send]) -> bool:
        """True if they are stored; if not, or if it raises BrokerError, nothing is."""
        queue_ids = self._appends.queue_ids_of(topic, [send.queue_id for send in sends])
        for send, queue_id in zip(sends, queue_ids, strict=True):
            # Once: if they are stored apart after all, each keeps the queue that was its turn.
            send.queue_id = queue_id
        sends = sorted(sends, key=attrgetter("queue_id"))
        records = b"".join([send.record for send in sends])
        if any(mark in records for mark in ALONE):
            return False
        sizes = b"".join([send.record_sizes for send in sends])
        block = self._appends.checked_records(topic, records, sizes)
        block.header["queue_id"] = [send.queue_id for send in sends]
        result = self._appends.store_at_once(QueueKey(topic, OWN_QUEUES), block)
        if result is None:
            return False
        _tell(sends, topic, block, result)
        return True


def _count_of_block(sends: list[Send]) -> int:
    """How many of the first make a block, which is a small one unless it is a single message."""
    ends = list(accumulate([len(send.record) for send in sends[:GATHERED_MAX]]))
    return max(bisect_right(ends, SMALL_BYTES_MAX), 1)


def _tell(sends: list[Send], topic: str, block: RecordBlock, result: AppendResult) -> None:
    """Each sender where its message is."""
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
