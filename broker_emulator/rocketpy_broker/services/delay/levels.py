"""Delivery of one delay level, in the order of its queue.

All messages of a level wait equally long, so the first one in the queue is due first. The task
sleeps until then, and on an empty queue until a message arrives. An append that fails is retried;
later messages wait for it. On disk there is only the progress. After the clock was set back,
messages wait for at most their level's delay; RocketMQ delivers them at once.
Source: docs/design/storage.md section 13.3.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.listeners import Listeners
from rocketpy_broker.services.delay.delivery_loop import DeliveryLoop
from rocketpy_broker.services.delay.progress import DeliveryProgress
from rocketpy_broker.services.delay.release import DelayRelease
from rocketpy_broker.services.long_polling.waiters import LongPollWaiters
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.readers.lookup import UnitRange
from rocketpy_broker.store.values import GetMessageStatus, QueueKey, ReadLimits
from rocketpy_proto.model import SCHEDULE_TOPIC
from rocketpy_proto.record import RecordBlock

# The most that is released in one scheduler slot.
SLOT_BYTES = 256 << 10
SLOT_UNITS = 1_000


class LevelDelivery:
    """A task that delivers one level until stopped."""

    def __init__(
        self,
        level: int,
        delay_ms: int,
        store: MessageStore,
        release: DelayRelease,
        progress: DeliveryProgress,
        held: LongPollWaiters,
        clock: Clock,
    ) -> None:
        self._level = level
        self.delay_ms = delay_ms
        self._queue = QueueKey(SCHEDULE_TOPIC, level - 1)
        self._loop = DeliveryLoop(f"messages of delay level {level}", self._queue, held, clock)
        self._store = store
        self._release = release
        self._progress = progress
        self._clock = clock
        # Called with the level's queue and the counts of messages and bytes after each delivery.
        self.delivered = Listeners[[QueueKey, int, int]]()
        # Physical offsets of messages at the head of the level that have been released.
        self._released: set[int] = set()
        # Queue offsets up to which messages were seen, each with its monotonic time.
        self._seen: deque[tuple[int, float]] = deque()

    def due_ms(self, offset: int) -> int | None:
        """Returns the due time of the message at an offset of the level's queue, or None."""
        units = self._store.queue_lookup.unit_range(self._queue, offset, offset + 1)
        return None if units is None else int(units.tags_codes[0])

    async def run(self) -> None:
        """Delivers messages when they are due, until the broker stops."""
        await self._loop.run(self._step)

    async def _step(self) -> float | None:
        """Releases due messages; returns the time to wait, None until a message arrives."""
        offset = self._progress.next_offset(self._level)
        units = self._store.queue_lookup.unit_range(self._queue, offset, offset + SLOT_UNITS)
        if units is None:
            self._progress.mark_undelivered(self._level, offset)
            return None
        now_ms = self._clock.now_ms()
        delivered = self._progress.is_delivered(units.physical_offsets)
        is_early = self._is_early(units, now_ms) & ~delivered
        waiting = np.flatnonzero(is_early & (units.sizes > 0))
        end = units.begin + int(waiting[0]) if len(waiting) else units.end
        if end == units.begin:
            # While a later message is delivered already, only the log shows it.
            if not delivered.any():
                self._progress.mark_undelivered(self._level, units.begin)
            return float(units.tags_codes[0] - now_ms)
        result = self._store.get_message(
            self._queue, units.begin, end, ReadLimits.of_bytes(SLOT_BYTES)
        )
        if result.status is GetMessageStatus.FOUND:
            self._progress.begin(self._level)
            await self._release.release(
                RecordBlock.parse(result.data, result.sizes), self._released
            )
            self.delivered(self._queue, len(result.sizes), int(result.sizes.sum(dtype="int64")))
        self._released.clear()
        self._progress.move(self._level, max(result.next_offset, units.begin + 1))
        return 0

    def _is_early(self, units: UnitRange, now_ms: int) -> NDArray[np.bool_]:
        """Returns True for each message that is not due yet.

        Some messages may have been stored by a clock ahead of ours. They are due when they have
        waited for their delay since this task saw them. They need not wait until our clock reaches
        their due time.
        """
        is_early: NDArray[np.bool_] = units.tags_codes > now_ms
        is_far = units.tags_codes > now_ms + self.delay_ms
        waited_end = self._waited_end(units)
        if is_far[0]:
            stored_ms = self._store.messages.store_timestamp_ms(int(units.physical_offsets[0]))
            if stored_ms is not None and stored_ms > now_ms:
                offsets = np.arange(units.begin, units.end)
                is_early &= ~(is_far & (offsets < waited_end))
        return is_early

    def _waited_end(self, units: UnitRange) -> int:
        """Returns a queue offset below which messages were seen at least `delay_ms` ago."""
        now_ms = self._clock.monotonic_ms()
        if not self._seen or self._seen[-1][0] < units.end:
            self._seen.append((units.end, now_ms))
        while len(self._seen) > 1 and self._seen[1][1] + self.delay_ms <= now_ms:
            self._seen.popleft()
        end, seen_ms = self._seen[0]
        return end if seen_ms + self.delay_ms <= now_ms else units.begin
