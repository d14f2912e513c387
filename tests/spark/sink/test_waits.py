"""The sink's delayed rows through real Spark: invisible until due, then visible exactly once."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tests.spark.conftest import Topic
from tests.support.time_limits import WAIT_SECONDS_MAX

DUE_SECONDS_MAX = WAIT_SECONDS_MAX


def until_there(topic: Topic, count: int) -> list[str]:
    deadline = time.monotonic() + DUE_SECONDS_MAX
    while len(bodies := sorted(topic.bodies())) < count:
        assert time.monotonic() < deadline, bodies
        time.sleep(0.2)
    return bodies


def kinds(at: datetime) -> list[tuple[str, datetime | None]]:
    """Returns rows that are due now, in the past, and later."""
    return [("now", None), ("past", at - timedelta(days=1)), ("later", at)]


def delayed(topic: Topic) -> DataFrame:
    """Returns rows of three kinds: now, in a second, in two hours."""
    return topic.spark.range(3_000).selectExpr(
        "cast(id as string) as body",
        "case id % 3 when 0 then null when 1 then 1 else 18 end as delayLevel",
    )


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_d02_rows_wait_by_their_level_and_come_once(topic: Topic, delivery: str) -> None:
    topic.write(delayed(topic), delivery=delivery)
    found = until_there(topic, 2_000)
    assert sorted(found) == sorted(str(number) for number in range(3_000) if number % 3 < 2)
    rows = topic.read(columns="body,bornTimestamp,storeTimestamp").where(
        "cast(body as string) % 3 = 1"
    )
    late = rows.where("storeTimestamp - bornTimestamp >= interval 1 second")
    assert late.count() == rows.count() == 1_000


def test_d02_a_copied_row_does_not_wait_again(topic: Topic) -> None:
    topic.write(delayed(topic).where("delayLevel = 1").limit(5))
    until_there(topic, 5)
    topic.write(topic.read(columns="body,properties"))
    assert len(topic.bodies()) == 10


def test_d02_a_failed_batch_leaves_nothing_that_waits(topic: Topic) -> None:
    rows = [("a", 1), ("b", -1)]
    frame = topic.spark.createDataFrame(rows, "body string, delayLevel int").coalesce(1)
    with pytest.raises(PySparkException, match="delayLevel is -1 in row 1"):
        topic.write(frame)
    time.sleep(1.5)
    assert topic.bodies() == []


def test_d02_a_time_too_far_ahead_is_refused_with_the_brokers_words(topic: Topic) -> None:
    at = datetime.now(timezone.utc) + timedelta(days=4)
    frame = topic.spark.createDataFrame([("a", at)], "body string, deliverAt timestamp")
    with pytest.raises(PySparkException, match="accepted is up to 3 days from now"):
        topic.write(frame)
    assert topic.bodies() == []


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_d02_rows_come_at_their_time_and_not_before(topic: Topic, delivery: str) -> None:
    at = datetime.now(timezone.utc) + timedelta(seconds=3)
    rows = [(f"{kind} {number}", time_) for number in range(50) for kind, time_ in kinds(at)]
    frame = topic.spark.createDataFrame(rows, "body string, deliverAt timestamp")
    topic.write(frame, delivery=delivery)
    until_there(topic, 150)
    rows_there = topic.read(columns="body,storeTimestamp").collect()
    assert len(rows_there) == len({row.body for row in rows_there}) == 150
    later = [row for row in rows_there if row.body.startswith(b"later")]
    assert all(row.storeTimestamp.astimezone(timezone.utc) >= at for row in later)
