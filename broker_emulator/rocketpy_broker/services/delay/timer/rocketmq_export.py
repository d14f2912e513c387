"""Handover of timer messages to RocketMQ at a clean stop.

RocketMQ keeps one offset: all units of the timer queue after it are pending. So pending messages
before delivered ones are appended again, rolled as RocketMQ rolls its own. The offset then names
the first unit that only pending ones follow. A copy names its original, as a delivered message
does. So after a crash in between, nothing is delivered twice.

Only the first ROLL_COUNT_MAX messages are rolled, until they have ROLL_BYTES_MAX. If some remain,
the log states how many RocketMQ will deliver again; this broker never does. RocketMQ's wheel and
its log are removed. Their messages are delivered, or are read from the queue again.
Source: docs/design/storage.md sections 13.5 and 13.7.
"""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketpy_broker.errors import StoreError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.services.config_files.saver import save_now
from rocketpy_broker.services.delay.levels import SLOT_BYTES, SLOT_UNITS
from rocketpy_broker.services.delay.progress import DeliveryProgress
from rocketpy_broker.services.delay.release import copy_with_origins
from rocketpy_broker.services.delay.timer.position import TimerPosition
from rocketpy_broker.services.delay.timer.records import TIMER_ROLL_TIMES, fitting, tombstoned_rows
from rocketpy_broker.services.delay.timer.service import TimerDelivery
from rocketpy_broker.services.flush.group_commit import flush_now
from rocketpy_broker.store.append.blocks import parts_within, tags_and_keys
from rocketpy_broker.store.files.timer_checkpoint import (
    TIMER_QUEUE,
    TimerCheckpointFile,
    export_checkpoint,
)
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.dispatch import KEEP_NUMBERS, AppendHints
from rocketpy_broker.store.values import PutCause
from rocketpy_proto.counts import counted
from rocketpy_proto.record import (
    RecordBlock,
    properties_strings,
    property_column,
    with_property,
)
from rocketpy_proto.record.block.masks import null_unless
from rocketpy_proto.record.properties import REAL_TOPIC

logger = logging.getLogger(__name__)
# Limits of what a stop rolls: about a second's work.
ROLL_COUNT_MAX = 100_000
ROLL_BYTES_MAX = 256 << 20


class RocketmqExport:
    """The service that hands over the timer queue after the broker has stopped."""

    def __init__(
        self,
        store: MessageStore,
        timer: TimerDelivery,
        progress: DeliveryProgress,
        checkpoint: TimerCheckpointFile,
        clock: Clock,
        *,
        count_max: int = ROLL_COUNT_MAX,
        bytes_max: int = ROLL_BYTES_MAX,
    ) -> None:
        """Takes in the limits of what is rolled."""
        self._store = store
        self._timer = timer
        self._progress = progress
        self._checkpoint = checkpoint
        self._clock = clock
        self._count_max = count_max
        self._bytes_max = bytes_max

    def run(self) -> None:
        """Rolls messages as far as needed, and writes timercheck. Raises OSError."""
        flush_now(self._store)
        while self._timer.read():
            pass
        self._progress.begin_timer()
        offset = self._roll_front(self._pending())
        flush_now(self._store)
        found = self._checkpoint.load()
        left = export_checkpoint(offset, self._clock.now_ms())
        # A crash between the two saves leaves the old or the new timercheck; both are known.
        self._progress.accept(found, left)
        save_now(self._progress)
        self._checkpoint.save(left)
        self._checkpoint.remove_wheel()

    def _pending(self) -> NDArray[np.int64]:
        """Returns the queue offsets of the pending messages that are not tombstoned."""
        tombstoned = [np.empty(0, np.int64)]
        for due in self._timer.pending.marked_slots():
            begin = 0
            while begin < len(due.offsets):
                wanted = due.offsets[begin : begin + SLOT_UNITS]
                found = self._store.random_reader.read(TIMER_QUEUE, wanted, SLOT_BYTES)
                offsets = found.block.header["queue_offset"].astype(np.int64)
                tombstoned.append(offsets[tombstoned_rows(found.block, due)])
                begin += found.count
        pending: NDArray[np.int64] = np.setdiff1d(
            self._timer.pending.offsets(), np.concatenate(tombstoned), assume_unique=True
        )
        return pending

    def _roll_front(self, pending: NDArray[np.int64]) -> int:
        """Rolls pending messages that other records follow; returns RocketMQ's offset."""
        queue_end = self._store.range_of(TIMER_QUEUE).max_offset
        is_apart = pending != np.arange(queue_end - len(pending), queue_end)
        front_count = int(np.flatnonzero(is_apart)[-1]) + 1 if is_apart.any() else 0
        rolled_count = self._roll(pending[:front_count])
        if rolled_count == front_count:
            offset = queue_end - (len(pending) - front_count)
            position = TimerPosition(self._timer.released_ms, offset, offset)
            self._progress.move_timer(position)
            return offset
        offset = int(pending[rolled_count])
        logger.warning(
            "%s could not be appended again. From offset %d of the timer queue on, RocketMQ "
            "would deliver %s again; this broker will not",
            counted(front_count - rolled_count, "pending timer message"),
            offset,
            counted(queue_end - offset - (len(pending) - rolled_count), "delivered message"),
        )
        return offset

    def _roll(self, offsets: NDArray[np.int64]) -> int:
        """Appends these messages again, within the limits; returns how many were handled."""
        count, left_bytes = 0, self._bytes_max
        offsets = offsets[: self._count_max]
        while count < len(offsets) and left_bytes > 0:
            wanted, bytes_max = offsets[count : count + SLOT_UNITS], min(SLOT_BYTES, left_bytes)
            found = self._store.random_reader.read(TIMER_QUEUE, wanted, bytes_max)
            block = found.block.filter(~self._is_deleted(found.block))
            try:
                if len(block):
                    self._append(block)
            except StoreError as error:
                logger.warning("pending timer messages cannot be appended again: %s", error)
                break
            count += found.count
            left_bytes -= len(found.block.data)
        return count

    def _is_deleted(self, block: RecordBlock) -> NDArray[np.bool_]:
        """Returns True for each message of a deleted topic.

        Its copy would belong to a recreated topic.
        """
        topics = property_column(block, REAL_TOPIC).dictionary_encode()
        marks = [self._store.deleted_below(topic) for topic in topics.dictionary.to_pylist()]
        codes = topics.indices.fill_null(len(marks)).to_numpy(zero_copy_only=False)
        deleted: NDArray[np.bool_] = (
            block.header["physical_offset"] < np.array([*marks, -1], np.int64)[codes]
        )
        return deleted

    def _append(self, waiting: RecordBlock) -> None:
        if self._store.is_busy:
            flush_now(self._store)
        rolled = copy_with_origins(waiting, TIMER_QUEUE.topic, _rolled_strings(waiting))
        for block in parts_within(rolled, self._store.config):
            found = tags_and_keys(TIMER_QUEUE, block, self._store.config)
            self._store.append(TIMER_QUEUE, block, AppendHints(found, KEEP_NUMBERS, PutCause.OWN))


def _rolled_strings(block: RecordBlock) -> pa.BinaryArray:
    """Returns the properties with one more roll, if they fit."""
    texts = property_column(block, TIMER_ROLL_TIMES)
    is_number = pc.match_substring_regex(texts, "^[0-9]{1,9}$")
    times = null_unless(is_number, texts).cast(pa.int64())
    strings = properties_strings(block)
    counted = pc.add(times.fill_null(0), 1).cast(pa.string())
    return fitting(with_property(strings, TIMER_ROLL_TIMES, counted), strings)
