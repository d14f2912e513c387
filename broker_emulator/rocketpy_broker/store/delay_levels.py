"""Delay levels, as far as dispatch needs them: when a waiting message is due.

A record in SCHEDULE_TOPIC_XXXX has its delivery time in its unit's tags code. Holds no state.
Source: spec/storage.md sections 4.2 and 13.1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rocketpy_proto.record import RecordBlock, property_column

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
DELAY = "DELAY"
_SECOND, _MINUTE, _HOUR = 1_000, 60_000, 3_600_000
# messageDelayLevel, levels 1 to 18, in ms.
DELAYS_MS = (
    *(seconds * _SECOND for seconds in (1, 5, 10, 30)),
    *(minutes * _MINUTE for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    *(hours * _HOUR for hours in (1, 2)),
)
assert len(DELAYS_MS) == 18


def due_codes(block: RecordBlock, tags_codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of each record its delivery time in ms, or its tags code where it has no delay level."""
    levels = np.array([_level(text) for text in property_column(block, DELAY).to_pylist()])
    delays = np.array((0, *DELAYS_MS))[np.minimum(levels, len(DELAYS_MS))]
    due = block.header["store_timestamp"].astype(np.int64) + delays
    codes: NDArray[np.int64] = np.where(levels > 0, due, tags_codes)
    return codes


def _level(text: str | None) -> int:
    """The level; 0 for none, or for what is no number."""
    try:
        return max(int(text or 0), 0)
    except ValueError:
        return 0
