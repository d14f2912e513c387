"""Calls from Spark: an error is our sentence alone, and imports are no garbage."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from pyspark_rocketpy.spark_calls import called_by_spark
from rocketpy_broker import LocalBroker
from tests.spark.conftest import Collected, Topic
from tests.support.time_limits import WAIT_SECONDS_MAX

EARLIEST = {"startingOffsets": "earliest"}


def shown(work: Callable[[], object]) -> str:
    """Returns the text of the error that `work` ends in; asserts that it has no traceback."""
    with pytest.raises(PySparkException) as caught:
        work()
    text = str(caught.value)
    assert "Traceback" not in text
    assert "File " not in text
    return text


def test_an_error_at_load_is_one_sentence(topic: Topic) -> None:
    text = shown(lambda: topic.read(subscribe="T"))
    assert text.startswith("[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source")
    wanted = "ROCKETPY_OPTION: unknown option subscribe; use topic, or topics for several\n"
    assert wanted in text
    assert len(text.splitlines()) == 2, "ours, and Spark's SQLSTATE"


def test_an_error_of_a_task_is_one_sentence(topic: Topic) -> None:
    rows = topic.spark.createDataFrame([(None,)], "body string")
    text = shown(lambda: topic.write(rows))
    assert "ROCKETPY_COLUMN: column body is null in row 0" in text.splitlines()[1]


def test_an_error_of_a_reading_task_is_one_sentence(spark: SparkSession) -> None:
    """Plans the range at the first use; the broker is gone at the second."""
    with LocalBroker() as broker:
        broker.create_topic("T", queues=1)
        gone = Topic("T", spark, broker)
        gone.send("a")
        frame = gone.read(connectTimeout="3s", pullTimeout="3s", retryTimesMax=0)
        assert frame.count() == 1
    text = shown(frame.count)
    assert "ROCKETPY_CONNECTION: no broker answers" in text.splitlines()[1]


def test_an_error_at_the_start_of_a_stream_is_one_sentence(
    topic: Topic, collected: Collected
) -> None:
    text = shown(lambda: collected.run(topic.stream(endingOffsets="latest")))
    sentence = "ROCKETPY_OPTION: option endingOffsets ends a batch, but this is a stream"
    assert sentence in text.splitlines()[0]


def test_a_checkpoint_of_another_topic_is_told_but_one_of_another_group_goes_on(
    new_topic: Callable[..., Topic], collected: Collected
) -> None:
    orders, bills = new_topic(), new_topic()
    orders.send("a")
    collected.run(orders.stream(columns="body", **EARLIEST))
    text = shown(lambda: collected.run(bills.stream(columns="body")))
    for words in (f"is of topic '{orders.name}'", f"reads topic '{bills.name}'", "new checkpoint"):
        assert words in text.splitlines()[0]
    collected.run(orders.stream(columns="body", consumerGroup="another"))
    assert collected.bodies() == ["a"]


def test_a_checkpoint_of_another_source_is_told(topic: Topic, collected: Collected) -> None:
    rate = topic.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    collected.start(rate, once=True).awaitTermination(WAIT_SECONDS_MAX)
    text = shown(lambda: collected.run(topic.stream()))
    assert "was not written by rocketpy; start with a new" in text


def test_a_mistake_of_a_program_keeps_its_traceback(spark: SparkSession) -> None:
    @called_by_spark
    class Faulty(DataSource):
        @classmethod
        def name(cls) -> str:
            return "faulty"

        def schema(self) -> str:
            raise ValueError("a mistake")

    spark.dataSource.register(Faulty)
    with pytest.raises(PySparkException) as caught:
        spark.read.format("faulty").load()
    assert "Traceback" in str(caught.value)
    assert "in schema" in str(caught.value)
    assert "ValueError: a mistake" in str(caught.value)


def test_tasks_exempt_what_they_imported_from_garbage_collection(spark: SparkSession) -> None:
    @called_by_spark
    class Reader(DataSourceReader):
        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            yield (gc.get_freeze_count(),)

    class Counting(DataSource):
        @classmethod
        def name(cls) -> str:
            return "counting"

        def schema(self) -> str:
            return "exempted int"

        def reader(self, schema: object) -> Reader:
            return Reader()

    spark.dataSource.register(Counting)
    [row] = spark.read.format("counting").load().collect()
    assert row.exempted > 10_000, "PySpark's own modules have more objects"
