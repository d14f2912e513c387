"""Candidate units of a read, optionally filtered by tags codes.

A filtered read examines at most SCAN_UNITS_MAX units. So it takes a fraction of a millisecond, even
for rare tags; the caller continues after them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.store.queues.consume_queue import ConsumeQueue
from rocketpy_broker.store.queues.units import BLANK_SIZE, Units

# Units that one filtered read examines.
SCAN_UNITS_MAX = 1 << 15


@dataclass(frozen=True, slots=True)
class Candidates:
    """The units from queue offset `offset` on, and the wanted ones among them.

    `rows` are the ascending positions of the wanted units in `units`; None for all.
    """

    offset: int
    units: Units
    rows: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.units) if self.rows is None else len(self.rows)

    def first(self, count: int) -> Units:
        """Returns the first `count` wanted units, or fewer."""
        return self.units[:count] if self.rows is None else self.units[self.rows[:count]]

    def offset_after(self, count: int) -> int:
        """Returns the next offset after the first `count` wanted units; skips unwanted ones."""
        if self.rows is None:
            return self.offset + count
        return self.offset + int(self.rows[count] if count < len(self.rows) else len(self.units))


def matching_units(
    queue: ConsumeQueue, offset: int, offset_end: int, tags_codes: NDArray[np.int64]
) -> Candidates:
    """Returns the units of [offset, offset_end) with one of `tags_codes`.

    Ends before the first blank unit.
    """
    units = queue.units(offset, min(offset_end, offset + SCAN_UNITS_MAX))
    blank = units["size"] == BLANK_SIZE
    if blank.any():
        units = units[: int(np.argmax(blank))]
    rows = np.flatnonzero(np.isin(units["tags_code"].astype(np.int64), tags_codes))
    return Candidates(offset, units, rows)
