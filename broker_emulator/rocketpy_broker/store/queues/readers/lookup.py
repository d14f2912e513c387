"""Queries of a queue that its units answer: offsets by store time, sizes of its records.

Records are read one at a time, for their times only, and each is checked before it is believed.
Holds no state. Source: ConsumeQueueStore#getOffsetInQueueByTime with the lower boundary,
docs/design/storage.md section 6.6.
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

# Units that are looked at in one go: a fraction of a millisecond.
STRETCH_UNITS_MAX = 1 << 15
# Looked back for a message that is there: behind it are damaged ones.
LAST_UNITS_MAX = 32


@dataclass(frozen=True, slots=True)
class UnitRange:
    """Units of a queue from offset `begin` on: bytes of their records, where they lie, and codes.

    A blank unit has no bytes. The tags code of a message that waits is when it is due.
    """

    begin: int
    sizes: NDArray[np.int64]
    physical_offsets: NDArray[np.int64]
    tags_codes: NDArray[np.int64]

    @property
    def end(self) -> int:
        """Queue offset behind the last of them."""
        return self.begin + len(self.sizes)


@dataclass(frozen=True, slots=True)
class StoredAt:
    """A record that can be read: its queue offset and when it was stored, in ms."""

    offset: int
    timestamp_ms: int


class QueueLookup:
    """Looks into the queues of one store."""

    def __init__(
        self, queues: ConsumeQueueTable, messages: MessageLookup, times: StoreTimes
    ) -> None:
        self._queues = queues
        self._messages = messages
        self._times = times

    def first_since(self, key: QueueKey, timestamp_ms: int) -> StoredAt | None:
        """Returns the first message stored at `timestamp_ms` or later; None if there is none.

        Behind the last message before that time, should store times have fallen: one that a clock
        ahead has stored counts as stored no later than those behind it.
        Reads of the order of log2(n) records. Damaged ones are passed over.
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
        """Returns the last message that can be read, of the last LAST_UNITS_MAX places; None: none can."""
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

    def first_behind(self, key: QueueKey, physical_offset: int) -> int:
        """Returns the first message whose record lies there or behind it; where the queue ends, if none.

        Reads of the order of log2(n) units.
        """
        queue = self._queues.get(key)
        if queue is None:
            return self._queues.range_of(key).max_offset
        # Units that are blank are of no message.
        return _first_real(queue, self._first_behind(queue, physical_offset), queue.max_offset)

    def _rises(self, queue: ConsumeQueue) -> Iterator[int]:
        """Offsets from which on times rise up to the offset before, the last one first."""
        for physical_offset in reversed(self._times.falls):
            offset = self._first_behind(queue, physical_offset)
            if offset <= queue.min_offset:
                break
            yield offset
        yield queue.min_offset

    def _first_behind(self, queue: ConsumeQueue, physical_offset: int) -> int:
        """Returns the first offset whose record lies at `physical_offset` or behind it."""
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
        """Returns the first message of [low, high), where times rise, stored at that time or later."""
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
        """Returns the first record of [offset, offset_end) that can be read."""
        while (offset := _first_real(queue, offset, offset_end)) < offset_end:
            unit = queue.units(offset, offset + 1)
            timestamp_ms = self._messages.store_timestamp_ms(int(unit["physical_offset"][0]))
            if timestamp_ms is not None:
                return StoredAt(offset, timestamp_ms)
            offset += 1
        return None

    def stretch(self, key: QueueKey, offset: int, offset_end: int) -> UnitRange | None:
        """Some units of [offset, offset_end), from the first that is there; None if none is."""
        queue = self._queues.get(key)
        if queue is None:
            return None
        begin = max(offset, queue.min_offset)
        units = queue.units(begin, min(offset_end, begin + STRETCH_UNITS_MAX))
        if len(units) == 0:
            return None
        sizes = units["size"].astype(np.int64)
        sizes[(sizes == BLANK_SIZE) | (sizes < 0)] = 0
        physical_offsets = units["physical_offset"].astype(np.int64)
        return UnitRange(begin, sizes, physical_offsets, units["tags_code"].astype(np.int64))


def _first_real(queue: ConsumeQueue, offset: int, offset_end: int) -> int:
    """Returns the first offset of [offset, offset_end) whose unit is not blank; `offset_end` if all are."""
    while offset < offset_end and queue.units(offset, offset + 1)["size"][0] == BLANK_SIZE:
        end = min(offset_end, offset + STRETCH_UNITS_MAX)
        offset += blank_count(queue.units(offset, end))
    return offset
