"""Codec for one record at a time.

Source: docs/design/storage.md section 2.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from rocketpy_proto.record.crc import body_crc
from rocketpy_proto.record.errors import MalformedRecordError, UnencodableRecordError
from rocketpy_proto.record.hosts import UNKNOWN_HOST, Host
from rocketpy_proto.record.layout import (
    BLANK_BYTES,
    END_OF_SEGMENT_MAGIC,
    FIXED_BYTES,
    HOST_V4_BYTES,
    HOST_V6_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_LENGTH_BYTES,
    RECORD_MAGICS,
    TOPIC_BYTES_MAX,
    TOPIC_LENGTH_BYTES,
    TOPIC_UNITS_MAX_V1,
)
from rocketpy_proto.record.properties import decode_properties, encode_properties
from rocketpy_proto.record.sys_flag import BORN_HOST_V6, STORE_HOST_V6

# The fixed part in three runs, with the hosts between them.
_TO_BORN_TIMESTAMP = struct.Struct(">iIiiiqqiq")
_STORE_TIMESTAMP = struct.Struct(">q")
_FROM_RECONSUME_TIMES = struct.Struct(">iqi")
_BLANK = struct.Struct(">iI")
_TOPIC_LENGTH = {MAGIC_V1: struct.Struct(">b"), MAGIC_V2: struct.Struct(">h")}
_PROPERTIES_LENGTH = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class Record:
    """One message as the log holds it. Times in ms; the body as stored, maybe compressed."""

    topic: str
    queue_id: int
    body: bytes
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    born_host: Host = UNKNOWN_HOST
    store_timestamp_ms: int = 0
    store_host: Host = UNKNOWN_HOST
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


@dataclass(frozen=True, slots=True)
class DecodedRecord:
    """A record, and the size, magic and CRC in its bytes."""

    record: Record
    size: int
    magic: int
    body_crc: int


def encode_record(record: Record) -> bytes:
    """Returns the record's bytes. The hosts determine the IPv6 bits of sysFlag.

    Raises UnencodableRecordError.
    """
    return encode_with_properties(record, encode_properties(record.properties))


def encode_with_properties(record: Record, properties: bytes) -> bytes:
    """Returns the record's bytes as `encode_record` does, with encoded properties.

    Raises UnencodableRecordError.
    """
    topic = encode_topic(record.topic)
    sys_flag = record.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6)
    sys_flag |= BORN_HOST_V6 * record.born_host.is_v6 | STORE_HOST_V6 * record.store_host.is_v6
    hosts = record.born_host.to_bytes(), record.store_host.to_bytes()
    parts_size = sum(map(len, (*hosts, record.body, topic.encoded, properties)))
    fixed = FIXED_BYTES - 2 * HOST_V4_BYTES - TOPIC_LENGTH_BYTES[MAGIC_V1]
    size = fixed + TOPIC_LENGTH_BYTES[topic.magic] + parts_size
    try:
        head = _TO_BORN_TIMESTAMP.pack(
            size,
            topic.magic,
            body_crc(record.body),
            record.queue_id,
            record.flag,
            record.queue_offset,
            record.physical_offset,
            sys_flag,
            record.born_timestamp_ms,
        )
        middle = _STORE_TIMESTAMP.pack(record.store_timestamp_ms)
        tail = _FROM_RECONSUME_TIMES.pack(
            record.reconsume_times, record.prepared_transaction_offset, len(record.body)
        )
        properties_length = _PROPERTIES_LENGTH.pack(len(properties))
    except struct.error as error:
        raise UnencodableRecordError("record", record, f"does not fit: {error}") from error
    return b"".join(
        [
            *(head, hosts[0], middle, hosts[1], tail),
            *(record.body, topic.length, topic.encoded),
            *(properties_length, properties),
        ]
    )


@dataclass(frozen=True, slots=True)
class EncodedTopic:
    """A topic's bytes, its length field, and the magic for that field's size."""

    magic: int
    length: bytes
    encoded: bytes


@lru_cache
def encode_topic(topic: str) -> EncodedTopic:
    """Returns the topic as V1 up to 127 UTF-16 units, else as V2.

    Raises UnencodableRecordError.
    """
    try:
        encoded = topic.encode()
    except UnicodeEncodeError as error:
        raise UnencodableRecordError("topic", topic, "is not valid Unicode") from error
    units = len(topic.encode("utf-16-le")) // 2
    magic = MAGIC_V1 if units <= TOPIC_UNITS_MAX_V1 else MAGIC_V2
    if magic == MAGIC_V1 and len(encoded) > TOPIC_UNITS_MAX_V1:
        # RocketMQ counts characters and would write a length that reads as negative.
        magic = MAGIC_V2
    if len(encoded) > TOPIC_BYTES_MAX:
        raise UnencodableRecordError("topic", topic, f"has more than {TOPIC_BYTES_MAX} bytes")
    return EncodedTopic(magic, _TOPIC_LENGTH[magic].pack(len(encoded)), encoded)


def encode_blank(left_bytes: int) -> bytes:
    """Returns the record that fills the rest of a segment; its remaining bytes stay unchanged.

    Source: docs/design/storage.md section 2.2.
    """
    return _BLANK.pack(left_bytes, END_OF_SEGMENT_MAGIC)


assert _BLANK.size == BLANK_BYTES


class _Cursor:
    """A reader of a record's parts that never reads past its end."""

    def __init__(self, buffer: memoryview, position: int, end: int) -> None:
        self._buffer = buffer
        self._begin = position
        self._position = position
        self._end = end

    def take(self, length: int, what: str) -> bytes:
        if length < 0 or length > self._end - self._position:
            raise MalformedRecordError(f"{what} of {length} bytes does not fit", self._begin)
        part = bytes(self._buffer[self._position : self._position + length])
        self._position += length
        return part

    @property
    def left(self) -> int:
        return self._end - self._position


def decode_record(
    buffer: bytes | bytearray | memoryview, position: int = 0, *, check_crc: bool = True
) -> DecodedRecord:
    """Returns the record at `position`. Raises MalformedRecordError."""
    view = memoryview(buffer).cast("B")
    head = _checked_head(view, position)
    size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_ms = head
    cursor = _Cursor(view, position, position + size)
    cursor.take(_TO_BORN_TIMESTAMP.size, "fixed part")
    born_host = _take_host(cursor, sys_flag & BORN_HOST_V6)
    store_ms = _STORE_TIMESTAMP.unpack(cursor.take(_STORE_TIMESTAMP.size, "storeTimestamp"))[0]
    store_host = _take_host(cursor, sys_flag & STORE_HOST_V6)
    reconsume_times, prepared_offset, body_length = _FROM_RECONSUME_TIMES.unpack(
        cursor.take(_FROM_RECONSUME_TIMES.size, "fixed part")
    )
    body = cursor.take(body_length, "body")
    topic = cursor.take(_take_length(cursor, _TOPIC_LENGTH[magic]), "topic")
    properties = cursor.take(_take_length(cursor, _PROPERTIES_LENGTH), "properties")
    if cursor.left:
        raise MalformedRecordError(f"{cursor.left} bytes after the properties", position)
    if check_crc and body and body_crc(body) != crc:
        raise MalformedRecordError("body CRC does not match", position)
    record = Record(
        topic.decode(errors="replace"),
        queue_id,
        body,
        decode_properties(properties),
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_ms,
        born_host,
        store_ms,
        store_host,
        reconsume_times,
        prepared_offset,
    )
    return DecodedRecord(record, size, magic, crc)


def _checked_head(view: memoryview, position: int) -> tuple[int, ...]:
    """Returns the fields up to bornTimestamp.

    Raises MalformedRecordError for a size or magic that no record has.
    """
    if position < 0 or len(view) - position < FIXED_BYTES:
        raise MalformedRecordError("fewer bytes than the smallest record", position)
    head: tuple[int, ...] = _TO_BORN_TIMESTAMP.unpack_from(view, position)
    size, magic = head[:2]
    if magic not in RECORD_MAGICS:
        raise MalformedRecordError(f"unknown magic {magic:#010x}", position)
    if not FIXED_BYTES <= size <= len(view) - position:
        left = len(view) - position
        raise MalformedRecordError(f"size {size} is not in {FIXED_BYTES}..{left}", position)
    return head


def _take_host(cursor: _Cursor, is_v6: int) -> Host:
    return Host.from_bytes(cursor.take(HOST_V6_BYTES if is_v6 else HOST_V4_BYTES, "host"))


def _take_length(cursor: _Cursor, form: struct.Struct) -> int:
    value: int = form.unpack(cursor.take(form.size, "length"))[0]
    return value


assert _PROPERTIES_LENGTH.size == PROPERTIES_LENGTH_BYTES
