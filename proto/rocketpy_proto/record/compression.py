"""Compressed bodies. Source: spec/storage.md section 4.1. Holds no state.

The broker keeps bodies as producers sent them; a reader inflates those whose sysFlag says so.
"""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa

from rocketpy_proto.record.block import RecordBlock
from rocketpy_proto.record.errors import MalformedRecordError
from rocketpy_proto.record.layout import BLOCK_BYTES_MAX
from rocketpy_proto.record.ranges import binary_ranges
from rocketpy_proto.record.sys_flag import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_MASK,
    COMPRESSION_ZSTD,
)

INFLATED_BYTES_MAX = 64 << 20
_ARROW_CODECS = {COMPRESSION_LZ4: "lz4", COMPRESSION_ZSTD: "zstd"}


def inflate(body: bytes, sys_flag: int) -> bytes:
    """The body as its producer gave it. Raises ValueError for one that cannot be inflated."""
    codec = _ARROW_CODECS.get(sys_flag & COMPRESSION_MASK)
    if codec is None:
        inflater = zlib.decompressobj()
        try:
            inflated = inflater.decompress(body, INFLATED_BYTES_MAX + 1)
        except zlib.error as error:
            raise ValueError(str(error)) from error
        complete = inflater.eof
    else:
        try:
            with pa.CompressedInputStream(pa.py_buffer(body), codec) as stream:
                inflated = stream.read(INFLATED_BYTES_MAX + 1)
        except OSError as error:
            raise ValueError(str(error)) from error
        complete = True
    if len(inflated) > INFLATED_BYTES_MAX:
        raise ValueError(f"it inflates to more than {INFLATED_BYTES_MAX} bytes")
    if not complete:
        raise ValueError("it is cut off")
    return inflated


def inflated_bodies(block: RecordBlock) -> pa.BinaryArray:
    """The body of each record, inflated where it is compressed.

    Compressed ones are inflated one by one, at the cost of their decompression. Raises
    MalformedRecordError.
    """
    ends = block.body_start + block.body_length
    bodies = binary_ranges(block.data, block.body_start, ends)
    sys_flags = block.header["sys_flag"].astype(np.int64)
    rows = np.flatnonzero(((sys_flags & COMPRESSED) != 0) & (block.body_length > 0))
    if len(rows) == 0:
        return bodies
    values = bodies.to_pylist()
    total = int(block.body_length.sum())
    for row in rows.tolist():
        try:
            inflated = inflate(values[row], int(sys_flags[row]))
        except ValueError as error:
            reason = f"compressed body cannot be inflated: {error}"
            raise MalformedRecordError(reason, int(block.positions[row]), row) from error
        total += len(inflated) - len(values[row])
        if total > BLOCK_BYTES_MAX:
            reason = f"the block's bodies inflate to more than {BLOCK_BYTES_MAX} bytes; read less"
            raise MalformedRecordError(reason, int(block.positions[row]), row)
        values[row] = inflated
    return pa.array(values, pa.binary())
