"""An exactly-once batch of ten million rows over a thousand queues."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from rocketpy_broker import LocalBroker
from tests.spark.conftest import Topic

ROWS = 10_000_000
QUEUES = 1_000
TASKS = 20
# Sums of a column's values: equal only for equal sets of numbers, with near certainty.
SUMS = "count({0}), min({0}), max({0}), sum({0}), sum({0} * {0})"


def sums(values: range) -> tuple[int, ...]:
    squares = sum(value * value for value in values)
    return len(values), values[0], values[-1], sum(values), squares


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_s10_ten_million_rows_over_a_thousand_queues_show_once_each(spark: SparkSession) -> None:
    numbers = spark.range(0, ROWS, 1, TASKS)
    with LocalBroker() as broker:
        broker.create_topic("T", queues=QUEUES)
        topic = Topic("T", spark, broker)
        topic.write(
            numbers.selectExpr("cast(id as string) as body", f"int(id % {QUEUES}) as queueId")
        )
        topic.read(columns="body,queueId,queueOffset").createOrReplaceTempView("written")
        found = spark.sql(
            f"select queueId, {SUMS.format('queueOffset')}, {SUMS.format('number')} from "
            "(select *, cast(cast(body as string) as long) as number from written) group by queueId"
        ).collect()
    offsets = sums(range(ROWS // QUEUES))
    assert sorted(tuple(row) for row in found) == [
        (queue, *offsets, *sums(range(queue, ROWS, QUEUES))) for queue in range(QUEUES)
    ]
