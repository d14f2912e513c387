"""Compressed bodies come out as their producers gave them, and broken ones are a declared error."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pytest

from rocketpy_proto.record import COLUMN_TYPES, MalformedRecordError, Record, to_record_batch
from rocketpy_proto.record.compression import INFLATED_BYTES_MAX
from tests.unit.record.strategies import block_of

BODY = b"to be compressed " * 50
SCHEMA = pa.schema({"body": COLUMN_TYPES["body"]})


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
    assert to_record_batch(block, SCHEMA).column(0).to_pylist() == [b"plain", BODY]


@pytest.mark.parametrize("flag", [0x1, 0x101, 0x201])
def test_a_body_that_cannot_be_inflated_is_named(flag: int) -> None:
    block = block_of([Record("T", 0, b"plain"), Record("T", 0, b"nonsense", sys_flag=flag)])
    with pytest.raises(MalformedRecordError, match=r"record 1 .* cannot be inflated"):
        to_record_batch(block, SCHEMA)


def test_a_body_that_is_cut_off_is_named() -> None:
    block = block_of([Record("T", 0, zlib.compress(BODY)[:-6], sys_flag=0x1)])
    with pytest.raises(MalformedRecordError, match="cut off"):
        to_record_batch(block, SCHEMA)


def test_a_body_that_inflates_without_bound_is_refused() -> None:
    bomb = zlib.compress(bytes(INFLATED_BYTES_MAX + 1))
    block = block_of([Record("T", 0, bomb, sys_flag=0x1)])
    with pytest.raises(MalformedRecordError, match="inflates to more than"):
        to_record_batch(block, SCHEMA)
