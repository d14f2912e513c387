"""Unreadable messages: they never end a query, nor fill its memory.

Responses may be cut anywhere, so each range is read twice, cut differently.
"""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_rocketpy.offsets import QueueRange
from pyspark_rocketpy.source.columns import arrow_schema, source_schema
from pyspark_rocketpy.source.message_filter import MessageFilter
from pyspark_rocketpy.source.range_reader import ReadConfig, read_ranges
from pyspark_rocketpy.transport.interface import OffsetQueries
from pyspark_rocketpy.transport.rebatching import RecordChunk
from pyspark_rocketpy.transport.values import PullOptions
from rocketpy_proto.record import Record, encode_record
from tests.support.hostile import HOSTILE_RECORDS, HostileRecord

SCHEMA = arrow_schema(source_schema(("*",)))
FETCH_BYTES = 4 << 20
MIB = 1 << 20


@dataclass(frozen=True)
class GivenRecords:
    """A queue of these records, with responses that end before each of `cuts`."""

    records: tuple[bytes, ...]
    cuts: tuple[int, ...] = ()

    def pull(self, part: QueueRange, _options: PullOptions) -> Generator[RecordChunk]:
        """Yields all records of the range, as a broker sends them."""
        bounds = sorted({part.begin, part.end, *(cut for cut in self.cuts if cut < part.end)})
        for begin, end in pairwise(bounds):
            found = self.records[begin:end]
            sizes = np.array([len(record) for record in found], np.int32)
            yield RecordChunk(begin, end, memoryview(b"".join(found)), sizes)

    def offset_queries(self) -> OffsetQueries:
        """Raises NotImplementedError: no test plans here."""
        raise NotImplementedError


def batches(
    queue: GivenRecords, wanted: MessageFilter | None = None, schema: pa.Schema = SCHEMA
) -> Generator[pa.RecordBatch]:
    """Yields the whole queue, as a task reads it."""
    options = PullOptions("group", FETCH_BYTES, True, ())
    config = ReadConfig(queue, options, wanted or MessageFilter())
    whole = QueueRange("T", 0, 0, len(queue.records))
    yield from read_ranges(config, (whole,), schema)


def as_stored(records: Sequence[HostileRecord]) -> tuple[bytes, ...]:
    """Returns the records, numbered as in a queue of topic T, where a broker has only these."""
    own = [replace(record, topic=b"T") for record in records]
    return tuple(record.encoded(offset, 100 * offset) for offset, record in enumerate(own))


@given(
    st.lists(HOSTILE_RECORDS, min_size=1, max_size=12),
    st.lists(st.integers(0, 12), max_size=4),
    st.sampled_from(
        [MessageFilter(), MessageFilter(("\x00", "region")), MessageFilter(None, ("a",))]
    ),
)
@settings(max_examples=150, deadline=None)
def test_s11_every_well_formed_record_is_read_and_always_in_the_same_batches(
    records: list[HostileRecord], cuts: list[int], wanted: MessageFilter
) -> None:
    encoded = as_stored(records)
    whole = list(batches(GivenRecords(encoded), wanted))
    again = list(batches(GivenRecords(encoded, tuple(cuts)), wanted))
    assert [batch.serialize() for batch in whole] == [batch.serialize() for batch in again]
    offsets = []
    for batch in whole:
        batch.validate(full=True)
        offsets += batch.column("queueOffset").to_pylist()
        _says_what_it_is(batch.to_pylist(), records)
    if wanted == MessageFilter():
        assert offsets == list(range(len(records)))


def _says_what_it_is(rows: list[dict[str, object]], records: list[HostileRecord]) -> None:
    """Asserts that a row has its record's bytes or decompressed bytes, and states which."""
    for row in rows:
        record = records[int(str(row["queueOffset"]))]
        is_compressed = bool(record.sys_flag & 1 and record.body)
        assert row["sysFlag"] == record.sys_flag
        if not is_compressed or row["bodyError"] is not None:
            assert row["body"] == record.body
        if row["bodyError"] is not None:
            assert is_compressed


def bombs(count: int, size_bytes: int) -> GivenRecords:
    """Returns records that inflate to `size_bytes` each."""
    body = zlib.compress(bytes(size_bytes), 9)
    records = [Record("T", 0, body, queue_offset=n, sys_flag=1) for n in range(count)]
    return GivenRecords(tuple(encode_record(record) for record in records))


@pytest.mark.slow
def test_s11_thirty_bombs_are_told_and_take_no_memory() -> None:
    queue = bombs(30, 157 * MIB)
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    found = list(batches(queue))
    assert tracemalloc.get_traced_memory()[1] < 192 * MIB
    tracemalloc.stop()
    assert pa.total_allocated_bytes() - before < 16 * MIB
    errors = [error for batch in found for error in batch.column("bodyError").to_pylist()]
    assert errors == ["inflates to more than 67108864 bytes"] * 30
    assert found[-1].column("body")[-1].as_py() == zlib.compress(bytes(157 * MIB), 9)


@pytest.mark.parametrize("cuts", [(), (1, 3), (2, 5, 29), tuple(range(30))])
def test_s11_bodies_that_inflate_to_much_come_in_batches_of_bounded_bytes(
    cuts: tuple[int, ...],
) -> None:
    rows = 0
    for batch in batches(replace(bombs(30, 12 * MIB), cuts=cuts)):
        assert batch.num_rows == 2
        assert batch.get_total_buffer_size() < 32 * MIB
        assert batch.column("bodyError").null_count == 2
        rows += batch.num_rows
    assert rows == 30


@pytest.mark.parametrize(
    ("timestamp_ms", "shown"),
    [
        (-9_214_560_000_000, "1678-01-01 00:00:00+00:00"),
        (-9_214_560_000_001, None),
        (9_214_646_399_999, "2261-12-31 23:59:59.999000+00:00"),
        (9_214_646_400_000, None),
        # As microseconds in 64 bits these would be times near 1970.
        ((1 << 63) - 1, None),
        (-(1 << 63), None),
        (1 << 61, None),
    ],
)
def test_s11_a_time_that_no_column_holds_is_null(timestamp_ms: int, shown: str | None) -> None:
    record = Record("T", 0, b"", born_timestamp_ms=timestamp_ms, store_timestamp_ms=timestamp_ms)
    [batch] = batches(GivenRecords((encode_record(record),)))
    for name in ("bornTimestamp", "storeTimestamp"):
        [value] = batch.column(name).to_pylist()
        assert (None if value is None else str(value)) == shown
    batch.to_pandas()
