"""Index keys of a block: equal to the keys of its single records, in the order of the index."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rocketpy_proto.record import Record, RecordBlock, decode_record, encode_record, java_hash
from rocketpy_proto.record.block.record_block import TAGS_ROWS
from rocketpy_proto.record.index_keys import (
    FEW_RECORDS,
    are_tags,
    index_hash,
    index_keys,
    tag_key,
    tags_codes_and_index_keys,
)
from rocketpy_proto.record.java_hash import WINDOW_BYTES_MAX, java_hash_ranges
from tests.unit.record.strategies import TEXTS, block_of
from tests.unit.record.test_properties import STRINGS, record_with

# Blanks, names and lengths combined: empty words, long words, letters of one to four bytes.
WORDS = st.one_of(
    TEXTS,
    st.sampled_from(["", " ", "k", "ü", "你好", "😀", "x" * WINDOW_BYTES_MAX, "y" * 65, "z" * 200]),
)
VALUES = st.lists(WORDS, max_size=4).map(" ".join)
KEYED = st.fixed_dictionaries(
    {}, optional={"TAGS": WORDS, "KEYS": VALUES, "UNIQ_KEY": WORDS, "a b": VALUES}
)
ALL_KEYS = {"UNIQ_KEY": "u", "KEYS": "k l", "TAGS": "t"}
SYS_FLAGS = st.sampled_from([0, 0x4, 0x8, 0xC])
RECORDS = st.builds(
    Record,
    topic=st.sampled_from(["T", "Überschrift", "%RETRY%g", "😀"]),
    queue_id=st.just(0),
    body=st.just(b"body"),
    properties=KEYED,
    sys_flag=SYS_FLAGS,
)


def keys_of(record: Record) -> list[int]:
    """Returns the hashes of one record (docs/design/storage.md section 7.4).

    From RocketMQ 5.4 on, the tag's hash comes last; the tag has the prefix `T#`.
    """
    if record.sys_flag & 0xC == 0xC:
        return []
    words = [record.properties.get("UNIQ_KEY", ""), *record.properties.get("KEYS", "").split(" ")]
    hashes = [abs(java_hash(f"{record.topic}#{word}")) for word in words if word]
    hashes += tag_of(record)
    return [0 if value == 1 << 31 else value for value in hashes]


def tag_of(record: Record) -> list[int]:
    """Returns the hash that finds a record by its tag, as Java computes it."""
    tag = record.properties.get("TAGS", "")
    return [abs(java_hash(f"{record.topic}#T#{tag}"))] if tag else []


def expected_of(records: list[Record]) -> list[tuple[int, int]]:
    return [(row, key) for row, record in enumerate(records) for key in keys_of(record)]


def found_in(block: RecordBlock, topics: str | pa.Array) -> list[tuple[int, int]]:
    keys = index_keys(block, topics)
    assert keys.hash.dtype == np.int32
    assert keys.row.dtype == np.int64
    assert len(keys) == len(keys.hash)
    return list(zip(keys.row.tolist(), keys.hash.tolist(), strict=True))


@given(st.lists(RECORDS, max_size=12))
@settings(max_examples=300)
def test_s05_keys_of_a_block_of_many_topics_are_those_of_its_records(records: list[Record]) -> None:
    block = block_of(records)
    topics = pa.array([record.topic for record in records], pa.string())
    assert found_in(block, topics) == expected_of(records)
    assert found_in(block, topics.dictionary_encode()) == expected_of(records)


@given(st.lists(RECORDS, max_size=12))
@example([Record("T", 0, b"", {"TAGS": "T", "KEYS": "T#T"})])
@example([Record("T", 0, b"", {"TAGS": "T"}, sys_flag=0xC), Record("T", 0, b"", {"KEYS": "k"})])
def test_s05_which_keys_are_tags_is_known(records: list[Record]) -> None:
    topics = pa.array([record.topic for record in records], pa.string())
    block = block_of(records)
    keys = index_keys(block, topics)
    found = list(zip(keys.row.tolist(), keys.hash.tolist(), are_tags(block, keys), strict=True))
    expected = []
    for row, record in enumerate(records):
        hashes = keys_of(record)
        count = len(hashes) - len(tag_of(record)) if hashes else 0
        expected += [(row, value, place >= count) for place, value in enumerate(hashes)]
    assert found == expected


# Records are handled one by one, or in arrays, or in arrays of two parts.
@given(
    st.lists(RECORDS, max_size=12),
    st.sampled_from([(0, 1), (0, FEW_RECORDS + 1), (TAGS_ROWS - 2, 1)]),
)
@example([Record("T", 0, b"", ALL_KEYS, sys_flag=flag) for flag in (0, 0xC, 4)], (0, 1))
def test_s05_keys_and_tags_codes_in_one_go_are_both_however_it_is_parted(
    records: list[Record], before_and_times: tuple[int, int]
) -> None:
    before, times = before_and_times
    own = [Record("T", 0, b"", one.properties, sys_flag=one.sys_flag) for one in records]
    plain = encode_record(Record("T", 0, b""))
    block = RecordBlock.parse(plain * before + b"".join(map(encode_record, own)) * times)
    expected = [(before + row, value) for row, value in expected_of(own * times)]
    both = tags_codes_and_index_keys(block, "T")
    assert np.array_equal(found_in(block, "T"), expected)
    codes = [java_hash(record.properties.get("TAGS", "")) for record in own]
    assert np.array_equal(both.tags_codes, [0] * before + codes * times)
    keys = zip(both.index_keys.row.tolist(), both.index_keys.hash.tolist(), strict=True)
    assert np.array_equal(list(keys), expected)


@given(st.lists(STRINGS, max_size=6))
@example([b"KEYS\x01a\x02KEYS\x01b c\x02UNIQ_KEY\x01u\x02UNIQ_KEY\x01v\x02"])
@example([b"KEYS\x01a\xff b\x02", b"", b"KEYS\x01 ", b"KEYS\x01  x  y\x02"])
@example([b"a b\x01 \x02KEYS\x01one two\x02c d\x01 "])
def test_s05_any_properties_strings_give_the_keys_that_the_single_form_reads(
    strings: list[bytes],
) -> None:
    encoded = [record_with(string) for string in strings]
    records = [decode_record(record).record for record in encoded]
    assert found_in(RecordBlock.parse(b"".join(encoded)), "T") == expected_of(records)


def test_s05_a_hash_is_the_absolute_value_of_javas_and_0_for_the_smallest() -> None:
    assert java_hash("polygenelubricants") == -(1 << 31)
    # "#" ends the topic, so the index finds a key if the whole text has the smallest hash.
    key = text_with_hash("#", -(1 << 31) & 0xFFFFFFFF)
    assert java_hash("#" + key) == -(1 << 31)
    assert index_hash("", key) == 0
    block = block_of([Record("", 0, b"", {"UNIQ_KEY": key, "KEYS": "TagA"})])
    assert found_in(block, "") == [(0, 0), (0, index_hash("", "TagA"))]
    assert index_hash("TopicA", "K1") == abs(java_hash("TopicA#K1"))
    assert index_hash("TopicA", tag_key("TagA")) == abs(java_hash("TopicA#T#TagA"))


def text_with_hash(prefix: str, wanted: int) -> str:
    """Returns a text that has this hash after `prefix`: digits to the base of 31, from "0" on."""
    length = 8
    start = 0
    for letter in prefix + "0" * length:
        start = (31 * start + ord(letter)) & 0xFFFFFFFF
    rest = (wanted - start) & 0xFFFFFFFF
    digits = [rest // 31**power % 31 for power in reversed(range(length))]
    return "".join(chr(ord("0") + digit) for digit in digits)


@given(st.lists(TEXTS, max_size=8), st.lists(TEXTS, min_size=8, max_size=8))
def test_hashing_goes_on_from_what_stands_before(texts: list[str], before: list[str]) -> None:
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([len(one) for one in encoded], dtype=np.int64)
    begins = ends - np.array([len(one) for one in encoded], np.int64)
    seeds = np.array([java_hash(one) for one in before[: len(texts)]], np.int32).view(np.uint32)
    hashes = java_hash_ranges(np.frombuffer(b"".join(encoded), np.uint8), begins, ends, seeds)
    expected = [java_hash(first + text) for first, text in zip(before, texts, strict=False)]
    assert hashes.tolist() == expected


def test_a_record_without_properties_has_no_key() -> None:
    assert found_in(RecordBlock.parse(encode_record(Record("T", 0, b"body"))), "T") == []
    assert found_in(RecordBlock.parse(b""), "T") == []
