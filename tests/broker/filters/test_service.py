"""Filters of requests, applied to blocks of records."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pytest

from rocketpy_broker.errors import SubscriptionParseError
from rocketpy_broker.services.filters import service
from rocketpy_broker.services.filters.service import FilterService, FilterText, Sql92Filter
from rocketpy_proto.record import RecordBlock, java_hash
from tests.support.blocks import wire_block


def block_with(properties: Sequence[bytes]) -> RecordBlock:
    """Returns a block of records with these properties strings."""
    records = []
    for text in properties:
        empty = wire_block("T", [b"body"]).records
        record = bytearray(empty[:-2] + struct.pack(">h", len(text)) + text)
        record[:4] = struct.pack(">i", len(record))
        records.append(bytes(record))
    sizes = np.array([len(record) for record in records], np.int32)
    return RecordBlock.parse(b"".join(records), sizes)


def sql92(expression: str, filters: FilterService | None = None) -> Sql92Filter:
    found = (filters or FilterService()).filter_of(FilterText("SQL92", expression)).sql92
    assert found is not None
    return found


BLOCK = block_with(
    [
        b"a\x011\x02b\x01x\x02",
        b"",
        b"b\x01y\x02a\x012\x02",
        b"a\x011\x02a\x012\x02",
        b"a\x012\x02a\x01\x02",
        b"ab\x012\x02A\x012\x02\xff\x012\x02",
        b"a\x01\xff2",
        b"long_name_of_14\x01v\x02TAGS\x01v\x02TRAN_MSG\x01v\x02",
    ]
)


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("a = 2", [2, 3, 4]),
        ("a IS NOT NULL", [0, 2, 3, 4, 6]),
        ("a = '\ufffd2'", [6]),
        ("b = 'y' OR ab = 2 OR A = 2", [2, 5]),
        ("long_name_of_14 = 'v' AND TAGS = 'v' AND TRAN_MSG = 'v'", [7]),
        ("unknown = 1", []),
        ("TRUE", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("FALSE", []),
        ("b < 1 OR TRUE", [1, 3, 4, 5, 6, 7]),
    ],
)
def test_c04_an_expression_sees_the_properties_of_each_record(
    expression: str, found: list[int]
) -> None:
    assert np.flatnonzero(sql92(expression).matches(BLOCK)).tolist() == found


def test_c04_an_expression_is_read_once_and_the_last_ones_are_kept() -> None:
    filters = FilterService()
    texts = [f"a = {number}" for number in range(service.KEPT_MAX)]
    first, second, *_ = [sql92(text, filters).expression for text in texts]
    assert sql92(texts[0], filters).expression is first
    sql92("b = 1", filters)
    assert sql92(texts[0], filters).expression is first
    assert sql92(texts[1], filters).expression is not second


def test_c04_errors_are_kept_but_no_long_texts() -> None:
    filters = FilterService()
    remarks = set()
    for text in ("a =", "a =", "x" * 5_000):
        with pytest.raises(SubscriptionParseError) as caught:
            sql92(text, filters)
        remarks.add(caught.value.remark)
    assert len(remarks) == 2
    assert list(filters._kept) == ["a ="]


def test_c04_the_more_an_expression_does_the_fewer_records_it_takes_at_once() -> None:
    short, long = sql92("a = 1"), sql92(" OR ".join(["a = 1"] * 64))
    assert short.records_max > 1_000
    assert short.bytes_max > 1 << 20
    assert long.records_max < short.records_max // 20
    assert long.bytes_max < short.bytes_max // 20
    assert min(long.records_max, long.bytes_max) >= 1


def test_c03_tags_become_their_codes() -> None:
    def codes(text: FilterText) -> list[int] | None:
        found = FilterService().filter_of(text).tags_codes
        return None if found is None else found.tolist()

    assert codes(FilterText()) is None
    assert codes(FilterText("TAG", "*")) is None
    assert codes(FilterText(tags_codes=[7])) == [7]
    both = sorted([java_hash("A"), java_hash("B c")])
    assert codes(FilterText("", " A || B c|| A ||")) == both
