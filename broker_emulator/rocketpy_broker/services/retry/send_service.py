"""Sends of clients, with the special rules of `%RETRY%group`.

A client sends a message to the retry topic itself after a failed send-back. The record has the
number of its deliveries. Its property MAX_RECONSUME_TIMES, which is not stored, replaces the
group's maximum; in RocketMQ both are fields of the request. A block above the maximum is stored
with the dead letters. So is every block while a client holds a queue lock of the group. The first
use creates the topic. Source: docs/design/broker_behaviour.md section 1.4.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketpy_broker.errors import RecordIllegalError
from rocketpy_broker.hooks import SendContext
from rocketpy_broker.services.groups.locks import QueueLocks
from rocketpy_broker.services.retry.record_copy import MAX_RECONSUME_TIMES, diverted
from rocketpy_broker.services.retry.targets import RetryTargets
from rocketpy_broker.services.send.append_service import AppendService, Stored
from rocketpy_broker.services.send.batcher import SendBatcher
from rocketpy_broker.services.topics.manager import is_retry
from rocketpy_broker.services.topics.system import RETRY_PREFIX
from rocketpy_proto.record import (
    RecordBlock,
    RecordError,
    properties_strings,
    property_column,
    rewritten,
    without_properties,
)

# Messages of a block for a retry topic; their check takes about a millisecond.
MESSAGES_MAX = 1_000


class SendService:
    """Service for the send requests of clients, to topics of any kind."""

    def __init__(self, appends: AppendService, targets: RetryTargets, locks: QueueLocks) -> None:
        self._appends = appends
        self._gathering = SendBatcher(appends)
        self._targets = targets
        self._locks = locks

    async def append(
        self, topic: str, queue_id: int, records: bytes, record_sizes: bytes
    ) -> Stored:
        """Stores a block as AppendService does, after it has waited for room.

        Raises its errors, and for a retry topic SubscriptionGroupNotExistError,
        ParameterIllegalError, ClientsFullError, SendBackError.
        """
        appends = self._appends
        if is_retry(topic):
            return await self._append_retry(topic, queue_id, records, record_sizes)
        if appends.is_large(records):
            return await appends.append_large(topic, queue_id, records, record_sizes)
        if appends.is_busy:
            await appends.room()
        if not appends.is_busy and self._gathering.is_for(queue_id, records, record_sizes):
            stored = await self._gathering.append(topic, queue_id, records, record_sizes)
            if stored is not None:
                return stored
            await appends.room()
        await appends.large_writes.over()
        return appends.append(topic, queue_id, records, record_sizes)

    async def _append_retry(
        self, topic: str, queue_id: int, records: bytes, record_sizes: bytes
    ) -> Stored:
        await self._appends.room()
        self._appends.gate.check(topic)
        _check_count(topic, len(record_sizes) // 4)
        name = topic.removeprefix(RETRY_PREFIX)
        group = await self._targets.group(name)
        await self._targets.sent_to(group)
        await self._appends.large_writes.over()
        queue = self._appends.queue_of(topic, queue_id)
        block = self._appends.checked(queue, records, record_sizes)
        is_dead = _is_beyond(block, group.retry_max_times)
        if self._locks.is_locked(name):
            is_dead[:] = True
        if is_dead.any() and not is_dead.all():
            raise RecordIllegalError(
                f"a block for {topic!r} holds messages below and above their maximum of "
                "redeliveries; send them apart"
            )
        try:
            block = _without_maximum(block)
            if is_dead.any():
                queue = await self._targets.dead_letters(group)
                await self._appends.large_writes.over()
                self._targets.check(queue.topic)
                block = diverted(block, queue.topic)
        except RecordError as error:
            raise RecordIllegalError(str(error)) from error
        context = SendContext(topic, queue_id, len(block), len(records))
        return self._appends.hooked(context, lambda: self._appends.store(queue, block))

    async def create_topic(self, topic: str, default_topic: str, queue_nums_max: int) -> None:
        """Creates an unknown topic from a template, as SendPreconditions does."""
        await self._appends.gate.create_topic(topic, default_topic, queue_nums_max)

    def acknowledges(self, stored: Stored) -> bool:
        """True if the block may be acknowledged now; otherwise call `acknowledged`."""
        return self._appends.acknowledges(stored)

    async def acknowledged(self, stored: Stored) -> None:
        """Waits until a block may be acknowledged. Raises StoreClosedError, FlushTimeoutError."""
        await self._appends.acknowledged(stored)


def _check_count(topic: str, count: int) -> None:
    """Raises RecordIllegalError for more than `MESSAGES_MAX` messages."""
    if count > MESSAGES_MAX:
        raise RecordIllegalError(
            f"a block for {topic!r} holds {count} messages; send {MESSAGES_MAX} at most"
        )


def _is_beyond(block: RecordBlock, retry_max_times: int) -> NDArray[np.bool_]:
    """Returns a mask of the records above their maximum. Raises RecordIllegalError."""
    texts = property_column(block, MAX_RECONSUME_TIMES)
    is_number = pc.match_substring_regex(texts, "^[0-9]{1,9}$")
    if pc.all(is_number).as_py() is False:
        wrong = texts.filter(pc.invert(is_number))[0].as_py()
        raise RecordIllegalError(
            f"property {MAX_RECONSUME_TIMES} is {wrong!r}; accepted is a number of 1 to 9 digits"
        )
    given = texts.cast(pa.int64()).fill_null(retry_max_times)
    beyond: NDArray[np.bool_] = block.header["reconsume_times"] > given.to_numpy()
    return beyond


def _without_maximum(block: RecordBlock) -> RecordBlock:
    strings = properties_strings(block)
    kept = without_properties(strings, [MAX_RECONSUME_TIMES])
    if kept.equals(strings):
        return block
    topic = block.single_topic()
    assert topic is not None
    return rewritten(block, topic, kept)
