"""Rows written with the properties of rows that were read: new messages."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException

from rocketpy_proto.record.properties import NOT_COPIED_NAMES
from tests.spark.conftest import Topic
from tests.support.broker.shell import run


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_r03_a_dead_letter_of_a_copied_row_is_resent_to_the_topic_of_the_copy(
    new_topic: Callable[..., Topic], delivery: str
) -> None:
    first, second = new_topic(queues=1), new_topic(queues=1)
    broker, group = first.broker, f"group-{first.name}-{delivery}"
    broker.send(first.name, "a", tags="T", keys=["k", "l"], properties={"shop": "3"})
    broker.send_back(broker.messages(first.name)[0], group, delay_level=-1)
    letters = first.read(topic=f"%DLQ%{group}", columns="*")
    second.write(letters.select("body", "tags", "keys", "properties"), delivery=delivery)
    (copied,) = broker.messages(second.name)
    assert (copied.tags, copied.keys, copied.properties) == ("T", ("k", "l"), {"shop": "3"})
    broker.send_back(copied, f"again-{group}", delay_level=-1)
    shown = run(broker, "dlq", "resend", f"again-{group}", "--json")
    assert json.loads(shown.stdout)["topic"] == second.name
    assert [len(broker.messages(topic.name)) for topic in (first, second)] == [1, 2]


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_each_property_of_brokers_is_left_out(topic: Topic, delivery: str) -> None:
    names = sorted(NOT_COPIED_NAMES)
    rows = [(name, {name: "3", "shop": name}) for name in names]
    rows.append(("all", {**dict.fromkeys(names, "3"), "shop": "all"}))
    frame = topic.spark.createDataFrame(rows, "body string, properties map<string,string>")
    topic.write(frame, delivery=delivery)
    found = topic.broker.messages(topic.name)
    assert sorted(each.properties["shop"] for each in found) == sorted([*names, "all"])
    assert all(each.properties.keys() == {"shop"} for each in found)


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("array('order 17', 'b') as keys", "column keys .* row 1 .*'order 17' has a blank"),
        ("array('b', ' ') as keys", "column keys .* row 1 .*' ' has a blank"),
        ("timestamp_micros(9223372036854775807) as deliverAt", "deliverAt is 92233.* in row 1 of"),
        ("timestamp_micros(9223372036854775000) as deliverAt", "deliverAt is 92233.* in row 1 of"),
        ("-9223372036854775808L as delayLevel", "delayLevel is -9223372036854775808 in row 1 of"),
        ("cast(-128 as tinyint) as delayLevel", "delayLevel is -128 in row 1 of"),
        ("9223372036854775807L as queueId", "queueId is 9223372036854775807 in row 1 of"),
        ("-9223372036854775808L as queueId", "queueId is -9223372036854775808 in row 1 of"),
        ("cast(127 as tinyint) as queueId", "queueId is 127 in row 1 of"),
        ("cast(x'61FF' as string) as topic", "column topic is not valid UTF-8 in row 1 of"),
        ("cast(x'61FF' as string) as tags", "column tags is not valid UTF-8 in row 1 of"),
        ("cast(x'61FF' as string) as keys", "column keys is not valid UTF-8 in row 1 of"),
        ("array('a', cast(x'FF' as string)) as keys", "column keys is not valid UTF-8 in row 1"),
        ("cast(x'61FF' as string) as messageGroup", "messageGroup is not valid UTF-8 in row 1 of"),
        ("map('a', cast(x'FF' as string)) as properties", "properties is not valid UTF-8 in row 1"),
        ("map(cast(x'FF' as string), 'a') as properties", "properties is not valid UTF-8 in row 1"),
    ],
)
def test_a_value_that_cannot_be_sent_is_named_by_column_and_row(
    topic: Topic, delivery: str, expression: str, words: str
) -> None:
    value, _, name = expression.rpartition(" as ")
    frame = topic.spark.range(0, 3, 1, 1).selectExpr(
        "cast(id as string) as body", f"case when id = 1 then {value} end as {name}"
    )
    with pytest.raises(PySparkException, match=words) as caught:
        topic.write(frame, delivery=delivery)
    assert "ROCKETPY_COLUMN" in str(caught.value)
    assert topic.bodies() == []


def test_a_body_of_any_bytes_is_stored_as_it_is(topic: Topic) -> None:
    topic.write(topic.spark.sql("select cast(x'61FF00' as string) as body"))
    assert [bytes(row.body) for row in topic.read().collect()] == [b"a\xff\x00"]


def test_the_smallest_time_is_now_and_the_largest_level_the_highest(topic: Topic) -> None:
    frame = topic.spark.sql(
        "select 'now' as body, timestamp_micros(-9223372036854775808) as deliverAt, "
        "cast(null as bigint) as delayLevel "
        "union all select 'later', null, 9223372036854775807L"
    )
    topic.write(frame)
    assert topic.bodies() == ["now"]
    [row] = topic.read(topic="SCHEDULE_TOPIC_XXXX").where("body = 'later'").collect()
    assert row.queueId == 17


def test_keys_come_back_as_they_were_written(topic: Topic) -> None:
    keys = ["array('order-17', 'b')", "array('', 'b', null)", "array('tab\\there')", "array()"]
    frames = " union all ".join(
        f"select '{number}' as body, {key} as keys" for number, key in enumerate(keys)
    )
    topic.write(topic.spark.sql(frames))
    found = {row.body.decode(): row["keys"] for row in topic.read().collect()}
    assert found == {"0": ["order-17", "b"], "1": ["b"], "2": ["tab\there"], "3": None}
