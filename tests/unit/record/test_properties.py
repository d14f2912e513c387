"""Properties strings: both forms read any string alike, also one that none of our writers makes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rocketpy_proto.record import (
    COLUMN_TYPES,
    Record,
    RecordBlock,
    decode_record,
    encode_record,
    java_hash,
    property_column,
    property_columns,
    to_record_batch,
)
from rocketpy_proto.record.block.properties_block import ALIKE_NAMES_MAX, ENTRIES_COMPARED_MAX
from rocketpy_proto.record.index_keys import tags_codes_and_index_keys

# Pieces that meet at every kind of boundary: names, separators, halves of letters.
PIECES = st.sampled_from(
    [b"a", b"TAGS", b"KEYS", b" ", b"\x01", b"\x01", b"\x02", b"\x02", b"\xff", b"\xc3", b"\xa4"]
)
STRINGS = st.lists(PIECES, max_size=24).map(b"".join)
SCHEMA = pa.schema([(name, COLUMN_TYPES[name]) for name in ("properties", "tags", "keys")])


def record_with(properties: bytes) -> bytes:
    """Returns a record with exactly this properties string."""
    plain = encode_record(Record("T", 0, b"body"))
    record = plain[:-2] + len(properties).to_bytes(2, "big") + properties
    return len(record).to_bytes(4, "big") + record[4:]


def assert_forms_agree(strings: list[bytes]) -> None:
    """Asserts that a block has the properties, tags, keys and tags codes of its single records."""
    records = [record_with(string) for string in strings]
    single = [dict(decode_record(record).record.properties) for record in records]
    block = RecordBlock.parse(b"".join(records))
    rows = to_record_batch(block, SCHEMA).to_pylist()
    assert [row["properties"] for row in rows] == [list(one.items()) for one in single]
    assert [row["tags"] for row in rows] == [one.get("TAGS") for one in single]
    keys = [one["KEYS"].split(" ") if "KEYS" in one else None for one in single]
    assert [row["keys"] for row in rows] == [one and [k for k in one if k] for one in keys]
    assert block.tags_codes().tolist() == [java_hash(one.get("TAGS", "")) for one in single]
    columns = property_columns(block, ["a", "aa", "TAGS", "KEYS", "TAGSKEYS"])
    for name, column in columns.items():
        assert column.to_pylist() == [one.get(name) for one in single]


@given(st.lists(STRINGS, max_size=6))
@settings(max_examples=500)
@example([b"a\x01b", b"\x02c\x01d\x02"])
@example([b"a\x01b", b"\x02TAGS\x01t", b"\x02", b"", b"\x02a\x01b"])
def test_any_properties_strings_are_read_alike_by_both_forms(strings: list[bytes]) -> None:
    assert_forms_agree(strings)


def test_an_open_end_before_a_leading_separator_leaves_the_next_record_its_names() -> None:
    block = RecordBlock.parse(record_with(b"a\x01b") + record_with(b"\x02TAGS\x01TagA\x02"))
    assert block.tags_codes().tolist() == [0, 2598919]
    assert property_column(block, "TAGS").to_pylist() == [None, "TagA"]


@pytest.mark.parametrize("count", [ENTRIES_COMPARED_MAX, ENTRIES_COMPARED_MAX + 1, 200])
def test_the_last_of_many_duplicates_wins_however_far_apart_they_are(count: int) -> None:
    between = b"".join(b"n%d\x01v\x02" % number for number in range(count - 2))
    strings = [b"TAGS\x01first\x02" + between + b"TAGS\x01last\x02", b"TAGS\x01own\x02"]
    assert_forms_agree(strings)
    block = RecordBlock.parse(b"".join(map(record_with, strings)))
    assert property_column(block, "TAGS").to_pylist() == ["last", "own"]


# Of equal length, or with the bytes that strings of a fixed size lose at their ends; some names
# delay a message.
NAMES = st.sampled_from(
    [b"TAGS", b"KEYS", b"WAIT", b"UNIQ_KEY", b"TRAN_MSG", b"DELAY", b"a", b"a\0", b"a\0b", b"abc"]
)


@given(st.lists(NAMES, min_size=1, max_size=5), NAMES, st.integers(0, 19), st.data())
@settings(max_examples=300)
def test_strings_with_the_same_names_but_for_one_are_read_alike_by_both_forms(
    names: list[bytes], other: bytes, row: int, data: st.DataObject
) -> None:
    """Uses more records than are read one by one, so their names are analysed as a whole."""
    column = data.draw(st.integers(0, len(names) - 1))
    strings = []
    for number in range(20):
        of_row = list(names)
        if number == row:
            of_row[column] = other
        strings.append(b"".join(b"%s\x01v%d\x02" % (name, number) for name in of_row))
    assert_forms_agree(strings)
    block = RecordBlock.parse(b"".join(map(record_with, strings)))
    may_wait = not {b"TRAN_MSG", b"DELAY"}.isdisjoint(
        {*names[:column], *names[column + 1 :], other}
    )
    assert tags_codes_and_index_keys(block, "T").may_wait >= may_wait


@pytest.mark.parametrize("count", [ALIKE_NAMES_MAX, ALIKE_NAMES_MAX + 1])
def test_names_are_looked_at_as_a_whole_up_to_so_many_a_record(count: int) -> None:
    string = b"".join(b"n%d\x01v\x02" % number for number in range(count))
    assert_forms_agree([string] * 20)
    block = RecordBlock.parse(record_with(string) * 20)
    [(_, entries)] = block.entries()
    assert len(entries.names) == (count if count == ALIKE_NAMES_MAX else 0)
