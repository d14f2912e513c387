"""One Spark session and one broker for all tests; each test has topics of its own."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rocketpy_broker import LocalBroker
from tests.support.time_limits import WAIT_SECONDS_MAX

_numbers = itertools.count()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yields a `local[2]` session, found like a user's session, with no register call."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@dataclass
class Topic:
    """A topic of one test, with Spark reads and writes of it."""

    name: str
    spark: SparkSession
    broker: LocalBroker

    def options(self, **options: object) -> dict[str, str]:
        """Returns connector options for this topic; a value of None leaves one out."""
        merged = {"endpoints": self.broker.endpoint, "topic": self.name, **options}
        return {name: str(value) for name, value in merged.items() if value is not None}

    def write(self, frame: DataFrame, **options: object) -> None:
        """Writes a frame as a batch."""
        writer = frame.write.format("rocketpy").options(**self.options(**options))
        writer.mode("append").save()

    def send(self, *bodies: str, queue_id: int = 0) -> None:
        """Writes some messages to one queue."""
        rows = [(body, queue_id) for body in bodies]
        self.write(self.spark.createDataFrame(rows, "body string, queueId int").coalesce(1))

    def read(self, **options: object) -> DataFrame:
        """Reads as a batch."""
        return self.spark.read.format("rocketpy").options(**self.options(**options)).load()

    def bodies(self, **options: object) -> list[str]:
        """Returns all bodies, sorted."""
        return sorted(row.body.decode() for row in self.read(**options).select("body").collect())

    def stream(self, **options: object) -> DataFrame:
        """Reads as a stream."""
        return self.spark.readStream.format("rocketpy").options(**self.options(**options)).load()


@pytest.fixture
def new_topic(spark: SparkSession, rocketpy_broker: LocalBroker) -> Callable[..., Topic]:
    """Returns a function that creates topics with unique names."""

    def make(queues: int = 2, broker: LocalBroker = rocketpy_broker) -> Topic:
        name = f"topic-{next(_numbers)}"
        broker.create_topic(name, queues=queues)
        return Topic(name, spark, broker)

    return make


@pytest.fixture
def topic(new_topic: Callable[..., Topic]) -> Topic:
    """Returns a topic with two queues."""
    return new_topic()


class Collected:
    """A restartable streaming query that collects its rows batch by batch."""

    def __init__(self, folder: Path) -> None:
        self._checkpoint = str(folder / f"checkpoint-{next(_numbers)}")
        self.batches: dict[int, list[Row]] = {}
        # Called with each collected batch's number, before the next batch is planned.
        self.listeners: list[Callable[[int], object]] = []

    def _collect(self, frame: DataFrame, batch_id: int) -> None:
        self.batches[batch_id] = frame.collect()
        for listener in self.listeners:
            listener(batch_id)

    def start(self, frame: DataFrame, **trigger: Any) -> StreamingQuery:
        """Starts the query, from the checkpoint if there is one."""
        writer = frame.writeStream.foreachBatch(self._collect)
        return writer.option("checkpointLocation", self._checkpoint).trigger(**trigger).start()

    def run(self, frame: DataFrame, seconds_max: int = WAIT_SECONDS_MAX) -> StreamingQuery:
        """Reads all available rows, then stops the query."""
        query = self.start(frame, availableNow=True)
        try:
            assert query.awaitTermination(seconds_max)
        finally:
            query.stop()  # Else a slow query runs on during the next tests.
        return query

    def bodies(self) -> list[str]:
        """Returns the bodies of all batches, in the order of the batches."""
        return [row.body.decode() for batch in sorted(self.batches) for row in self.batches[batch]]


@pytest.fixture
def collected(tmp_path: Path) -> Collected:
    """Returns a query with a checkpoint of its own."""
    return Collected(tmp_path)
