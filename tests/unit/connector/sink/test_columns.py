"""The sink's columns: accepted names and types, and the errors for the rest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_rocketpy.errors import ColumnError
from pyspark_rocketpy.sink.columns import SinkColumns
from rocketpy_proto.record.properties import NOT_COPIED_NAMES

STRING = StringType()


def check(**columns: DataType) -> tuple[str, ...]:
    return SinkColumns.check(
        StructType([StructField(name, kind) for name, kind in columns.items()])
    ).names


def test_names_may_differ_in_case() -> None:
    names = check(BODY=STRING, MessageGroup=STRING, queueid=IntegerType())
    assert names == ("body", "messageGroup", "queueId")


def test_two_columns_that_differ_in_case_only_are_refused() -> None:
    with pytest.raises(ColumnError, match="'body' and 'Body' have the same name"):
        check(body=STRING, Body=STRING)


@pytest.mark.parametrize("kind", [ByteType(), ShortType(), IntegerType(), LongType()])
def test_p06_a_queue_id_may_be_any_whole_number(kind: DataType) -> None:
    assert check(body=STRING, queueId=kind) == ("body", "queueId")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("body", BinaryType()),
        ("body", StringType("UTF8_LCASE")),
        ("keys", ArrayType(STRING, containsNull=False)),
        ("keys", STRING),
        ("properties", MapType(STRING, STRING, valueContainsNull=False)),
    ],
)
def test_types_that_are_accepted(name: str, kind: DataType) -> None:
    assert name in check(**{"body": STRING, name: kind})


@pytest.mark.parametrize(
    ("name", "kind", "way_out"),
    [
        ("body", LongType(), "cast(body as string)"),
        ("body", DoubleType(), "cast(body as string)"),
        ("body", BooleanType(), "cast(body as string)"),
        ("body", DateType(), "cast(body as string)"),
        ("body", TimestampType(), "cast(body as string)"),
        ("body", StructType([]), "to_json(body)"),
        ("body", ArrayType(STRING), "to_json(body)"),
        ("keys", LongType(), "cast(keys as string)"),
        ("keys", ArrayType(LongType()), "cast(keys as array<string>)"),
        ("properties", MapType(STRING, LongType()), "cast(properties as map<string,string>)"),
        ("queueId", STRING, "cast(queueId as bigint)"),
        ("tags", LongType(), "cast(tags as string)"),
    ],
)
def test_other_types_are_named_with_the_way_out(name: str, kind: DataType, way_out: str) -> None:
    with pytest.raises(ColumnError) as caught:
        check(**{"body": STRING, name: kind})
    for words in (f"column {name!r}", kind.simpleString(), way_out):
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "ours"),
    [("value", "body"), ("key", "keys"), ("headers", "properties"), ("partition", "queueId")],
)
def test_columns_of_kafkas_sink_are_named_with_ours(name: str, ours: str) -> None:
    with pytest.raises(ColumnError, match=f"unknown column '{name}'; use {ours}$"):
        check(**{name: STRING})


@pytest.mark.parametrize("name", ["msgId", "offsetMsgId"])
def test_other_columns_are_unknown(name: str) -> None:
    with pytest.raises(ColumnError, match=f"unknown column '{name}'"):
        check(body=STRING, **{name: LongType()})


def test_a_broker_s_name_without_a_queue_says_nothing() -> None:
    assert check(body=STRING, queueId=IntegerType(), brokerName=STRING)[-1] == "brokerName"
    with pytest.raises(ColumnError, match="brokerName needs column queueId, which is missing"):
        check(body=STRING, brokerName=STRING)


def test_the_page_names_each_property_that_copies_leave_out() -> None:
    text = (Path(__file__).parents[4] / "docs" / "sink.md").read_text(encoding="utf-8")
    section = text.partition("## Copies of messages")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([^`]+)`", section))
    assert "TIMER_…" in named
    others = {name for name in NOT_COPIED_NAMES if not name.startswith("TIMER_")}
    assert others <= named
