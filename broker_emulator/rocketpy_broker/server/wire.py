"""The one message that is put on the wire by hand: a PullResponse with its records. Holds no state.

Protobuf would copy the records three times between the mapped log and the socket. Fields may
stand in any order on the wire, so the small ones are serialized as usual and the records follow
as the last field, copied once. What leaves is an ordinary PullResponse for any reader.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from rocketpy_proto.rocketpy.v1 import broker_pb2

_LENGTH_DELIMITED = 2
_RECORDS_TAG = bytes([broker_pb2.PullResponse.RECORDS_FIELD_NUMBER << 3 | _LENGTH_DELIMITED])
assert broker_pb2.PullResponse.RECORDS_FIELD_NUMBER < 16  # one byte of tag


@dataclass(frozen=True, slots=True)
class PullResponseParts:
    """A PullResponse without its records, and the records in pieces."""

    head: broker_pb2.PullResponse
    records: list[memoryview | pa.Buffer]


def serialize(response: PullResponseParts) -> bytes:
    """The wire form of the whole response."""
    pieces: list[bytes | memoryview | pa.Buffer] = [response.head.SerializeToString()]
    if response.records:
        length = sum(len(part) for part in response.records)
        pieces += [_RECORDS_TAG, _varint(length), *response.records]
    return b"".join(pieces)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
