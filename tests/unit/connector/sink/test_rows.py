"""Rows before they are messages: cut by size, checked, and named in errors."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketpy.errors import ColumnError, OversizeMessageError
from pyspark_rocketpy.sink.rows import Rows, cuts
from pyspark_rocketpy.transport.values import BrokerLimits


def rows_of(first: int = 0, partition: int = 0, **columns: pa.Array) -> Rows:
    batch = pa.record_batch(columns)
    return Rows.of(batch, tuple(columns), first, partition)


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 100))
def test_cuts_cover_all_and_keep_to_the_size(sizes: list[int], size_max: int) -> None:
    runs = list(cuts(np.array(sizes, np.int64), size_max))
    assert [index for run in runs for index in range(run.start, run.stop)] == list(
        range(len(sizes))
    )
    for run in runs:
        assert run.stop - run.start == 1 or sum(sizes[run]) <= size_max
    for run, following in itertools.pairwise(runs):
        assert sum(sizes[run]) + sizes[following.start] > size_max


def test_a_row_is_named_by_place_and_by_what_it_carries() -> None:
    rows = rows_of(
        10,
        3,
        keys=pa.array([["k1", "k2"], [], None, None]),
        messageGroup=pa.array(["g", "g", None, None]),
        tags=pa.array(["t", "t", "t" * 200, None]),
    )
    assert rows.where(0) == "row 10 of partition 3 (keys ['k1', 'k2'])"
    assert rows.where(1) == "row 11 of partition 3 (messageGroup 'g')"
    assert rows.where(2).startswith("row 12 of partition 3 (tags 'ttt")
    assert len(rows.where(2)) < 100
    assert rows.where(3) == "row 13 of partition 3"
    assert rows.part(slice(1, 3)).where(0) == rows.where(1)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_bodies_are_checked_whatever_their_arrow_type(kind: pa.DataType) -> None:
    rows_of(body=pa.array([b"abcd", b""]).cast(kind)).check_bodies(BrokerLimits(4, 100))
    with pytest.raises(OversizeMessageError, match="5 bytes in row 8 of partition 2"):
        rows_of(7, 2, body=pa.array([b"", b"abcde"]).cast(kind)).check_bodies(BrokerLimits(4, 100))
    with pytest.raises(ColumnError, match="column body is null in row 8 of partition 2"):
        rows_of(7, 2, body=pa.array([b"", None]).cast(kind)).check_bodies(BrokerLimits(4, 100))


def test_an_empty_body_is_refused_where_brokers_fail_at_it() -> None:
    rows = rows_of(7, 2, body=pa.array([b"a", b""]))
    rows.check_bodies(BrokerLimits(4, 100))
    with pytest.raises(ColumnError, match="body is empty in row 8 of partition 2"):
        rows.check_bodies(BrokerLimits(4, 100, body_bytes_min=1))
