"""Arrow arrays that are created and read without pandas."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy_proto.record.block.arrays import (
    array_of,
    binaries_of,
    numbers_in,
    repeated,
    strings_of,
    truths_in,
)

# Every kind that a column is decoded from, with more rows than are read one by one.
DECODE = """
import ipaddress, sys, zlib
import numpy as np, pyarrow as pa
from pyspark_rocketpy.source.message_filter import MessageFilter
from rocketpy_proto.record import COLUMN_TYPES, Host, Record, RecordBlock
from rocketpy_proto.record import encode_record, to_record_batches
V6 = Host(ipaddress.IPv6Address("::1"), 1)
PLAIN = {"TAGS": "a", "KEYS": "one two", "UNIQ_KEY": "u"}
KINDS = [
    Record("T", 0, b"plain", PLAIN),
    Record("T", 0, b"longer than in a view itself", {**PLAIN, "KEYS": "one  two"}),
    Record("Other", 0, b"", {}, born_timestamp_ms=1 << 62),
    Record("T", 0, zlib.compress(b"x"), PLAIN, sys_flag=1, store_host=V6),
    Record("T", 0, b"no stream", PLAIN, sys_flag=1, born_host=V6),
]
TWICE = encode_record(Record("T", 0, b"", {"TAGS": "a", "TAGT": "b"})).replace(b"TAGT", b"TAGS")
NO_UTF_8 = encode_record(Record("T", 0, b"", {"TAGS": "a~"})).replace(b"a~", b"a\\xff")
schema = pa.schema(COLUMN_TYPES)
rows = 0
for kinds in [[KINDS[0]], [KINDS[1]], KINDS]:
    records = [encode_record(kind) for kind in kinds] + [TWICE, NO_UTF_8] * (len(kinds) > 1)
    block = RecordBlock.parse(b"".join(records * 100))
    block.verify_body_crc()
    for wanted in [MessageFilter(), MessageFilter(tags=("a",)), MessageFilter(keys=("two",))]:
        rows += sum(map(len, to_record_batches(wanted.select(block), schema)))
print(rows, "pandas" in sys.modules)
"""


def test_reading_imports_no_pandas() -> None:
    command = [sys.executable, "-c", DECODE]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert told.split() == ["2100", "False"]


LEAVE_OUT = """
import sys
import numpy as np, pyarrow as pa
from rocketpy_proto.record.block import arrays
costly, finders = [arrays.is_first_value_costly()], [*sys.meta_path]
arrays.leave_pandas_out()
values = pa.array([1, None]).to_pylist(), pa.array(np.arange(3)).to_numpy().tolist()
assert values == ([1, None], [0, 1, 2]), values
assert pa.scalar(b"x").as_py() == b"x"
print(*costly, arrays.is_first_value_costly(), "pandas" in sys.modules)
assert sys.meta_path == finders
import pandas
"""


def test_values_need_no_pandas_where_it_is_left_out() -> None:
    pytest.importorskip("pandas")
    command = [sys.executable, "-c", LEAVE_OUT]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert shown.strip() == "True False False"


@given(
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1)), st.integers(0, 5), st.sampled_from([1, 2, -1])
)
def test_numbers_there_and_back(numbers: list[int], begin: int, step: int) -> None:
    values = np.array(numbers, np.int64)[::step]
    array = array_of(values)
    assert array.equals(pa.array(values))
    assert numbers_in(array[begin:], np.int64).tolist() == values[begin:].tolist()


@given(st.lists(st.booleans()), st.integers(0, 20))
def test_truth_values_there_and_back(truths: list[bool], begin: int) -> None:
    array = array_of(np.array(truths, np.bool_))
    assert array.to_pylist() == truths
    assert truths_in(array[begin:]).tolist() == truths[begin:]


@given(st.lists(st.tuples(st.integers(0, 100), st.booleans())))
def test_what_is_not_valid_is_null(pairs: list[tuple[int, bool]]) -> None:
    values = np.array([value for value, _ in pairs], np.int64)
    valid = np.array([is_valid for _, is_valid in pairs], np.bool_)
    array = array_of(values, pa.timestamp("us", "UTC"), valid)
    expected = pa.array(values, mask=~valid).view(pa.timestamp("us", "UTC"))
    assert array.equals(expected)
    assert array.null_count == expected.null_count


@given(st.lists(st.none() | st.binary()))
def test_byte_strings_are_those_of_arrow(values: list[bytes | None]) -> None:
    array = binaries_of(values)
    array.validate(full=True)
    assert array.equals(pa.array(values, pa.binary()))


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]))))
def test_texts_are_those_of_arrow(texts: list[str | None]) -> None:
    assert strings_of(texts).equals(pa.array(texts, pa.string()))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_text_is_repeated(count: int) -> None:
    assert repeated("ä", count).equals(pa.array(["ä"] * count, pa.string()))


def test_no_array_without_memory_is_read_as_one_with() -> None:
    nothing = pa.Array.from_buffers(pa.int32(), 0, [None, None])
    assert numbers_in(nothing, np.int32).tolist() == []
    assert truths_in(pa.Array.from_buffers(pa.bool_(), 0, [None, None])).tolist() == []
