"""Units: the entries of a consume queue, as stored in its files.

    +------------------------+-----------+--------------------+
    | physical offset  int64 | size int32| tags code  int64   |    big-endian
    +------------------------+-----------+--------------------+

Source: ConsumeQueue, docs/design/storage.md section 6.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

UNIT = np.dtype(
    [
        ("physical_offset", ">i8"),  # start of the record in the commit log
        ("size", ">i4"),  # bytes of the whole record
        ("tags_code", ">i8"),  # Java hash of the TAGS property, or a delayed message's due time
    ]
)
UNIT_BYTES = UNIT.itemsize
UNIT_FIELDS = struct.Struct(">qiq")
BLANK_SIZE = 0x7FFFFFFF
assert UNIT_BYTES == UNIT_FIELDS.size == 20

Units = NDArray[np.void]
NO_UNITS = np.empty(0, UNIT)


def blank_units(count: int) -> Units:
    """Returns units that fill a gap: readers skip them."""
    units = np.zeros(count, UNIT)
    units["size"] = BLANK_SIZE
    return units


def record_ends(units: Units) -> NDArray[np.int64]:
    """Returns the physical offsets of the ends of the units' records."""
    ends: NDArray[np.int64] = units["physical_offset"] + units["size"].astype(np.int64)
    return ends


def blank_count(units: Units) -> int:
    """Returns the number of blank units before the first real one."""
    real = units["size"] != BLANK_SIZE
    return int(np.argmax(real)) if real.any() else len(units)
