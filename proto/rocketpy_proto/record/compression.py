"""Decompression of message bodies. Source: docs/design/storage.md section 4.1.

The broker keeps bodies as producers sent them. A reader inflates the bodies that sysFlag marks as
compressed. A body that cannot be inflated, or is a bomb, stays as stored, with an error text. So no
message stops a reader.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketpy_proto.record.block.arrays import binaries_of, strings_of
from rocketpy_proto.record.block.ranges import binary_ranges
from rocketpy_proto.record.block.record_block import RecordBlock
from rocketpy_proto.record.sys_flag import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_MASK,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)

# Limit of one inflated body, and of the inflated bodies of one part.
INFLATED_BYTES_MAX = 64 << 20
INFLATED_TOGETHER_BYTES_MAX = 32 << 20
_ARROW_CODECS = {COMPRESSION_LZ4: "lz4", COMPRESSION_ZSTD: "zstd"}
_ZLIB_TYPES = frozenset({0, COMPRESSION_ZLIB})
_TYPE_SHIFT = 8
# Also accepts GZIP: RocketMQ's proxy marks such a body as it marks ZLIB.
_ZLIB_OR_GZIP = zlib.MAX_WBITS | 32


def inflate(body: bytes, sys_flag: int, bytes_max: int = INFLATED_BYTES_MAX) -> bytes:
    """Returns the body as its producer sent it; a longer one is cut to `bytes_max` + 1 bytes.

    Raises ValueError for a body that cannot be inflated, or inflates to more than
    INFLATED_BYTES_MAX bytes. The error text depends on the body alone, not on library versions.
    """
    kind = sys_flag & COMPRESSION_MASK
    if kind in _ZLIB_TYPES:
        inflated = _inflated_by_zlib(body, bytes_max)
    elif kind in _ARROW_CODECS:
        inflated = _inflated_by_arrow(body, _ARROW_CODECS[kind], bytes_max)
    else:
        raise ValueError(f"compression type {kind >> _TYPE_SHIFT} is unknown")
    if len(inflated) > INFLATED_BYTES_MAX:
        raise ValueError(f"inflates to more than {INFLATED_BYTES_MAX} bytes")
    return inflated


def _inflated_by_zlib(body: bytes, bytes_max: int) -> bytes:
    inflater = zlib.decompressobj(_ZLIB_OR_GZIP)
    try:
        inflated = inflater.decompress(body, bytes_max + 1)
    except zlib.error as error:
        raise ValueError("is no whole ZLIB stream") from error
    if not inflater.eof and len(inflated) <= bytes_max:
        raise ValueError("is no whole ZLIB stream")
    return inflated


def _inflated_by_arrow(body: bytes, codec: str, bytes_max: int) -> bytes:
    try:
        with pa.CompressedInputStream(pa.py_buffer(body), codec) as stream:
            inflated: bytes = stream.read(bytes_max + 1)
    except (OSError, ValueError) as error:
        raise ValueError(f"is no whole {codec.upper()} stream") from error
    return inflated


def inflated_or_stored(
    body: bytes, sys_flag: int, bytes_max: int = INFLATED_BYTES_MAX
) -> tuple[bytes, str | None]:
    """Returns the body as `inflate` does; else the stored body and the reason."""
    if not sys_flag & COMPRESSED or not body:
        return body, None
    try:
        return inflate(body, sys_flag, bytes_max), None
    except ValueError as error:
        return body, str(error)


@dataclass(frozen=True, slots=True)
class Bodies:
    """The bodies of the records [begin, end) of a block, and the errors of bad ones."""

    begin: int
    end: int
    values: pa.BinaryArray
    errors: pa.StringArray


def inflated_bodies(block: RecordBlock) -> Iterator[Bodies]:
    """Yields the bodies in parts, inflated if compressed; at least one part.

    A part ends before the record that would bring its inflated bodies above
    INFLATED_TOGETHER_BYTES_MAX. So parts depend on the records alone. Compressed bodies are
    inflated one by one, at the cost of their decompression.
    """
    flags = block.header["sys_flag"].astype(np.int64)
    rows = np.flatnonzero(((flags & COMPRESSED) != 0) & (block.body_length > 0))
    begin, together_bytes = 0, 0
    found: dict[int, tuple[bytes, str | None]] = {}
    for row in rows.tolist():
        start = int(block.body_start[row])
        stored = block.data[start : start + int(block.body_length[row])].tobytes()
        one = inflated_or_stored(stored, int(flags[row]))
        if found and together_bytes + len(one[0]) > INFLATED_TOGETHER_BYTES_MAX:
            part = _part(block, begin, row, found)
            begin, together_bytes, found = row, 0, {}
            yield part
        found[row] = one
        together_bytes += len(one[0])
    yield _part(block, begin, len(block), found)


def _part(
    block: RecordBlock, begin: int, end: int, found: dict[int, tuple[bytes, str | None]]
) -> Bodies:
    """Returns the bodies of the records [begin, end); `found` has the compressed ones."""
    starts: NDArray[np.int64] = block.body_start[begin:end]
    values = binary_ranges(block.data, starts, starts + block.body_length[begin:end])
    errors = pa.nulls(end - begin, pa.string())
    if found:
        bodies, reasons = values.to_pylist(), errors.to_pylist()
        for row, (body, reason) in found.items():
            bodies[row - begin], reasons[row - begin] = body, reason
        values, errors = binaries_of(bodies), strings_of(reasons)
    return Bodies(begin, end, values, errors)
