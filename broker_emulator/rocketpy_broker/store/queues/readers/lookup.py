"""Look-ups in a queue's units: offsets by store time, and record sizes.

Records are read one at a time, for their times only, and each is checked first.
Source: ConsumeQueueStore#getOffsetInQueueByTime with the lower boundary, docs/design/storage.md
section 6.6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.store.queues.consume_queue import ConsumeQueue
from rocketpy_broker.store.queues.readers.messages import MessageLookup
from rocketpy_broker.store.queues.table import ConsumeQueueTable
from rocketpy_broker.store.queues.units import BLANK_SIZE, blank_count
from rocketpy_broker.store.times import StoreTimes
from rocketpy_broker.store.values import QueueKey

# Units examined in one step: a fraction of a millisecond.
RANGE_UNITS_MAX = 1 << 15
# Units that `last` examines from the queue's end; it skips damaged messages and gaps.
LAST_UNITS_MAX = 32


@dataclass(frozen=True, slots=True)
class UnitRange:
    """Units from offset `begin` on: sizes and physical offsets of records, and tags codes.

    A blank unit has size 0. The tags code of a waiting delayed message is its due time.
    """

    begin: int
    sizes: NDArray[np.int64]
    physical_offsets: NDArray[np.int64]
    tags_codes: NDArray[np.int64]

    @property
    def end(self) -> int:
        """Queue offset after the last unit."""
        return self.begin + len(self.sizes)


@dataclass(frozen=True, slots=True)
class StoredAt:
    """A readable record: its queue offset and store time in ms."""

    offset: int
    timestamp_ms: int


class QueueLookup:
    """Look-ups in the queues of one store."""

    def __init__(
        self, queues: ConsumeQueueTable, messages: MessageLookup, times: StoreTimes
    ) -> None:
        self._queues = queues
        self._messages = messages
        self._times = times

    def first_since(self, key: QueueKey, timestamp_ms: int) -> StoredAt | None:
        """Returns the first message stored at `timestamp_ms` or later; None if there is none.

        If store times have fallen, the result follows the last message stored before
        `timestamp_ms`. A message stored while the clock was ahead counts as stored no later than
        the messages after it. Reads about log2(n) records, and skips damaged ones.
        """
        queue = self._queues.get(key)
        if queue is None:
            return None
        found: StoredAt | None = None
        end = queue.max_offset
        for begin in self._rises(queue):
            first = self._first_stored(queue, begin, end)
            if first is not None and first.timestamp_ms < timestamp_ms:
                return self._search(queue, first.offset + 1, end, timestamp_ms) or found
            found = first or found
            end = begin
        return found

    def last(self, key: QueueKey) -> StoredAt | None:
        """Returns the last readable message of the last LAST_UNITS_MAX offsets, or None."""
        queue = self._queues.get(key)
        if queue is None:
            return None
        begin = max(queue.min_offset, queue.max_offset - LAST_UNITS_MAX)
        units = queue.units(begin, queue.max_offset)
        for index in range(len(units) - 1, -1, -1):
            if units["size"][index] == BLANK_SIZE:
                continue
            timestamp_ms = self._messages.store_timestamp_ms(int(units["physical_offset"][index]))
            if timestamp_ms is not None:
                return StoredAt(begin + index, timestamp_ms)
        return None

    def stored_ms(self, key: QueueKey, offset: int) -> int | None:
        """Returns the store time of the message at `offset`; None without a readable one."""
        units = self.unit_range(key, offset, offset + 1)
        if units is None or units.begin != offset:
            return None
        return self._messages.store_timestamp_ms(int(units.physical_offsets[0]))

    def first_after(self, key: QueueKey, physical_offset: int) -> int:
        """Returns the queue offset of the first message at or after `physical_offset`.

        Returns the queue's end if there is none. Reads about log2(n) units.
        """
        queue = self._queues.get(key)
        if queue is None:
            return self._queues.range_of(key).max_offset
        # Blank units belong to no message.
        return _first_real(queue, self._first_after(queue, physical_offset), queue.max_offset)

    def first_record(self, key: QueueKey, offset: int) -> int | None:
        """Returns the physical offset of the first record at or after `offset`; else None."""
        queue = self._queues.get(key)
        if queue is None:
            return None
        real = _first_real(queue, max(offset, queue.min_offset), queue.max_offset)
        units = queue.units(real, real + 1)
        return int(units["physical_offset"][0]) if len(units) else None

    def _rises(self, queue: ConsumeQueue) -> Iterator[int]:
        """Yields the start offsets of the ranges with ascending times, the last range first."""
        for physical_offset in reversed(self._times.falls):
            offset = self._first_after(queue, physical_offset)
            if offset <= queue.min_offset:
                break
            yield offset
        yield queue.min_offset

    def _first_after(self, queue: ConsumeQueue, physical_offset: int) -> int:
        """Returns the first offset with a record at or after `physical_offset`."""
        low, high = queue.min_offset, queue.max_offset
        while low < high:
            middle = (low + high) // 2
            real = _first_real(queue, middle, high)
            if real == high or queue.units(real, real + 1)["physical_offset"][0] >= physical_offset:
                high = middle
            else:
                low = real + 1
        return low

    def _search(
        self, queue: ConsumeQueue, low: int, high: int, timestamp_ms: int
    ) -> StoredAt | None:
        """Returns the first message of [low, high) stored at `timestamp_ms` or later.

        Times must ascend in this range.
        """
        found: StoredAt | None = None
        while low < high:
            middle = (low + high) // 2
            stored = self._first_stored(queue, middle, high)
            if stored is None:
                high = middle
            elif stored.timestamp_ms >= timestamp_ms:
                high, found = middle, stored
            else:
                low = stored.offset + 1
        return found

    def _first_stored(self, queue: ConsumeQueue, offset: int, offset_end: int) -> StoredAt | None:
        """Returns the first readable record of [offset, offset_end)."""
        while (offset := _first_real(queue, offset, offset_end)) < offset_end:
            unit = queue.units(offset, offset + 1)
            timestamp_ms = self._messages.store_timestamp_ms(int(unit["physical_offset"][0]))
            if timestamp_ms is not None:
                return StoredAt(offset, timestamp_ms)
            offset += 1
        return None

    def unit_range(self, key: QueueKey, offset: int, offset_end: int) -> UnitRange | None:
        """Returns up to RANGE_UNITS_MAX units of [offset, offset_end); None if none exists.

        Begins with the first existing unit.
        """
        queue = self._queues.get(key)
        if queue is None:
            return None
        begin = max(offset, queue.min_offset)
        units = queue.units(begin, min(offset_end, begin + RANGE_UNITS_MAX))
        if len(units) == 0:
            return None
        sizes = units["size"].astype(np.int64)
        sizes[(sizes == BLANK_SIZE) | (sizes < 0)] = 0
        physical_offsets = units["physical_offset"].astype(np.int64)
        return UnitRange(begin, sizes, physical_offsets, units["tags_code"].astype(np.int64))


def _first_real(queue: ConsumeQueue, offset: int, offset_end: int) -> int:
    """Returns the first offset of [offset, offset_end) with a real unit, or `offset_end`."""
    while offset < offset_end and queue.units(offset, offset + 1)["size"][0] == BLANK_SIZE:
        end = min(offset_end, offset + RANGE_UNITS_MAX)
        offset += blank_count(queue.units(offset, end))
    return offset
