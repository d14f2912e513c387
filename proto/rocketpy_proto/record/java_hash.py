"""Java's String.hashCode of strings, columns and byte ranges.

h = 31 h + u over UTF-16 code units, in 32 bits with wrap-around. Source: docs/design/storage.md
section 4.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketpy_proto.record.block.ranges import binary_ranges, octets_of, offsets_of, to_strings

_MASK = 0xFFFFFFFF
_SIGN = 0x80000000
_FIRST_NON_ASCII = 0x80
_FIRST_OF_FOUR_BYTES = 0xF0


def _powers(count: int) -> NDArray[np.uint32]:
    """Returns 31**0, 31**1 ... modulo 2**32."""
    powers = np.full(count, 31, np.uint32)
    powers[:1] = 1
    return np.multiply.accumulate(powers, dtype=np.uint32)


# Texts of up to this many bytes are hashed as rows of a matrix.
WINDOW_BYTES_MAX = 64
_POWERS = _powers(WINDOW_BYTES_MAX + 1)
_FALLING_POWERS = _POWERS[-2::-1].copy()


def java_hash(text: str, seed: int = 0) -> int:
    """Returns the signed 32-bit hash; `seed` is the hash of the preceding text."""
    units: bytes | list[int]
    if text.isascii():
        units = text.encode()
    else:
        units = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), "<u2").tolist()
    value = seed & _MASK
    for unit in units:
        value = (31 * value + unit) & _MASK
    return value - (_MASK + 1) if value & _SIGN else value


def java_hashes(texts: pa.StringArray) -> NDArray[np.int32]:
    """Returns the hash of each string; 0 for null and for the empty string."""
    hashes = _hash_segments(_utf16_units(texts))
    if texts.null_count:
        hashes[texts.is_null().to_numpy(zero_copy_only=False)] = 0
    return hashes.view(np.int32)


def java_hash_ranges(
    octets: NDArray[np.uint8],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    seeds: NDArray[np.uint32],
) -> NDArray[np.int32]:
    """Returns the hash of the UTF-8 text in each range; the ranges ascend and do not overlap.

    `seeds` are one or n hashes of the texts before the ranges. ASCII texts of up to 64 bytes, such
    as keys and tags, cost 20 to 30 ns each.
    """
    lengths = ends - begins
    width = min(int(lengths.max(initial=0)), WINDOW_BYTES_MAX)
    inside = np.minimum(lengths, width)
    windows = _windows(octets, ends, width)
    if np.count_nonzero(inside < width):
        windows &= _tail_masks(width)[inside].view(np.uint8).reshape(windows.shape)
    powers = _FALLING_POWERS[WINDOW_BYTES_MAX - width :]
    sums = np.einsum("ij,j->i", windows.astype(np.uint32), powers)
    hashes: NDArray[np.uint32] = sums + seeds * _POWERS[inside]
    is_other = lengths > width
    if windows.max(initial=0) >= _FIRST_NON_ASCII:
        is_other |= (windows >= _FIRST_NON_ASCII).any(axis=1)
    others = is_other.nonzero()[0]
    if len(others):
        texts = to_strings(binary_ranges(octets, begins[others], ends[others]))
        hashes[others] = _hash_after(texts, np.broadcast_to(seeds, lengths.shape)[others])
    return hashes.view(np.int32)


def _windows(octets: NDArray[np.uint8], ends: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
    """Returns the `width` bytes before each of `ends` as rows, padded with zeros in front."""
    padded = np.concatenate((np.zeros(width, np.uint8), octets))
    items: NDArray[np.void] = np.ndarray((len(octets) + 1,), f"V{width}", padded, strides=(1,))
    return items[ends].view(np.uint8).reshape(len(ends), width)


@cache
def _tail_masks(width: int) -> NDArray[np.void]:
    """Returns masks; mask n keeps the last n bytes of a window."""
    masks = np.tri(width + 1, width, -1, np.uint8)[:, ::-1] * np.uint8(0xFF)
    return np.ascontiguousarray(masks).view(f"V{width}").reshape(width + 1)


def _hash_after(texts: pa.StringArray, seeds: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Returns the hash of each text, continued from its seed.

    Equal texts, such as tags, are hashed once.
    """
    distinct = texts.dictionary_encode()
    codes = distinct.indices.to_numpy(zero_copy_only=False)
    units = _utf16_units(distinct.dictionary)
    lengths = np.diff(units.bounds)
    powers = _powers(int(lengths.max()) + 1)[lengths]
    hashes: NDArray[np.uint32] = _hash_segments(units)[codes] + seeds * powers[codes]
    return hashes


@dataclass(frozen=True, slots=True)
class _Units:
    """UTF-16 code units of n texts without gaps; text i is [bounds[i], bounds[i + 1])."""

    values: NDArray[np.unsignedinteger]
    bounds: NDArray[np.int64]


def _utf16_units(texts: pa.StringArray) -> _Units:
    """Returns the UTF-16 units; for ASCII these are the bytes themselves."""
    offsets = offsets_of(texts)
    octets = octets_of(texts)[offsets[0] : offsets[-1]]
    bounds = offsets.astype(np.int64) - offsets[0]
    if not (octets >= _FIRST_NON_ASCII).any():
        return _Units(octets, bounds)
    # A lead byte starts one unit, a lead byte of four bytes two, other bytes none.
    per_octet = ((octets & 0xC0) != 0x80).astype(np.int64) + (octets >= _FIRST_OF_FOUR_BYTES)
    bounds = np.concatenate(([0], np.cumsum(per_octet)))[bounds]
    return _Units(np.frombuffer(octets.tobytes().decode().encode("utf-16-le"), "<u2"), bounds)


def _hash_segments(units: _Units) -> NDArray[np.uint32]:
    """Returns for each text the sum of units times powers of 31, modulo 2**32."""
    bounds = units.bounds
    lengths = np.diff(bounds)
    hashes = np.zeros(len(lengths), np.uint32)
    filled = np.flatnonzero(lengths)
    if len(filled) == 0:
        return hashes
    ends = np.repeat(bounds[1:][filled], lengths[filled])
    weights = _powers(int(lengths.max()))[ends - 1 - np.arange(len(units.values))]
    products = units.values.astype(np.uint32) * weights
    hashes[filled] = np.add.reduceat(products, bounds[:-1][filled])
    return hashes
