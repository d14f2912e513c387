"""Counts of a request's parts before it is decoded.

Bytes and packed numbers decode fast and may be large; each part takes time. So a possibly large
request is scanned field by field first, up to a maximum that no valid request exceeds. A field of
another wire type, such as a group, counts as too many parts; proto3 has none. Other malformed bytes
are left to the decoder.
Source: protobuf's wire format.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED_64: 8, _FIXED_32: 4}
_VARINT_BYTES_MAX = 10


def has_more_parts(data: bytes, message: type[Message], count_max: int) -> bool:
    """True if a message has more than `count_max` fields, nested ones included."""
    return _parts_left(data, 0, len(data), message.DESCRIPTOR, count_max) < 0


def _parts_left(data: bytes, begin: int, end: int, descriptor: Any, left: int) -> int:
    """Returns `left` minus the number of parts; negative for too many parts."""
    while begin < end:
        left -= 1
        if left < 0:
            return left
        tag, begin = _varint(data, begin, end)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            begin = _varint(data, begin, end)[1]
        elif kind == _BYTES:
            length, begin = _varint(data, begin, end)
            field = descriptor.fields_by_number.get(number)
            if field is not None and field.message_type is not None:
                within_end = min(begin + length, end)
                left = _parts_left(data, begin, within_end, field.message_type, left)
                if left < 0:
                    return left
            begin += length
        elif kind in _FIXED_BYTES:
            begin += _FIXED_BYTES[kind]
        else:
            return -1
    return left


def _varint(data: bytes, begin: int, end: int) -> tuple[int, int]:
    """Returns a number and the position after it; `end` for an unterminated number."""
    value = 0
    for index in range(begin, min(begin + _VARINT_BYTES_MAX, end)):
        value |= (data[index] & 0x7F) << 7 * (index - begin)
        if data[index] < 0x80:
            return value, index + 1
    return 0, end
