"""Gathering: single messages that come while the loop is at work are stored as one block.

A block costs nearly the same with one message as with a hundred. So a single message waits until
the loop has looked at what else has come, and goes into the log with all others of its topic,
sorted by queue. Nobody waits longer for it: alone, a message is stored at once in the loop's next
pass. What does not go with others, such as a message that is refused or has to wait until it is
due, is stored or refused by itself, so each sender gets the answer that it would get alone.

Holds the messages of one pass, in memory; a crash before their block is written loses them, and
none was acknowledged.
Rows P01, S01, B09.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np

from rocketpy_broker.errors import BrokerError, StoreClosedError
from rocketpy_broker.services.sending.appending import NO_WAIT, AppendService, Stored
from rocketpy_broker.store.values import AppendResult, QueueKey
from rocketpy_proto.call_limits import BLOCK_QUEUES_MAX, OWN_QUEUES
from rocketpy_proto.record import RecordBlock

# Each may be of another queue.
GATHERED_MAX = BLOCK_QUEUES_MAX


@dataclass(slots=True, eq=False)
class Send:
    """One message, and who waits for it."""

    queue_id: int
    record: bytes
    record_sizes: bytes
    stored: asyncio.Future[Stored]


class Gathering:
    """Stores single messages of clients."""

    def __init__(self, appends: AppendService) -> None:
        self._appends = appends
        # The topic whose turn it is comes first.
        self._by_topic: dict[str, list[Send]] = {}

    @staticmethod
    def is_for(queue_id: int, records: bytes, record_sizes: bytes) -> bool:
        """Whether a block is a single message that may be gathered."""
        is_single = len(record_sizes) == 4 and int.from_bytes(record_sizes, "big") == len(records)
        return is_single and queue_id != OWN_QUEUES

    async def append(
        self, topic: str, queue_id: int, records: bytes, record_sizes: bytes
    ) -> Stored:
        """As `AppendService.append`. A message whose sender is cancelled may be stored or not."""
        loop = asyncio.get_running_loop()
        if not self._by_topic:
            loop.call_soon(self._store_next)
        send = Send(queue_id, records, record_sizes, loop.create_future())
        self._by_topic.setdefault(topic, []).append(send)
        return await send.stored

    def _store_next(self) -> None:
        """A block of one topic; others have their turns before the next."""
        if self._appends.is_writing:
            self._appends.when_written(self._store_next)
            return
        topic = next(iter(self._by_topic))
        sends = self._by_topic.pop(topic)
        if len(sends) > GATHERED_MAX:
            self._by_topic[topic] = sends[GATHERED_MAX:]
        if self._by_topic:
            asyncio.get_running_loop().call_soon(self._store_next)
        self._store(topic, [send for send in sends[:GATHERED_MAX] if not send.stored.done()])

    def _store(self, topic: str, sends: list[Send]) -> None:
        try:
            if not self._store_together(topic, sends):
                for send in sends:
                    self._store_alone(topic, send)
        finally:
            # After an error that nobody foresaw nobody waits for ever.
            for send in sends:
                if not send.stored.done():
                    send.stored.set_exception(StoreClosedError("the message cannot be stored"))

    def _store_alone(self, topic: str, send: Send) -> None:
        try:
            stored = self._appends.append(topic, send.queue_id, send.record, send.record_sizes)
        except BrokerError as error:
            send.stored.set_exception(error)
        else:
            send.stored.set_result(stored)

    def _store_together(self, topic: str, sends: list[Send]) -> bool:
        """Whether they are stored; if not, nothing is."""
        # Hooks see every message by itself.
        if len(sends) < 2 or self._appends.has_hooks:
            return False
        if any(NO_WAIT in send.record for send in sends):
            return False
        try:
            ids = [self._appends.queue_of(topic, send.queue_id).queue_id for send in sends]
            order = sorted(range(len(sends)), key=ids.__getitem__)
            sends = [sends[place] for place in order]
            records = b"".join([send.record for send in sends])
            sizes = b"".join([send.record_sizes for send in sends])
            block = self._appends.checked_records(topic, records, sizes)
            block.header["queue_id"] = np.array(ids)[order]
            result = self._appends.store_at_once(QueueKey(topic, OWN_QUEUES), block)
        except BrokerError:
            return False
        if result is None:
            return False
        _tell(sends, topic, block, result)
        return True


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
