"""Compressed bodies: decompressed as their producers wrote them, or left as stored if broken."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rocketpy_proto.record import (
    COLUMN_TYPES,
    MalformedRecordError,
    Record,
    compression,
    to_record_batch,
    to_record_batches,
)
from rocketpy_proto.record.compression import INFLATED_BYTES_MAX, INFLATED_TOGETHER_BYTES_MAX
from tests.unit.record.strategies import block_of

BODY = b"to be compressed " * 50
SCHEMA = pa.schema({name: COLUMN_TYPES[name] for name in ("body", "bodyError")})


def by_arrow(codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(BODY)
    data: bytes = sink.getvalue().to_pybytes()
    return data


@pytest.mark.parametrize(
    ("flag", "compressed"),
    [
        (0x1, zlib.compress(BODY)),
        (0x301, zlib.compress(BODY)),
        (0x101, by_arrow("lz4")),
        (0x201, by_arrow("zstd")),
        (0x300, BODY),
    ],
)
def test_a_body_is_inflated_as_its_sys_flag_says(flag: int, compressed: bytes) -> None:
    block = block_of([Record("T", 0, b"plain"), Record("T", 0, compressed, sys_flag=flag)])
    assert to_record_batch(block, SCHEMA).to_pylist() == [
        {"body": b"plain", "bodyError": None},
        {"body": BODY, "bodyError": None},
    ]


@pytest.mark.parametrize(
    ("flag", "body", "error"),
    [
        (0x1, b"nonsense", "is no whole ZLIB stream"),
        (0x1, zlib.compress(BODY)[:-6], "is no whole ZLIB stream"),
        (0x301, b"\0", "is no whole ZLIB stream"),
        (0x101, b"nonsense", "is no whole LZ4 stream"),
        (0x201, b"nonsense", "is no whole ZSTD stream"),
        (0x401, zlib.compress(BODY), "compression type 4 is unknown"),
        (0x701, b"nonsense", "compression type 7 is unknown"),
        (0x1, zlib.compress(bytes(INFLATED_BYTES_MAX + 1)), "inflates to more than 67108864 bytes"),
    ],
)
def test_s11_a_body_that_cannot_be_inflated_is_given_as_it_is_stored(
    flag: int, body: bytes, error: str
) -> None:
    block = block_of([Record("T", 0, b"plain"), Record("T", 0, body, sys_flag=flag)])
    [batch] = to_record_batches(block, SCHEMA)
    assert batch.column("body").to_pylist() == [b"plain", body]
    assert batch.column("bodyError").to_pylist() == [None, error]


def test_s11_a_body_that_is_just_not_too_large_is_inflated() -> None:
    body = bytes(INFLATED_BYTES_MAX)
    assert compression.inflate(zlib.compress(body), 0x1) == body


def test_s11_what_is_wrong_with_a_body_is_told_without_the_body() -> None:
    block = block_of([Record("T", 0, b"nonsense", sys_flag=1), Record("T", 0, b"", sys_flag=1)])
    [batch] = to_record_batches(block, SCHEMA.remove(0))
    assert batch.column(0).to_pylist() == ["is no whole ZLIB stream", None]


@pytest.mark.parametrize(
    ("flag", "whole"),
    [(0x1, zlib.compress(BODY)), (0x101, by_arrow("lz4")), (0x201, by_arrow("zstd"))],
)
def test_no_beginning_of_a_compressed_body_passes_for_all_of_it(flag: int, whole: bytes) -> None:
    for length in range(1, len(whole)):
        with pytest.raises(ValueError):
            compression.inflate(whole[:length], flag)


def test_s11_bodies_that_inflate_to_much_are_given_out_in_several_batches() -> None:
    half, above = INFLATED_TOGETHER_BYTES_MAX // 2, INFLATED_TOGETHER_BYTES_MAX + 1
    small = Record("T", 0, zlib.compress(bytes(half)), sys_flag=0x1)
    large = Record("T", 0, zlib.compress(bytes(above)), sys_flag=0x1)
    plain = Record("T", 0, b"plain")
    block = block_of([plain, small, plain, small, plain, small, small, large, large, plain])
    lengths = [
        pc.binary_length(batch.column(0)).to_pylist() for batch in to_record_batches(block, SCHEMA)
    ]
    assert lengths == [[5, half, 5, half, 5], [half, half], [above], [above, 5]]
    with pytest.raises(MalformedRecordError, match="bodies inflate to more than"):
        to_record_batch(block, SCHEMA)
    others = pa.schema({"topic": COLUMN_TYPES["topic"]})
    assert len(to_record_batch(block, others)) == len(block)
