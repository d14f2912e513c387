"""Release of waiting messages to their real topics and queues.

A released record names the record that waited (`store.batch_marks`). So a start after a crash finds
the delivered messages in the log. The properties stay, with the level or time in them, as RocketMQ
leaves them.
Source: docs/design/storage.md sections 13.4 and 13.6.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketpy_broker.errors import RecordIllegalError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.listeners import Listeners
from rocketpy_broker.runtime.log_throttle import LogThrottle
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.delay.progress import DeliveryProgress
from rocketpy_broker.services.flush.group_commit import GroupCommit
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.append.batch_marks import origin_fields
from rocketpy_broker.store.append.blocks import parts_within, tags_and_keys
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.dispatch import KEEP_NUMBERS, AppendHints
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.counts import counted
from rocketpy_proto.record import (
    RecordBlock,
    properties_strings,
    property_column,
    rewritten,
)
from rocketpy_proto.record.properties import REAL_QUEUE_ID, REAL_TOPIC
from rocketpy_proto.record.sys_flag import TRANSACTION_MASK

logger = logging.getLogger(__name__)


class DelayRelease:
    """The service that appends waiting messages to their real queues."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        group_commit: GroupCommit,
        progress: DeliveryProgress,
        clock: Clock,
    ) -> None:
        self._store = store
        self._topics = topics
        self._group_commit = group_commit
        self._progress = progress
        # Each scheduler slot may drop messages: they wait in many queues.
        self._log_throttle = LogThrottle(clock)
        self._dropped_count = 0
        # Called with a topic and its waiting messages that were appended now.
        self.released = Listeners[[str, RecordBlock]]()

    async def release(
        self,
        block: RecordBlock,
        released: set[int],
        strings_of: Callable[[RecordBlock], pa.BinaryArray] = properties_strings,
    ) -> None:
        """Appends the undelivered messages of the block; other work runs in between.

        `released` are the physical offsets of messages that were released already. A repeated call
        passes them again, perhaps with more. `strings_of` makes the properties. Raises
        StoreClosedError, StoreBusyError.
        """
        origins = block.header["physical_offset"].astype(np.int64)
        wanted = ~self._progress.is_delivered(origins)
        if released:
            wanted &= ~np.isin(origins, [*released])
        try:
            for queue, part in by_real_queue(block.filter(wanted)):
                # Reading the block took time, too.
                await take_slot()
                await self._group_commit.admission.write_over()
                self._append(queue, part, strings_of)
                released.update(part.header["physical_offset"].tolist())
                await take_slot()
        finally:
            self._group_commit.flush_soon()

    def _append(
        self,
        queue: QueueKey,
        waiting: RecordBlock,
        strings_of: Callable[[RecordBlock], pa.BinaryArray],
    ) -> None:
        if not self._topics.exists(queue.topic):
            self._drop(queue.topic, len(waiting))
            return
        # A deleted topic removed its messages, even if a recreated topic has its name.
        deleted = waiting.header["physical_offset"] < self._store.deleted_below(queue.topic)
        if deleted.all():
            return
        if deleted.any():
            waiting = waiting.filter(~deleted)
        released = copy_with_origins(waiting, queue.topic, strings_of(waiting))
        first = 0
        for block in parts_within(released, self._store.config):
            part = waiting.filter(slice(first, first + len(block)))
            first += len(block)
            found = tags_and_keys(queue, block, self._store.config)
            try:
                self._store.append(queue, block, AppendHints(found, KEEP_NUMBERS))
            except RecordIllegalError as error:
                lost = counted(len(block), "waiting message")
                logger.critical("lost %s of %s: %s", lost, queue, error)
            else:
                self.released(queue.topic, part)

    def _drop(self, topic: str, count: int) -> None:
        self._dropped_count += count
        if self._log_throttle.may_log():
            logger.warning(
                "dropped %s of deleted topics since the last such line, for example of topic %r",
                counted(self._dropped_count, "waiting message"),
                topic,
            )
            self._dropped_count = 0


def copy_with_origins(waiting: RecordBlock, topic: str, strings: pa.BinaryArray) -> RecordBlock:
    """Returns copies of waiting records with these properties; each one names its original."""
    origins = waiting.header["physical_offset"].astype(np.int64)
    fields = {
        "prepared_transaction_offset": origin_fields(origins),
        # Otherwise readers take prepared_transaction_offset for that of a committed transaction.
        "sys_flag": waiting.header["sys_flag"] & ~TRANSACTION_MASK,
    }
    return rewritten(waiting, topic, strings, fields)


def by_real_queue(block: RecordBlock) -> Iterator[tuple[QueueKey, RecordBlock]]:
    """Yields the records of each real topic and queue, in their order.

    Records without a real topic and queue are dropped.
    """
    topics, ids = property_column(block, REAL_TOPIC), property_column(block, REAL_QUEUE_ID)
    good = pc.and_(topics.is_valid(), pc.match_substring_regex(ids, "^[0-9]{1,9}$"))
    good = good.fill_null(False).to_numpy(zero_copy_only=False)
    if not good.all():
        logger.critical(
            "dropped %s without a real topic and queue",
            counted(int(np.count_nonzero(~good)), "waiting message"),
        )
        block = block.filter(good)
        topics, ids = topics.filter(pa.array(good)), ids.filter(pa.array(good))
    names = pc.binary_join_element_wise(topics, ids, "\x01").dictionary_encode()
    codes = names.indices.to_numpy()
    for code, name in enumerate(names.dictionary.to_pylist()):
        topic, queue_id = name.split("\x01")
        yield QueueKey(topic, int(queue_id)), block.filter(codes == code)
