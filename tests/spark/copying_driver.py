"""A Spark driver of its own that copies a topic to another, exactly once; a program for tests.

    python -m tests.spark.copying_driver '{"endpoint": "…", "checkpoint": "…", …}'

It prints a line when its query runs and one when it has ended. What a kill does to it is what the
tests look at.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

STARTED, ENDED = "started", "ended"
BATCH_ROWS = 40


@dataclass(frozen=True)
class Copying:
    """What to copy, and how. `fails_first`: every task fails at its first attempt, half way."""

    endpoint: str
    source: str
    target: str
    checkpoint: str
    master: str = "local[2]"
    available_now: bool = False
    fails_first: bool = False
    speculation: bool = False


def session(copying: Copying) -> SparkSession:
    """A session without a web page, on loopback."""
    builder = SparkSession.builder.master(copying.master).appName("copying")
    for name, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.speculation": str(copying.speculation).lower(),
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "100ms",
    }.items():
        builder = builder.config(name, value)
    started = builder.getOrCreate()
    started.sparkContext.setLogLevel("OFF")
    return started


def fail_half_way(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass on half of the first batch, and then fail, if this is a task's first attempt."""
    context = TaskContext.get()
    first = context is not None and context.attemptNumber() == 0
    for batch in batches:
        if first:
            yield batch.slice(0, (batch.num_rows + 1) // 2)
            raise RuntimeError("every first attempt fails")
        yield batch


def main() -> None:
    """Run the query until it ends or somebody ends it."""
    copying = Copying(**json.loads(sys.argv[1]))
    spark = session(copying)
    reader = spark.readStream.format("rocketpy").option("endpoints", copying.endpoint)
    frame = (
        reader.option("topic", copying.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", BATCH_ROWS)
        .load()
        .select("body", "queueId")
    )
    if copying.fails_first:
        frame = frame.mapInArrow(fail_half_way, "body binary, queueId int")
    writer = frame.writeStream.format("rocketpy").option("endpoints", copying.endpoint)
    writer = writer.option("topic", copying.target).option("delivery", "exactly-once")
    writer = writer.option("checkpointLocation", copying.checkpoint)
    trigger = {"availableNow": True} if copying.available_now else {"processingTime": "0 seconds"}
    query = writer.trigger(**trigger).start()
    sys.stdout.write(f"{STARTED}\n")
    sys.stdout.flush()
    query.awaitTermination()
    sys.stdout.write(f"{ENDED}\n")
    spark.stop()


if __name__ == "__main__":
    main()
