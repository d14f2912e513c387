"""Compressed bodies come out as their producers gave them, and broken ones are a declared error."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pytest

from rocketpy_proto.record import (
    COLUMN_TYPES,
    MalformedRecordError,
    Record,
    compression,
    to_record_batch,
)
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


@pytest.mark.parametrize(
    ("flag", "whole"),
    [(0x1, zlib.compress(BODY)), (0x101, by_arrow("lz4")), (0x201, by_arrow("zstd"))],
)
def test_no_beginning_of_a_compressed_body_passes_for_all_of_it(flag: int, whole: bytes) -> None:
    for length in range(1, len(whole)):
        with pytest.raises(ValueError):
            compression.inflate(whole[:length], flag)


def test_bodies_that_together_inflate_beyond_a_block_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compression, "BLOCK_BYTES_MAX", 3 * len(BODY) - 1)
    records = [Record("T", 0, zlib.compress(BODY), sys_flag=0x1)] * 3
    batch = to_record_batch(block_of(records[:2]), SCHEMA)
    assert batch.column(0).to_pylist() == [BODY, BODY]
    with pytest.raises(MalformedRecordError, match=r"record 2 .* bodies inflate to more than"):
        to_record_batch(block_of(records), SCHEMA)


def test_a_body_that_inflates_without_bound_is_refused() -> None:
    bomb = zlib.compress(bytes(INFLATED_BYTES_MAX + 1))
    block = block_of([Record("T", 0, bomb, sys_flag=0x1)])
    with pytest.raises(MalformedRecordError, match="inflates to more than"):
        to_record_batch(block, SCHEMA)
