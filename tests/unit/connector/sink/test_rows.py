"""Rows before they become messages: cut by size, checked, and named in errors."""

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


WRONG = b"a\xff"


def text(*values: bytes | None, kind: pa.DataType | None = None) -> pa.Array:
    """Returns an array of strings that are not checked, as Spark sends them."""
    octets = pa.array(values, pa.binary())
    kind = kind or pa.string()
    if kind == pa.large_string():
        octets = octets.cast(pa.large_binary())
    return pa.Array.from_buffers(kind, len(octets), octets.buffers())


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("name", ["topic", "tags", "keys", "messageGroup", "brokerName"])
def test_a_text_that_is_no_utf8_is_refused_by_column_and_row(name: str, kind: pa.DataType) -> None:
    columns = {"body": text(WRONG, WRONG, WRONG), name: text(b"a", None, WRONG, kind=kind)}
    with pytest.raises(ColumnError, match=rf"column {name} is not valid UTF-8 in row 12 of"):
        rows_of(10, 3, **columns).check_texts()
    rows_of(10, 3, body=text(WRONG), **{name: text(None, kind=kind)}).check_texts()


def test_keys_and_properties_that_are_no_utf8_are_refused_by_column_and_row() -> None:
    body = pa.array([b"x"] * 3)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 1, 3]), text(b"a", b"b", WRONG))
    with pytest.raises(ColumnError, match="column keys is not valid UTF-8 in row 2 of"):
        rows_of(body=body, keys=lists).check_texts()
    for names, values in [((b"a", WRONG), (b"1", b"2")), ((b"a", b"b"), (b"1", WRONG))]:
        maps = pa.MapArray.from_arrays(pa.array([0, 1, 2, 2]), text(*names), text(*values))
        with pytest.raises(ColumnError, match="column properties is not valid UTF-8 in row 1 of"):
            rows_of(body=body, properties=maps).check_texts()


def test_an_error_names_a_row_whose_other_texts_are_no_utf8() -> None:
    rows = rows_of(body=pa.array([None], pa.binary()), keys=text(WRONG), tags=pa.array(["t"]))
    assert rows.where(0) == "row 0 of partition 0 (tags 't')"
