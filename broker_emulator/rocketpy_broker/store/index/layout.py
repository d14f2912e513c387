"""The layout of an index file: header, slots, entries.

Source: IndexHeader and IndexFile, docs/design/storage.md section 7.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

HEADER = np.dtype(
    [
        ("begin_timestamp", ">i8"),  # store time of the first entry, ms
        ("end_timestamp", ">i8"),  # store time of the last entry, ms
        ("begin_offset", ">i8"),  # physical offset of the first entry
        ("end_offset", ">i8"),  # physical offset of the last entry
        ("slots_used", ">i4"),  # nonempty slots
        ("count", ">i4"),  # number of the next entry; 0 is read as 1
    ]
)
ENTRY = np.dtype(
    [
        ("hash", ">i4"),  # of topic#key
        ("physical_offset", ">i8"),  # start of the record in the commit log
        ("seconds", ">i4"),  # store time of the record, since the header's begin_timestamp
        ("previous", ">i4"),  # number of the previous entry in its slot, 0 for none
    ]
)
assert HEADER.itemsize == 40
assert ENTRY.itemsize == 20

SLOT_COUNT = 5_000_000
ENTRY_COUNT_MAX = 20_000_000


@dataclass(frozen=True, slots=True)
class IndexFormat:
    """The numbers of slots and entries of a file; no file stores them, so they may never change."""

    slot_count: int = SLOT_COUNT
    # Entry 0 counts, though it is never used.
    entry_count_max: int = ENTRY_COUNT_MAX

    @property
    def entries_begin(self) -> int:
        """Position of entry 0."""
        return HEADER.itemsize + self.slot_count * 4

    @property
    def file_bytes(self) -> int:
        """Length of a file."""
        return self.entries_begin + self.entry_count_max * ENTRY.itemsize
