"""The record layout of docs/design/storage.md sections 2 to 5, pinned by hand-written bytes."""

from __future__ import annotations

import mmap
import zlib

import numpy as np
import pytest

from rocketpy_proto.record import (
    Host,
    MalformedRecordError,
    Record,
    RecordBlock,
    decode_offset_message_id,
    decode_record,
    encode_blank,
    encode_offset_message_id,
    encode_record,
    java_hash,
)
from rocketpy_proto.record.layout import BLOCK_BYTES_MAX
from tests.unit.record.strategies import block_of, properties_of

RECORD = Record(
    topic="TopicA",
    queue_id=2,
    body=b"hello",
    properties={"TAGS": "TagA", "KEYS": "K1"},
    queue_offset=7,
    physical_offset=1000,
    born_timestamp_ms=1_700_000_000_000,
    born_host=Host.parse("10.0.0.1:54321"),
    store_timestamp_ms=1_700_000_000_123,
    store_host=Host.parse("10.0.0.2:10911"),
)
# A record with IPv4 hosts, a body and two properties; section 2.1.
VECTOR = bytes.fromhex(
    "00000078 daa320a7 3610a686 00000002 00000000 0000000000000007 00000000000003e8 00000000"
    "0000018bcfe56800 0a0000010000d431 0000018bcfe5687b 0a00000200002a9f 00000000"
    "0000000000000000 00000005 68656c6c6f 06 546f70696341 0012 5441475301546167"
    "4102 4b455953014b3102"
)
# Both hosts IPv6, an empty body, a V2 topic of 130 characters, no properties; section 2.1.
V6_TOPIC = "%RETRY%" + "g" * 123
V6_VECTOR = bytes.fromhex(
    "000000f6 daa320ab 00000000 00000001 00000007 0000000000000002 0000000000000100 00000032"
    "0000018bcfe56800"
    "20010db8000000000000000000000001 0000d431"
    "0000018bcfe5687b"
    "20010db8000000000000000000000002 00002a9f"
    "00000003 0000000000000040 00000000"
    "0082" + V6_TOPIC.encode().hex() + "0000"
)
V6_RECORD = Record(
    topic=V6_TOPIC,
    queue_id=1,
    body=b"",
    flag=7,
    queue_offset=2,
    physical_offset=256,
    sys_flag=0x2,
    born_timestamp_ms=1_700_000_000_000,
    born_host=Host.parse("[2001:db8::1]:54321"),
    store_timestamp_ms=1_700_000_000_123,
    store_host=Host.parse("[2001:db8::2]:10911"),
    reconsume_times=3,
    prepared_transaction_offset=64,
)


def test_s01_a_v1_record_is_encoded_to_the_byte() -> None:
    assert encode_record(RECORD) == VECTOR
    assert len(VECTOR) == 120


def test_s01_a_v1_record_is_decoded() -> None:
    decoded = decode_record(b"before" + VECTOR + b"behind", 6)
    assert decoded.record == RECORD
    assert (decoded.size, decoded.body_crc) == (120, zlib.crc32(b"hello") & 0x7FFFFFFF)


def test_s01_a_v2_record_with_ipv6_hosts_is_encoded_and_decoded_to_the_byte() -> None:
    assert len(V6_VECTOR) == 0xF6 == 91 + 12 + 12 + 1 + len(V6_TOPIC)
    assert encode_record(V6_RECORD) == V6_VECTOR
    decoded = decode_record(V6_VECTOR).record
    assert decoded.sys_flag == 0x32
    assert (decoded.topic, decoded.born_host, decoded.store_host) == (
        V6_RECORD.topic,
        V6_RECORD.born_host,
        V6_RECORD.store_host,
    )


def test_s04_the_tags_code_of_the_vector() -> None:
    assert block_of([RECORD]).tags_codes().tolist() == [0x27A807]


def test_the_offset_message_id_of_the_vector() -> None:
    message_id = "0A00000200002A9F00000000000003E8"
    assert encode_offset_message_id(RECORD.store_host, 1000) == message_id
    assert decode_offset_message_id(message_id) == (RECORD.store_host, 1000)
    v6 = encode_offset_message_id(V6_RECORD.store_host, 256)
    assert len(v6) == 56
    assert decode_offset_message_id(v6) == (V6_RECORD.store_host, 256)


def test_s01_the_blank_record() -> None:
    assert encode_blank(0x1234) == bytes.fromhex("00001234 cbd43194")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("TagA", 2598919),
        ("你好", 652829),
        ("😀", 1772899),
        ("polygenelubricants", -2147483648),
        ("", 0),
    ],
)
def test_java_hash_vectors(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_the_crc_of_a_body_is_masked() -> None:
    body = next(b"%d" % n for n in range(100) if zlib.crc32(b"%d" % n) >> 31)
    encoded = encode_record(Record("T", 0, body))
    assert int.from_bytes(encoded[8:12], "big") == zlib.crc32(body) & 0x7FFFFFFF


@pytest.mark.parametrize(
    ("encoded", "expected"),
    [
        (b"a\x01b\x02", {"a": "b"}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01b\x02c\x01d", {"a": "b", "c": "d"}),
        (b"\x02\x02a\x01b\x02\x02", {"a": "b"}),
        (b"a\x01\x02\x01b\x02novalue\x02c\x01d\x02", {"c": "d"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"a\x01first\x02b\x01x\x02a\x01last\x02", {"b": "x", "a": "last"}),
        (b"a\x01\xff\x02", {"a": "\ufffd"}),
        (b"TAGS\x01", {}),
        (b"", {}),
    ],
)
def test_properties_are_read_as_rocketmq_reads_them(
    encoded: bytes, expected: dict[str, str]
) -> None:
    record = VECTOR[:100] + len(encoded).to_bytes(2, "big") + encoded
    record = len(record).to_bytes(4, "big") + record[4:]
    assert VECTOR[99:100] == b"A"  # The topic's last letter is just before.
    assert list(decode_record(record).record.properties.items()) == list(expected.items())
    block = RecordBlock.parse(record)
    assert properties_of(block) == [list(expected.items())]


@pytest.mark.parametrize(
    ("position", "replacement"),
    [
        (0, b"\x00\x00\x00\x77"),  # size smaller than what it holds
        (0, b"\x7f\xff\xff\xff"),  # size beyond the end
        (0, b"\xff\xff\xff\xff"),  # negative size
        (4, b"\xcb\xd4\x31\x94"),  # the blank record's magic
        (84, b"\xff\xff\xff\xff"),  # negative body length
        (84, b"\x7f\xff\xff\xff"),  # body length near overflow
        (93, b"\x80"),  # negative topic length
        (100, b"\x80\x00"),  # negative properties length
        (100, b"\x00\x11"),  # properties end too early
        (39, b"\x10"),  # sysFlag claims an IPv6 host
    ],
)
def test_a_record_whose_lengths_do_not_fit_is_malformed(position: int, replacement: bytes) -> None:
    broken = VECTOR[:position] + replacement + VECTOR[position + len(replacement) :]
    with pytest.raises(MalformedRecordError):
        decode_record(broken)
    with pytest.raises(MalformedRecordError):
        RecordBlock.parse(broken)


def test_a_position_outside_of_the_buffer_holds_no_record() -> None:
    for position in (-len(VECTOR), -1, len(VECTOR), 1 << 62):
        with pytest.raises(MalformedRecordError):
            decode_record(VECTOR, position)


def test_a_block_beyond_what_offsets_can_reach_is_refused() -> None:
    # Untouched pages take no memory.
    with (
        mmap.mmap(-1, BLOCK_BYTES_MAX + 1) as empty,
        memoryview(empty) as view,
        pytest.raises(MalformedRecordError, match="read them in parts"),
    ):
        RecordBlock.parse(view, np.array([BLOCK_BYTES_MAX], np.int32))


def test_a_body_that_differs_from_its_crc_is_found() -> None:
    broken = VECTOR.replace(b"hello", b"jello")
    with pytest.raises(MalformedRecordError, match="CRC"):
        decode_record(broken)
    assert decode_record(broken, check_crc=False).record.body == b"jello"
    block = RecordBlock.parse(VECTOR + broken)
    with pytest.raises(MalformedRecordError, match="record 1 at byte 120: body CRC"):
        block.verify_body_crc()
