"""Delivery of messages with a delivery time: once, when due, never before.

The timer queue is read to its end before any release. So no message is released that was cancelled
before it was due. Due messages are released in order of time, some in each scheduler slot. A
release that could not be appended whole is retried; later messages wait for it.

Progress is marked whenever all messages up to a time are released. A message may become due before
that time, for example after the clock was set back. It delays the next mark; after a crash
meanwhile the next start reads more of the log. On disk there is only the progress.
Source: docs/design/storage.md section 13.5.
"""

from __future__ import annotations

import logging

import numpy as np

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.delay.delivery_loop import DeliveryLoop
from rocketpy_broker.services.delay.levels import SLOT_BYTES, SLOT_UNITS
from rocketpy_broker.services.delay.pending_messages import (
    SECOND_MS,
    Due,
    PendingMessages,
)
from rocketpy_broker.services.delay.progress import DeliveryProgress
from rocketpy_broker.services.delay.release import DelayRelease
from rocketpy_broker.services.delay.timer.position import TimerPosition
from rocketpy_broker.services.delay.timer.records import (
    delivered_strings,
    read_times,
    tombstoned_rows,
)
from rocketpy_broker.services.long_polling.waiters import LongPollWaiters
from rocketpy_broker.store.files.timer_checkpoint import TIMER_QUEUE
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import GetMessageStatus, ReadLimits
from rocketpy_proto.counts import counted
from rocketpy_proto.record import RecordBlock

logger = logging.getLogger(__name__)
# A read ends earlier at the end of a queue file.
READ_UNITS = SLOT_UNITS
READ_BYTES = 1 << 20
# Slots of pending messages read in one scheduler slot, at some 40 microseconds each.
SLOT_ENTRIES = 64


class TimerDelivery:
    """A task that delivers timer messages until stopped.

    `pending` holds the messages that were read and are not released.
    """

    def __init__(
        self,
        store: MessageStore,
        release: DelayRelease,
        progress: DeliveryProgress,
        held: LongPollWaiters,
        clock: Clock,
        delay_ms_max: int,
    ) -> None:
        self._store = store
        self._deliveries = release
        self._progress = progress
        self._clock = clock
        self._delay_ms_max = delay_ms_max
        self._loop = DeliveryLoop("timer messages", TIMER_QUEUE, held, clock, is_always_woken=True)
        self.pending = PendingMessages(delay_ms_max)
        self._start = TimerPosition(0, 0, 0)
        self._marked: TimerPosition | None = None
        # Every message due up to this time is released, except some late arrivals.
        self.released_ms = 0
        self.read_offset = 0
        self._is_stepping = False
        self._delivered_until_ms = 0
        # The end of the queue at a time in ms, with appends that are not visible yet.
        self._appended = 0, 0

    def load(self, position: TimerPosition) -> None:
        """Sets the position to continue from; `run` reads the messages."""
        self._start = position
        self.released_ms = position.delivered_ms
        self.read_offset = position.pending_offset
        self.pending = PendingMessages(self._delay_ms_max, position.pending_offset)
        self._keep_log()

    @property
    def waiting_count(self) -> int:
        """Number of messages that wait, including unread ones."""
        return len(self.pending) + self._store.next_offset(TIMER_QUEUE) - self.read_offset

    @property
    def position(self) -> TimerPosition | None:
        """Position that covers all deliveries so far; None while late messages are pending."""
        first_ms = self.pending.first_ms(self._clock.now_ms())
        if first_ms is not None and first_ms <= self.released_ms:
            return None
        low_offset = self.pending.low_offset(self.read_offset)
        return TimerPosition(self.released_ms, low_offset, self.read_offset)

    def delivered_until_ms(self, now_ms: int) -> int:
        """Returns a time: each message due by then is appended to its real queue."""
        first_ms = self.pending.first_ms(now_ms)
        is_due = first_ms is not None and first_ms <= now_ms
        is_unread = self.read_offset < self._store.next_offset(TIMER_QUEUE)
        return self._delivered_until_ms if self._is_stepping or is_unread or is_due else now_ms

    def _note_delivered(self, now_ms: int) -> None:
        """Notes that no message that was read is due. The time follows a clock that is set back.

        A message is due after the time at which it was appended, even if it is visible later.
        """
        end, at_ms = self._appended
        if self.read_offset >= end:
            self._delivered_until_ms = at_ms
            self._appended = self._store.next_offset(TIMER_QUEUE), now_ms

    async def run(self) -> None:
        """Delivers messages when they are due, until the broker stops."""
        await self._loop.run(self._guarded_step)

    async def _guarded_step(self) -> int | None:
        self._is_stepping = True
        try:
            return await self._step()
        finally:
            self._is_stepping = False

    async def _step(self) -> int | None:
        """Reads new records, releases some due messages, and returns the time to wait.

        Returns None if no message waits.
        """
        while self.read():
            await take_slot()
        now_ms = self._clock.now_ms()
        due = await self._take_due(now_ms)
        if len(due.offsets) == 0:
            self._mark()
            self._note_delivered(now_ms)
            first_ms = self.pending.first_ms(now_ms)
            return None if first_ms is None else max(first_ms - now_ms, 1)
        await self._release(due, now_ms)
        self._mark()
        return 0

    async def _take_due(self, now_ms: int) -> Due:
        """Returns up to SLOT_UNITS due messages, of several slots if none has tombstones."""
        taken = self.pending.due(now_ms, SLOT_UNITS)
        if len(taken.offsets) == 0:
            return taken
        self.pending.done(taken)
        parts, room = [taken], SLOT_UNITS - len(taken.offsets)
        try:
            while room > 0 and not taken.tombstones:
                if len(parts) % SLOT_ENTRIES == 0:
                    await take_slot()
                more = self.pending.due(now_ms, room)
                if len(more.offsets) == 0 or more.tombstones:
                    break
                self.pending.done(more)
                parts.append(more)
                room -= len(more.offsets)
        except BaseException:
            for part in parts:
                self.pending.add(part.due_ms, part.offsets)
            raise
        offsets = np.concatenate([part.offsets for part in parts])
        return Due(offsets, np.concatenate([part.due_ms for part in parts]), taken.tombstones)

    async def _release(self, due: Due, now_ms: int) -> None:
        found = self._store.random_reader.read(TIMER_QUEUE, due.offsets, SLOT_BYTES)
        if found.count < len(due.offsets):
            self.pending.add(due.due_ms[found.count :], due.offsets[found.count :])
        lost_count = found.count - len(found.block)
        if lost_count:
            lost = counted(lost_count, "timer message")
            logger.critical("lost %s: the log has no record of them", lost)
        block = found.block.filter(~tombstoned_rows(found.block, due))
        self._progress.begin_timer()
        released: set[int] = set()
        try:
            await self._deliveries.release(
                block, released, lambda part: delivered_strings(part, now_ms)
            )
        except BaseException:
            # Also when the broker stops: exactly the unreleased messages are pending.
            left = ~np.isin(block.header["physical_offset"], [*released])
            offsets = block.header["queue_offset"].astype(np.int64)[left]
            rows = np.isin(due.offsets, offsets)
            self.pending.add(due.due_ms[rows], due.offsets[rows])
            raise
        finally:
            self.released_ms = max(self.released_ms, int(due.due_ms[found.count - 1]))

    def _mark(self) -> None:
        position = self.position
        if position is not None and position != self._marked:
            self._marked = position
            self._progress.move_timer(position)
            self._keep_log()
        elif position is None:
            self._keep_log()

    def _keep_log(self) -> None:
        """Protects the pending messages' log from cleaning."""
        self._progress.keep_timer(self.pending.low_offset(self.read_offset))

    # --- Reading ---

    def read(self) -> bool:
        """Reads some units of the queue; returns False at its end. Takes some milliseconds."""
        begin = self.read_offset
        units = self._store.queue_lookup.unit_range(TIMER_QUEUE, begin, begin + READ_UNITS)
        if units is None:
            return False
        result = self._store.get_message(
            TIMER_QUEUE, units.begin, units.end, ReadLimits.of_bytes(READ_BYTES)
        )
        if result.status is GetMessageStatus.FOUND:
            self._take(RecordBlock.parse(result.data, result.sizes))
        self.read_offset = max(result.next_offset, units.begin + 1)
        return True

    def _take(self, block: RecordBlock) -> None:
        """Adds the pending messages of these records, and their tombstones."""
        times = read_times(block)
        offsets = block.header["queue_offset"].astype(np.int64)
        delivered = self._progress.is_delivered(block.header["physical_offset"].astype(np.int64))
        is_new = offsets >= self._start.read_offset
        if delivered.any():
            # Also if they are not due yet, since the clock was set back.
            self.released_ms = max(self.released_ms, int(times.due_ms[delivered].max()))
        wanted = (
            times.is_message & ~delivered & (is_new | (times.due_ms > self._start.delivered_ms))
        )
        if wanted.any():
            self.pending.add(times.due_ms[wanted], offsets[wanted])
        for mark in times.marks:
            end_ms = (mark.out_ms // SECOND_MS + 1) * SECOND_MS
            if is_new[mark.row] or end_ms > self._start.delivered_ms:
                offset = int(offsets[mark.row])
                add_tombstone = self.pending.cancel if mark.is_cancel else self.pending.supersede
                add_tombstone(mark.out_ms, mark.key, offset)
