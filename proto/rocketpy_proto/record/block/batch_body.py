"""Columns of a batch send's body: messages of one topic and queue.

    size of all 4 | magic 4 | CRC 4 | flag 4 | body length 4 | body
    | properties length 2 | properties

The messages follow each other without gaps. Magic and CRC are 0 and never read. Source:
docs/design/remoting.md section 3.2.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketpy_proto.record.block.arrays import array_of
from rocketpy_proto.record.block.ranges import binary_ranges
from rocketpy_proto.record.errors import MalformedRecordError

_SIZE = struct.Struct(">i")
_HEAD_BYTES, _PROPERTIES_LENGTH_BYTES = 20, 2
_FIXED_BYTES = _HEAD_BYTES + _PROPERTIES_LENGTH_BYTES
_HEAD = np.arange(_HEAD_BYTES)
_FLAG, _BODY_LENGTH = 3, 4


class BatchColumns(NamedTuple):
    """The n messages of a batch as columns: bodies, encoded properties, flags."""

    body: pa.BinaryArray
    properties: pa.BinaryArray
    flag: pa.Int32Array


class BatchPart(NamedTuple):
    """Some consecutive messages of a batch; the first is at byte `position` and has a number."""

    body: memoryview
    position: int
    first: int


def batch_parts(body: bytes | memoryview, count_max: int, bytes_max: int) -> Iterator[BatchPart]:
    """Yields parts of at most `count_max` messages and about `bytes_max` bytes.

    Each step takes the time of one part. A message that does not fit is in the last part.
    """
    view, begin, first = memoryview(body), 0, 0
    while begin < len(view) or not first:
        end, count = begin, 0
        while end < len(view) and count < count_max and end - begin < bytes_max:
            size = _SIZE.unpack_from(view, end)[0] if len(view) - end >= _FIXED_BYTES else 0
            is_sound = _FIXED_BYTES <= size <= len(view) - end
            end, count = end + size if is_sound else len(view), count + 1
        yield BatchPart(view[begin:end], begin, first)
        begin, first = end, first + max(count, 1)


def decode_batch_body(body: bytes | memoryview) -> BatchColumns:
    """Returns the messages of a batch, copied. Raises MalformedRecordError."""
    return decode_batch_part(BatchPart(memoryview(body), 0, 0))


def decode_batch_part(part: BatchPart) -> BatchColumns:
    """Returns the messages of a part, copied.

    Raises MalformedRecordError with the place of the message in the batch.
    """
    try:
        return _columns(part.body)
    except MalformedRecordError as error:
        index = None if error.index is None else error.index + part.first
        raise MalformedRecordError(error.reason, error.position + part.position, index) from error


def _columns(body: memoryview) -> BatchColumns:
    data = np.frombuffer(body, np.uint8)
    starts = _starts(body)
    head = data[starts[:, None] + _HEAD].view(">i4").astype(np.int64)
    body_starts = starts + _HEAD_BYTES
    body_ends = body_starts + head[:, _BODY_LENGTH]
    ends = np.append(starts[1:], len(data))
    is_sound = (head[:, _BODY_LENGTH] >= 0) & (body_ends + _PROPERTIES_LENGTH_BYTES <= ends)
    _check(is_sound, starts, "has a body that does not fit")
    lengths = data[body_ends[:, None] + np.arange(_PROPERTIES_LENGTH_BYTES)].view(">i2").ravel()
    properties_starts = body_ends + _PROPERTIES_LENGTH_BYTES
    _check(properties_starts + lengths == ends, starts, "has properties that do not fit")
    return BatchColumns(
        binary_ranges(data, body_starts, body_ends),
        binary_ranges(data, properties_starts, ends),
        array_of(head[:, _FLAG].astype(np.int32)),
    )


def _starts(view: memoryview) -> NDArray[np.int64]:
    """Returns the start of each message.

    It is a loop, since each size gives the next start, unless all messages have the same size.
    """
    position, end = 0, len(view)
    (first,) = _SIZE.unpack_from(view) if end >= _FIXED_BYTES else (0,)
    if first >= _FIXED_BYTES and end % first == 0:
        stated: NDArray[np.int32] = np.ndarray((end // first,), ">i4", view, strides=(first,))
        if (stated == first).all():
            return np.arange(0, end, first)
    starts: list[int] = []
    while position < end:
        size = _SIZE.unpack_from(view, position)[0] if end - position >= _FIXED_BYTES else 0
        if not _FIXED_BYTES <= size <= end - position:
            raise MalformedRecordError("a message of a batch does not fit", position, len(starts))
        starts.append(position)
        position += size
    if not starts:
        raise MalformedRecordError("a batch has no messages", 0)
    return np.array(starts, np.int64)


def _check(is_sound: NDArray[np.bool_], starts: NDArray[np.int64], reason: str) -> None:
    if not is_sound.all():
        row = int(np.argmin(is_sound))
        raise MalformedRecordError(f"a message of a batch {reason}", int(starts[row]), row)
