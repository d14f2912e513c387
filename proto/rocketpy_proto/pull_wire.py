"""Hand-written serialization of messages with records.

Protobuf would copy the records three times from the mapped log to the socket, and twice to the
decoder. It takes twice the time of the writer here for a block of 2 MiB. The order of fields on the
wire is free. So the writer serializes the small fields as usual and appends the records, copied
once. The reader scans the top-level fields, leaves the records in place, and passes the rest to
protobuf. Any protobuf peer reads and writes them as ordinary messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from rocketpy_proto.rocketpy.v1 import broker_pb2

if TYPE_CHECKING:
    import pyarrow as pa

Head = broker_pb2.PullResponse | broker_pb2.AppendRequest | broker_pb2.StageBlocksRequest
RequestT = TypeVar("RequestT", broker_pb2.AppendRequest, broker_pb2.StageBlocksRequest)
_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}
_RECORDS_TAG = broker_pb2.PullResponse.RECORDS_FIELD_NUMBER << 3 | _LENGTH_DELIMITED
assert _RECORDS_TAG < 0x80  # one byte on the wire


@dataclass(frozen=True, slots=True)
class PullResponseParts:
    """A PullResponse without its records, and the records in one or more pieces."""

    head: broker_pb2.PullResponse
    records: Sequence[memoryview | pa.Buffer]


@dataclass(frozen=True, slots=True)
class BlockRequest(Generic[RequestT]):
    """A request without the records of its block, and the records."""

    head: RequestT
    records: bytes


def serialize(response: PullResponseParts) -> bytes:
    """Returns the wire form of the whole response."""
    return _joined(response.head, response.records)


def serialize_block(request: BlockRequest[RequestT]) -> bytes:
    """Returns the wire form of the whole request."""
    return _joined(request.head, [request.records] if request.records else [])


def _joined(head: Head, records: Sequence[bytes | memoryview | pa.Buffer]) -> bytes:
    pieces: list[bytes | memoryview | pa.Buffer] = [head.SerializeToString()]
    if records:
        tag = head.RECORDS_FIELD_NUMBER << 3 | _LENGTH_DELIMITED
        pieces += [bytes([tag]), _encode_varint(sum(map(len, records))), *records]
    return b"".join(pieces)


def deserialize(data: bytes) -> PullResponseParts:
    """Returns the response in `data`; its records are one view of `data`.

    Raises ValueError, DecodeError.
    """
    view = memoryview(data)
    rest: list[memoryview] = []
    records = view[:0]
    position = 0
    while position < len(view):
        begin = position
        tag = _decode_varint(view, position)
        value = _field_value(view, tag)
        position = value.end
        if tag.value == _RECORDS_TAG:
            records = view[value.begin : value.end]
        else:
            rest.append(view[begin:position])
    return PullResponseParts(broker_pb2.PullResponse.FromString(b"".join(rest)), [records])


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


@dataclass(frozen=True, slots=True)
class _Varint:
    value: int
    end: int


def _decode_varint(view: memoryview, position: int) -> _Varint:
    value = shift = 0
    while position < len(view) and shift < 64:
        octet = view[position]
        position += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            return _Varint(value, position)
        shift += 7
    raise ValueError(f"PullResponse: no varint ends at byte {position}")


@dataclass(frozen=True, slots=True)
class _Span:
    begin: int
    end: int


def _field_value(view: memoryview, tag: _Varint) -> _Span:
    """Returns the span of the value after `tag`. Raises ValueError."""
    kind = tag.value & 7
    if kind == _VARINT:
        return _Span(tag.end, _decode_varint(view, tag.end).end)
    if kind == _LENGTH_DELIMITED:
        length = _decode_varint(view, tag.end)
        span = _Span(length.end, length.end + length.value)
    elif kind in _FIXED_BYTES:
        span = _Span(tag.end, tag.end + _FIXED_BYTES[kind])
    else:
        raise ValueError(f"PullResponse: field of unknown wire type {kind}")
    if span.end > len(view):
        raise ValueError(f"PullResponse: a field ends at byte {span.end} of {len(view)}")
    return span
