"""A Spark driver of its own that copies topics to others, exactly once; a program for tests.

    python -m tests.spark.copying_driver '[{"endpoint": "…", "checkpoint": "…", …}, …]'

Each copy is a query of its own. It prints a line when its queries run and one when they have ended,
and fails when one of them does. What a kill does to it is what the tests look at.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

STARTED, ENDED = "started", "ended"
BATCH_ROWS = 40
# Of each copy: one for each queue, so that a task that is held takes no other query's slot.
SLOTS = 2
LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Copying:
    """What to copy, and how."""

    endpoint: str
    source: str
    target: str
    checkpoint: str
    available_now: bool = False


def session(copies: int) -> SparkSession:
    """A session without a web page, on loopback, with slots for so many copies."""
    builder = SparkSession.builder.master(f"local[{copies * SLOTS}]").appName("copying")
    for name, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(name, value)
    started = builder.getOrCreate()
    started.sparkContext.setLogLevel("OFF")
    return started


def start(spark: SparkSession, copying: Copying) -> StreamingQuery:
    """Starts a copy, or go on with it from its checkpoint."""
    reader = spark.readStream.format("rocketpy").option("endpoints", copying.endpoint)
    frame = (
        reader.option("topic", copying.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", BATCH_ROWS)
        .load()
        .select("body", "queueId")
    )
    writer = frame.writeStream.format("rocketpy").option("endpoints", copying.endpoint)
    writer = writer.option("topic", copying.target).option("delivery", "exactly-once")
    writer = writer.option("checkpointLocation", copying.checkpoint)
    trigger = {"availableNow": True} if copying.available_now else {"processingTime": "0 seconds"}
    writer = writer.trigger(**trigger)
    query = writer.start()
    while is_starting(query) or has_started_too_slowly(query):
        if not query.isActive:
            query = writer.start()
        time.sleep(LOOK_SECONDS)
    return query


def is_starting(query: StreamingQuery) -> bool:
    """It has no source yet. Many that start theirs at once would all be slow."""
    return query.isActive and query.status["message"].startswith("Initializing")


def has_started_too_slowly(query: StreamingQuery) -> bool:
    """A source's Python was not there within Spark's ten seconds; the query has done nothing."""
    error = query.exception()
    return error is not None and "Python worker failed to connect back" in str(error)


def main() -> None:
    """Runs the queries until they end, one fails, or somebody ends them."""
    copyings = [Copying(**each) for each in json.loads(sys.argv[1])]
    spark = session(len(copyings))
    queries = [start(spark, copying) for copying in copyings]
    sys.stdout.write(f"{STARTED}\n")
    sys.stdout.flush()
    spark.streams.resetTerminated()
    if all(query.exception() is None for query in queries):
        spark.streams.awaitAnyTermination()  # Raises where a query has failed.
    for query in queries:
        query.awaitTermination()
    sys.stdout.write(f"{ENDED}\n")
    spark.stop()


if __name__ == "__main__":
    main()
