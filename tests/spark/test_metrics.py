"""Metrics of real queries: a scrape shows the messages sent, read and left unread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_rocketpy.metrics import QueryMetrics
from tests.spark.conftest import Topic
from tests.support.time_limits import WAIT_SECONDS_MAX

EARLIEST = {"startingOffsets": "earliest"}


class Watched:
    """A listener at the session, with its registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.listener = QueryMetrics(self.registry)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"rocketpy_{name}", labels)

    def comes_to(self, expected: float | None, name: str, **labels: str) -> bool:
        """True if a series gets a value in time; Spark delivers its events late."""
        ends = time.monotonic() + WAIT_SECONDS_MAX
        while self.value(name, **labels) != expected and time.monotonic() < ends:
            threading.Event().wait(0.02)
        return self.value(name, **labels) == expected


@pytest.fixture
def watched(spark: SparkSession) -> Iterator[Watched]:
    """Yields a listener that is removed from the session at the end."""
    metrics = Watched()
    spark.streams.addListener(metrics.listener)
    yield metrics
    spark.streams.removeListener(metrics.listener)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., StreamingQuery]]:
    """Yields a starter of queries that discard their rows; stops the running ones at the end."""
    started: list[StreamingQuery] = []

    def begin(frame: DataFrame, name: str, **trigger: str) -> StreamingQuery:
        writer = frame.writeStream.format("noop").queryName(name)
        writer = writer.option("checkpointLocation", str(tmp_path / name))
        started.append(writer.trigger(**trigger).start() if trigger else writer.start())
        return started[-1]

    yield begin
    for query in started:
        query.stop()


Start = Callable[..., StreamingQuery]


def test_lag_falls_batch_by_batch_and_rows_add_up(
    new_topic: Callable[..., Topic], watched: Watched, start: Start
) -> None:
    topic = new_topic(queues=1)
    topic.send(*map(str, range(120)))
    rows = topic.stream(**EARLIEST, maxOffsetsPerTrigger=60)
    # An hour between triggers: only the first batch runs.
    query = start(rows, "watched", processingTime="1 hour")
    assert watched.comes_to(60, "query_lag_messages", query="watched", topic=topic.name)
    assert watched.value("query_last_batch_id", query="watched") == 0
    assert watched.value("query_input_rows_total", query="watched") == 60
    assert watched.value("queries_active") == 1
    query.stop()
    assert watched.comes_to(None, "query_input_rows_total", query="watched")
    assert watched.value("query_lag_messages", query="watched", topic=topic.name) is None
    query = start(rows, "watched")
    query.processAllAvailable()
    assert watched.comes_to(0, "query_lag_messages", query="watched", topic=topic.name)
    assert watched.value("query_input_rows_total", query="watched") == 60
    assert watched.value("query_batch_duration_seconds_count", query="watched") == 1
    assert (watched.value("query_batch_duration_seconds_sum", query="watched") or 0) > 0
    assert (watched.value("query_processed_rows_per_second", query="watched") or 0) > 0
    topic.send("one more")
    query.processAllAvailable()
    assert watched.comes_to(61, "query_input_rows_total", query="watched")


def test_each_topic_of_each_query_has_its_lag(
    new_topic: Callable[..., Topic], watched: Watched, start: Start
) -> None:
    left, right = new_topic(queues=1), new_topic(queues=1)
    left.send(*"abcdef")
    right.send(*"ghijkl")
    both = left.stream(
        topic=None, topics=f"{left.name},{right.name}", maxOffsetsPerTrigger=6, **EARLIEST
    )
    start(both, "both", processingTime="1 hour")
    start(left.stream(**EARLIEST), "single")
    assert watched.comes_to(3, "query_lag_messages", query="both", topic=left.name)
    assert watched.comes_to(3, "query_lag_messages", query="both", topic=right.name)
    assert watched.value("query_input_rows_total", query="both") == 6
    assert watched.comes_to(0, "query_lag_messages", query="single", topic=left.name)
    assert watched.value("query_lag_messages", query="single", topic=right.name) is None


def test_a_query_that_fails_is_counted_by_its_error(
    topic: Topic, watched: Watched, start: Start
) -> None:
    topic.send("a")
    failing = topic.stream(**EARLIEST).selectExpr("raise_error('bad')")
    with pytest.raises(StreamingQueryException):
        start(failing, "failing").awaitTermination(WAIT_SECONDS_MAX)
    assert watched.comes_to(
        1, "query_failures_total", query="failing", error="USER_RAISED_EXCEPTION"
    )
    assert watched.value("query_input_rows_total", query="failing") is None
    other = topic.stream(
        failOnDataLoss=True, startingOffsets=f'{{"{topic.name}":{{"0":99,"1":0}}}}'
    )
    with pytest.raises(StreamingQueryException, match="ROCKETPY_"):
        start(other, "other").awaitTermination(WAIT_SECONDS_MAX)
    assert watched.comes_to(1, "query_failures_total", query="other", error="ROCKETPY_OFFSET")


def test_a_query_without_rocketpy_has_rows_and_no_lag(
    spark: SparkSession, watched: Watched, start: Start
) -> None:
    rows = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    query = start(rows, "rate")
    assert watched.comes_to(1, "queries_active")
    query.processAllAvailable()
    query.stop()
    assert watched.comes_to(0, "queries_active")
    assert watched.value("progress_refused_total") == 0
