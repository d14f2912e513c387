"""Java's String.hashCode, of one string and of a whole column. Holds no state.

h = 31 h + u over UTF-16 code units, in 32 bits with wrap-around. Source: spec/storage.md 4.2.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_MASK = 0xFFFFFFFF
_SIGN = 0x80000000
_FIRST_NON_ASCII = 0x80
_FIRST_OF_FOUR_BYTES = 0xF0


def java_hash(text: str) -> int:
    """The hash as a signed 32-bit number."""
    units = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), "<u2").tolist()
    value = 0
    for unit in units:
        value = (31 * value + unit) & _MASK
    return value - (_MASK + 1) if value & _SIGN else value


def java_hashes(texts: pa.StringArray) -> NDArray[np.int32]:
    """The hash of each string; 0 for null and for the empty string."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset :][: len(texts) + 1]
    data = texts.buffers()[2]
    octets = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] if data else _EMPTY
    bounds = offsets.astype(np.int64) - offsets[0]
    units: NDArray[np.unsignedinteger] = octets
    if (octets >= _FIRST_NON_ASCII).any():
        units = np.frombuffer(octets.tobytes().decode().encode("utf-16-le"), "<u2")
        # A lead byte begins one unit, a lead byte of four bytes two, other bytes none.
        per_octet = ((octets & 0xC0) != 0x80).astype(np.int64) + (octets >= _FIRST_OF_FOUR_BYTES)
        bounds = np.concatenate(([0], np.cumsum(per_octet)))[bounds]
    hashes = _hash_segments(units, bounds)
    if texts.null_count:
        hashes[texts.is_null().to_numpy(zero_copy_only=False)] = 0
    return hashes


_EMPTY = np.empty(0, np.uint8)


def _hash_segments(
    units: NDArray[np.unsignedinteger], bounds: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Sum of unit times a power of 31, for each segment, modulo 2**32."""
    lengths = np.diff(bounds)
    hashes = np.zeros(len(lengths), np.uint32)
    filled = np.flatnonzero(lengths)
    if len(filled) == 0:
        return hashes.view(np.int32)
    powers = np.ones(int(lengths.max()), np.uint32)
    powers[1:] = 31
    powers = np.multiply.accumulate(powers, dtype=np.uint32)
    ends = np.repeat(bounds[1:][filled], lengths[filled])
    weights = powers[ends - 1 - np.arange(len(units))]
    hashes[filled] = np.add.reduceat(units.astype(np.uint32) * weights, bounds[:-1][filled])
    return hashes.view(np.int32)
