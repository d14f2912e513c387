"""CRC-32 of message bodies. Source: docs/design/storage.md section 2.4.

The polynomial is zlib's. ISA-L computes it with the processor's carry-less multiplication. It is
three to six times as fast at usual sizes: 42 against 140 ns for 100 bytes, 49 against 282 ns for 1
KiB. The broker depends on ISA-L; this module uses it if it is installed.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from rocketpy_proto.record.block.arrays import is_first_value_costly
from rocketpy_proto.record.block.ranges import (
    INLINE_BYTES_MAX,
    binary_ranges,
    binary_views,
    octets_of,
)
from rocketpy_proto.record.layout import CRC_MASK

# Up to this mean size, copies of ranges cost less than views.
COPIED_BYTES_MAX = 2400
# From this mean size on, rows of a matrix are faster than copies.
ROW_BYTES_MIN = 300
# Ranges per step, so that their copies stay in the processor's cache. A block of 20,000 records is
# 30 % faster than in one step.
ROWS = 2000
# Arrow imports pandas for its first objects: 0.2 s of processor time in a new process. Arrow saves
# as much with 10 million bodies. If pandas is not imported yet, blocks of up to OWN_COPIES_MAX
# ranges avoid Arrow's objects.
OWN_COPIES_MAX = ROWS
# Up to FEW_RANGES ranges, whole columns cost more than they save: some 50 microseconds.
FEW_RANGES = 64

Range = bytes | memoryview | NDArray[np.uint8]

_crc32: Callable[..., int]
try:
    from isal import isal_zlib
except ModuleNotFoundError:
    _crc32 = zlib.crc32
else:
    _crc32 = isal_zlib.crc32


def body_crc(body: bytes | memoryview) -> int:
    """Returns the bodyCRC field for a body; 0 for an empty one."""
    return _crc32(body) & CRC_MASK


def crc_of_parts(*parts: bytes | memoryview) -> int:
    """Returns the `body_crc` of the joined parts."""
    crc = 0
    for part in parts:
        crc = _crc32(part, crc)
    return crc & CRC_MASK


def body_crcs(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Returns the bodyCRC of each of n ascending ranges of `data`.

    One call per range cannot be avoided: 60 ns for 100 bytes, 100 ns for 1 KiB, CRC included. The
    loop runs in C, through `map`, over Arrow's copies, or over views of larger ranges.
    """
    count = len(starts)
    if count <= FEW_RANGES:
        data_view = data.data
        places = zip(starts.tolist(), ends.tolist(), strict=True)
        return np.array([body_crc(data_view[begin:end]) for begin, end in places], np.int32)
    crcs = np.empty(count, np.int64)
    is_small = count <= OWN_COPIES_MAX and is_first_value_costly()
    for begin in range(0, count, ROWS):
        part = slice(begin, begin + ROWS)
        ranges = _ranges(data, starts[part], ends[part], is_small=is_small)
        crcs[part] = np.fromiter(map(_crc32, ranges), np.int64, len(starts[part]))
    return (crcs & CRC_MASK).astype(np.int32)


def _ranges(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    *,
    is_small: bool,
) -> Iterable[Range]:
    """Returns the ranges in their fastest form; a small block's ranges without pandas."""
    lengths = ends - starts
    mean_bytes = int(lengths.sum()) // len(lengths)
    if mean_bytes >= ROW_BYTES_MIN and _is_even(starts) and _is_even(ends):
        shape, step_bytes = (len(starts), int(lengths[0])), int(starts[1] - starts[0])
        rows: NDArray[np.uint8] = np.ndarray(shape, np.uint8, data, starts[0], (step_bytes, 1))
        return rows
    if mean_bytes > COPIED_BYTES_MAX:
        view = memoryview(data.data)
        return map(view.__getitem__, map(slice, starts.tolist(), ends.tolist()))
    if is_small:
        together = io.BytesIO(octets_of(binary_ranges(data, starts, ends)).data)
        return map(together.read, lengths.tolist())
    copied = binary_views if int(lengths.min()) > INLINE_BYTES_MAX else binary_ranges
    copies: NDArray[np.object_] = copied(data, starts, ends).to_numpy(zero_copy_only=False)
    return copies


def _is_even(places: NDArray[np.int64]) -> bool:
    """True if there are several, all equally far apart."""
    steps = places[1:] - places[:-1]
    return len(steps) > 0 and not np.count_nonzero(steps != steps[0])
