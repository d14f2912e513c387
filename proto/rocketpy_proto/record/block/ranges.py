"""Arrow arrays from byte ranges of a buffer.

A helper array over the buffer has the offsets start 0, end 0, start 1, end 1 and so on. Its element
2i is range i, and its element 2i + 1 is the gap to the next range. Taking the even elements copies
just the ranges, at 16 ns each. The ranges must ascend and not overlap.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketpy_proto.record.block.arrays import (
    array_of,
    binaries_of,
    numbers_in,
    strings_of,
    truths_in,
)

# Arrow keeps up to INLINE_BYTES_MAX bytes in the view itself.
INLINE_BYTES_MAX = 12
_VIEW = np.dtype([("length", "<i4"), ("prefix", "V4"), ("buffer", "<i4"), ("offset", "<i4")])
_HEX_DIGITS = np.frombuffer(b"".join(b"%02X" % octet for octet in range(256)), "S2")


def binary_ranges(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> pa.BinaryArray:
    """Returns the ranges as a compact BinaryArray."""
    count = len(starts)
    if count == 0:
        return binaries_of([])
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2], offsets[1::2] = starts, ends
    whole = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    return whole.take(array_of(np.arange(0, 2 * count, 2, dtype=np.int32)))


def binary_views(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> pa.Array:
    """Returns the ranges as a BinaryViewArray over `data` itself.

    Each range must be longer than INLINE_BYTES_MAX. The array is only fit for conversion to
    objects: it lacks the prefixes that comparison needs.
    """
    views = np.zeros(len(starts), _VIEW)
    views["length"], views["offset"] = ends - starts, starts
    buffers = [None, pa.py_buffer(views), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary_view(), len(starts), buffers)


def offsets_of(array: pa.BinaryArray | pa.StringArray) -> NDArray[np.int32]:
    """Returns the n + 1 offsets of a binary or string array into its data buffer."""
    offsets = np.frombuffer(array.buffers()[1], np.int32)
    return offsets[array.offset : array.offset + len(array) + 1]


def octets_of(array: pa.BinaryArray | pa.StringArray) -> NDArray[np.uint8]:
    """Returns the data buffer that `offsets_of` points into."""
    buffer = array.buffers()[2]
    return np.frombuffer(buffer, np.uint8) if buffer is not None else np.empty(0, np.uint8)


def filled_lists(lists: pa.ListArray) -> pa.ListArray:
    """Returns the lists of texts without their empty and null items."""
    items = lists.flatten()
    filled = np.diff(offsets_of(items)) > 0
    if items.null_count:
        filled &= truths_in(items.is_valid())
    if filled.all():
        return lists
    parents = numbers_in(pc.list_parent_indices(lists), np.int64)[filled]
    offsets = np.concatenate(([0], np.cumsum(np.bincount(parents, minlength=len(lists)))))
    return pa.ListArray.from_arrays(
        array_of(offsets.astype(np.int32)), items.filter(array_of(filled)), mask=lists.is_null()
    )


def to_strings(array: pa.BinaryArray) -> pa.StringArray:
    """Returns the strings; bytes that are not UTF-8 become U+FFFD, as for a single record.

    The check is one pass in C. Only an array with a bad value is decoded value by value.
    """
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        decoded = [None if v is None else v.decode(errors="replace") for v in array.to_pylist()]
        return strings_of(decoded)


def hex_digits(octets: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Returns each row of an n x w array as 2 w upper-case hex digits."""
    return _HEX_DIGITS[octets].view(np.uint8).reshape(len(octets), 2 * octets.shape[1])


def fixed_width_strings(letters: NDArray[np.uint8]) -> pa.StringArray:
    """Returns each row of an n x w array of ASCII letters as a string."""
    count, width = letters.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(letters.tobytes())]
    return pa.Array.from_buffers(pa.string(), count, buffers)
