"""How many parts a request has, before it is decoded. Holds no state.

Bytes and packed numbers take hardly any time to decode, and may be large; parts take time each. So
a request that may be large is looked through first, field by field, up to a number of parts that
none of a client in good faith has. What is malformed is left to the decoder.
Source: protobuf's wire format.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED_64: 8, _FIXED_32: 4}
_VARINT_BYTES_MAX = 10


def has_more_parts(data: bytes, message: type[Message], count_max: int) -> bool:
    """True if a message has more than `count_max` fields, with those of messages within."""
    return _parts_left(data, 0, len(data), message.DESCRIPTOR, count_max) < 0


def _parts_left(data: bytes, begin: int, end: int, descriptor: Any, left: int) -> int:
    """What is left of the number of parts; negative when there are too many."""
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
    """Returns a number, and where the next thing begins; at the end for one that does not end."""
    value = 0
    for index in range(begin, min(begin + _VARINT_BYTES_MAX, end)):
        value |= (data[index] & 0x7F) << 7 * (index - begin)
        if data[index] < 0x80:
            return value, index + 1
    return 0, end
