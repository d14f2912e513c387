"""The head of an index file: header and slots.

A head decides the content of new entries. `IndexFile` has it in its mapping; the store check has
one in memory, to rebuild a file.
Source: IndexFile#putKey, docs/design/storage.md section 7.3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.store.index.layout import ENTRY, HEADER

INT32_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class NewEntries:
    """Entries of new keys, their first and last store time, and their numbers ordered by slot."""

    entries: NDArray[np.void]
    begin_timestamp_ms: int
    end_timestamp_ms: int
    slots: NDArray[np.int64]
    numbers: NDArray[np.int64]


class IndexHead:
    """The header and slots of one file; `count` is the number of the next entry."""

    def __init__(self, header: NDArray[np.void], slots: NDArray[np.int32]) -> None:
        self.header = header
        self.slots = slots
        self.count = max(int(header["count"]), 1)

    @classmethod
    def empty(cls, slot_count: int) -> IndexHead:
        """Returns the head of a file without entries, in memory."""
        return cls(np.zeros((), HEADER), np.zeros(slot_count, np.int32))

    def entries_of(
        self,
        hashes: NDArray[np.int32],
        physical_offsets: NDArray[np.int64],
        store_timestamps_ms: NDArray[np.int64],
    ) -> NewEntries:
        """Returns the entries of new keys; `enter` adds them.

        The bytes are the same as after entering one key at a time. See docs/design/storage.md
        section 7.3.
        """
        numbers = np.arange(self.count, self.count + len(hashes))
        slots = (hashes % np.int32(len(self.slots))).astype(np.int64)
        # Slot and entry number in one integer: sorting groups the entries of a slot, oldest first.
        order = np.sort(slots << 32 | numbers)
        slots, numbers = order >> 32, order & 0xFFFFFFFF
        previous = self.slots[slots].astype(np.int64)
        previous[(previous < 0) | (previous > numbers)] = 0
        same = slots[1:] == slots[:-1]
        previous[1:][same] = numbers[:-1][same]
        entries = np.empty(len(hashes), ENTRY)
        entries["hash"] = hashes
        entries["physical_offset"] = physical_offsets
        entries["seconds"] = self._seconds(store_timestamps_ms)
        entries["previous"][numbers - self.count] = previous
        begin_ms, end_ms = int(store_timestamps_ms[0]), int(store_timestamps_ms[-1])
        return NewEntries(entries, begin_ms, end_ms, slots, numbers)

    def _seconds(self, times_ms: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns seconds since the file's first entry.

        In an empty file the header still has the previous file's end; the first entry counts from
        that.
        """
        begins = np.full(len(times_ms), int(self.header["begin_timestamp"]))
        if self.count == 1:
            begins[1:] = times_ms[0]
        seconds: NDArray[np.int64] = np.clip((times_ms - begins) // 1000, 0, INT32_MAX)
        seconds[begins <= 0] = 0
        return seconds

    def enter(self, new: NewEntries) -> None:
        """Adds entries that are written; the count changes last."""
        # Among entries of one slot the newest is assigned last, so it wins.
        self.slots[new.slots] = new.numbers
        header, entries = self.header, new.entries
        if self.count == 1:
            header["begin_timestamp"] = new.begin_timestamp_ms
            header["begin_offset"] = entries["physical_offset"][0]
        header["slots_used"] += np.count_nonzero(entries["previous"] == 0)
        header["end_offset"] = entries["physical_offset"][-1]
        header["end_timestamp"] = new.end_timestamp_ms
        self.count += len(entries)
        header["count"] = self.count
