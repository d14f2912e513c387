"""The sink on a broker with a small log: its blocks fit the segments, delayed ones too."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rocketpy_broker import LocalBroker
from tests.spark.conftest import Topic
from tests.support.time_limits import WAIT_SECONDS_MAX

SEGMENT = 1 << 20
# Half of a message's record is its topic; a delayed record has the topic twice.
LONG = "t" * 127


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_the_sink_cuts_blocks_to_the_segments_of_the_log(
    spark: SparkSession, tmp_path: Path, delivery: str
) -> None:
    with LocalBroker(commit_log_segment_bytes=SEGMENT) as broker:
        source, target = Topic("source", spark, broker), Topic(LONG, spark, broker)
        broker.create_topic("source", queues=2)
        broker.create_topic(LONG, queues=1)
        source.write(spark.range(20).selectExpr("repeat('x', 100000) as body"))
        assert len(source.bodies()) == 20
        source.write(spark.range(0, 20_000, 1, 1).selectExpr("'' as body"))
        frame = source.stream(startingOffsets="earliest", columns="body")
        frame = frame.selectExpr("body", "if(length(body) = 0, 1, null) as delayLevel")
        writer = frame.writeStream.format("rocketpy")
        writer = writer.options(**target.options(delivery=delivery))
        writer = writer.option("checkpointLocation", str(tmp_path))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_SECONDS_MAX)
        while len(target.bodies()) < 20_020:
            pass
        assert len(target.bodies()) == 20_020


def test_a_row_that_fits_no_segment_is_named(spark: SparkSession) -> None:
    with LocalBroker(commit_log_segment_bytes=SEGMENT) as broker:
        topic = Topic("T", spark, broker)
        broker.create_topic("T")
        rows = spark.range(3).coalesce(1).selectExpr(f"repeat('x', {SEGMENT // 2} * id) as body")
        with pytest.raises(PySparkException, match=r"row 2 .* send smaller messages"):
            topic.write(rows)
        assert topic.bodies() == []
