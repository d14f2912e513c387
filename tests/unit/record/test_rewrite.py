"""Records with another topic and other properties: the rest stays unchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy_proto.record import (
    Host,
    Record,
    RecordBlock,
    UnencodableRecordError,
    decode_record,
    encode_record,
)
from rocketpy_proto.record.rewrite import (
    properties_strings,
    rewritten,
    with_property,
    without_properties,
)

NAMES = ["A", "DELAY", "REAL_TOPIC", "DELAYED", "XDELAY", "é"]
VALUES = st.text(
    st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1, max_size=4
)
PROPERTIES = st.dictionaries(st.sampled_from(NAMES), VALUES)
V6 = Host.parse("[2001:db8::1]:10911")


def block_of(
    properties: Sequence[Mapping[str, str]], *, host: Host | None = None, topic: str = "T"
) -> RecordBlock:
    records = [
        Record(topic, number, b"body %d" % number, entries, reconsume_times=number)
        for number, entries in enumerate(properties)
    ]
    if host is not None:
        records = [replace(record, born_host=host, store_host=host) for record in records]
    return RecordBlock.parse(bytearray(b"".join(encode_record(record) for record in records)))


def decoded(block: RecordBlock) -> list[Record]:
    data = block.data.tobytes()
    return [decode_record(data, int(place)).record for place in block.positions]


@given(st.lists(PROPERTIES, min_size=1, max_size=5), st.sets(st.sampled_from(NAMES), min_size=1))
def test_properties_are_taken_out_by_name(
    properties: list[dict[str, str]], names: set[str]
) -> None:
    block = block_of(properties)
    left = rewritten(block, "T", without_properties(properties_strings(block), names))
    assert [record.properties for record in decoded(left)] == [
        {name: value for name, value in entries.items() if name not in names}
        for entries in properties
    ]


@given(
    st.lists(st.tuples(PROPERTIES, st.none() | VALUES), min_size=1, max_size=5),
    st.sampled_from(NAMES),
)
def test_a_property_is_put_in_place_of_its_old_value(
    rows: list[tuple[dict[str, str], str | None]], name: str
) -> None:
    block = block_of([entries for entries, _ in rows])
    values = pa.array([value for _, value in rows], pa.string())
    changed = rewritten(block, "T", with_property(properties_strings(block), name, values))
    for record, (entries, value) in zip(decoded(changed), rows, strict=True):
        wanted = {key: old for key, old in entries.items() if key != name}
        assert record.properties == wanted | ({} if value is None else {name: value})


@pytest.mark.parametrize("host", [None, V6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("topic", ["Short", "%RETRY%" + "g" * 200])
def test_topic_and_fields_change_and_all_else_stays(host: Host | None, topic: str) -> None:
    block = block_of([{"A": "1"}, {}, {"B": "2"}], host=host)
    before = block.data.tobytes()
    times = np.array([7, 8, 9])
    changed = rewritten(block, topic, properties_strings(block), {"reconsume_times": times})
    changed.verify_body_crc()
    assert block.data.tobytes() == before
    for number, (old, new) in enumerate(zip(decoded(block), decoded(changed), strict=True)):
        assert (new.topic, new.reconsume_times) == (topic, 7 + number)
        assert (new.body, new.properties, new.born_host) == (
            old.body,
            old.properties,
            old.born_host,
        )


def test_records_without_a_last_separator_get_one_before_more_is_added() -> None:
    record = encode_record(Record("T", 0, b"x", {"A": "1", "B": "2"}))
    cut = bytearray(record[:-1])
    cut[:4] = (len(cut)).to_bytes(4, "big")
    block = RecordBlock.parse(cut_properties(cut))
    changed = rewritten(block, "T", with_property(properties_strings(block), "C", "3"))
    assert decoded(changed)[0].properties == {"A": "1", "B": "2", "C": "3"}


def cut_properties(record: bytearray) -> bytearray:
    """Returns the record without its last properties byte, and with the reduced length field."""
    at = record.index(b"A\x01") - 2
    record[at : at + 2] = (len(record) - at - 2).to_bytes(2, "big")
    return record


def test_properties_that_grow_too_long_are_refused() -> None:
    block = block_of([{"A": "a" * 32_000}])
    strings = with_property(properties_strings(block), "B", "b" * 1_000)
    with pytest.raises(UnencodableRecordError, match="properties"):
        rewritten(block, "T", strings)


def test_some_records_of_a_block_are_rewritten() -> None:
    block = block_of([{"A": "1"}, {"A": "2"}, {"A": "3"}]).filter(np.array([True, False, True]))
    changed = rewritten(block, "Other", properties_strings(block))
    assert [record.properties["A"] for record in decoded(changed)] == ["1", "3"]
