"""Filters of type SQL92 through real Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pyspark_rocketpy.source.columns import source_schema
from rocketpy_broker import LocalBroker
from tests.spark.conftest import Collected, Topic

LARGE = {"filter": "amount > 5 AND region = 'EU'", "filterType": "SQL92"}
EARLIEST = {"startingOffsets": "earliest"}
SCHEMA = "body string, properties map<string,string>, tags string, queueId int"


def write(topic: Topic, *bodies: str, region: str = "EU", queue_id: int = 0) -> None:
    """Writes messages with their amount as body; odd ones have tag odd."""
    rows = [
        (body, {"amount": body, "region": region}, "odd" if int(body) % 2 else "even", queue_id)
        for body in bodies
    ]
    topic.write(topic.spark.createDataFrame(rows, SCHEMA).coalesce(1))


@pytest.fixture
def orders(topic: Topic) -> Topic:
    """Returns a topic with two queues of orders from two regions."""
    write(topic, "1", "9", "3", "7", "5")
    write(topic, "8", "6", region="US")
    write(topic, "2", "6", queue_id=1)
    return topic


def test_c04_a_batch_has_what_the_expression_matches(orders: Topic) -> None:
    assert orders.bodies(**LARGE) == ["6", "7", "9"]
    assert orders.bodies(filter="amount > 99", filterType="SQL92") == []
    assert orders.bodies(filter="region IS NULL", filterType="SQL92") == []
    # Smaller tasks and responses give the same rows.
    assert orders.bodies(fetchBytesMax=1024, maxRecordsPerPartition=2, **LARGE) == ["6", "7", "9"]
    where = orders.read(columns="queueId,queueOffset,body", **LARGE).collect()
    assert sorted((row.queueId, row.queueOffset) for row in where) == [(0, 1), (0, 3), (1, 1)]


@pytest.fixture
def switched_on(spark: SparkSession) -> Iterator[None]:
    """Turns on Spark's filter pushdown to Python sources."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.usefixtures("switched_on")
@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("tags = 'odd'", ["7", "9"]),
        ("tags IN ('even', 'none')", ["6"]),
        ("queueId = 1", ["6"]),
        ("queueOffset >= 3", ["7"]),
    ],
)
def test_c04_filters_that_are_pushed_down_go_along(
    orders: Topic, condition: str, found: list[str]
) -> None:
    rows = orders.read(pushDownFilters=True, **LARGE).where(condition).collect()
    assert sorted(row.body.decode() for row in rows) == found


def test_c04_a_stream_counts_every_offset_and_goes_on_where_it_ended(
    orders: Topic, collected: Collected
) -> None:
    limited = {**LARGE, **EARLIEST, "maxOffsetsPerTrigger": 4}
    query = collected.run(orders.stream(**limited))
    assert sorted(collected.bodies()) == ["6", "7", "9"]
    assert len(query.recentProgress) >= 9 // 4
    ended = str(query.recentProgress[-1]["sources"][0]["endOffset"]).replace("'", '"')
    assert '"0":7,"1":2' in ended.replace(" ", "")
    # Nothing matches, and the offsets advance all the same.
    write(orders, "1", "2", "3")
    query = collected.run(orders.stream(**limited))
    ended = str(query.recentProgress[-1]["sources"][0]["endOffset"]).replace("'", '"')
    assert '"0":10,"1":2' in ended.replace(" ", "")
    write(orders, "6", "4")
    collected.run(orders.stream(**limited))
    assert sorted(collected.bodies()) == ["6", "6", "7", "9"]


def test_c04_a_running_stream_gets_a_match_as_it_comes(orders: Topic, collected: Collected) -> None:
    query = collected.start(orders.stream(**LARGE, **EARLIEST), processingTime="0 seconds")
    try:
        query.processAllAvailable()
        write(orders, "1", "6")
        query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(collected.bodies()) == ["6", "6", "7", "9"]


def refusal(load: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as caught:
        load()
    return str(caught.value)


@pytest.mark.parametrize("reading", ["read", "stream"])
def test_c04_a_bad_expression_fails_at_load_and_its_place_is_shown(
    topic: Topic, reading: str
) -> None:
    load = getattr(topic, reading)
    text = refusal(lambda: load(filter="amount > 5 garbage", filterType="SQL92"))
    assert "ROCKETPY_OPTION: option filter is not an SQL92 expression: " in text
    assert "at character 12, after >>> in: amount > 5 >>>garbage" in text


def test_c04_a_bad_expression_fails_before_a_job_with_a_schema_of_the_user(topic: Topic) -> None:
    schema = StructType.fromJson(source_schema(("body",)).jsonValue())
    reader = topic.spark.read.format("rocketpy").schema(schema)
    options = topic.options(filter="amount >", filterType="SQL92")
    text = refusal(lambda: reader.options(**options).load().collect())
    assert "it ends where more is needed, at character 9" in text


def test_c04_without_a_broker_to_read_the_expression_load_says_so(
    new_topic: Callable[..., Topic],
) -> None:
    with LocalBroker() as broker:
        topic = new_topic(broker=broker)
    text = refusal(lambda: topic.read(connectTimeout="200ms", **LARGE))
    assert "ROCKETPY_CONNECTION" in text
