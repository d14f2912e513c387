"""A Spark driver program for tests that copies topics exactly once.

    python -m tests.support.spark.copying_driver '[{"endpoint": "…", "checkpoint": "…", …}, …]'

Each copy is a query. The program prints a line when its queries run, and one when they have ended.
It fails when a query fails. Tests kill it and check the result.
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
# Per copy: one slot for each queue, so that a held task takes no other query's slot.
SLOTS = 2
LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Copying:
    """The source, the target and the options of one copy."""

    endpoint: str
    source: str
    target: str
    checkpoint: str
    available_now: bool = False
    batch_rows: int = BATCH_ROWS


def session(copies: int) -> SparkSession:
    """Returns a session without a web page, on loopback, with slots for `copies` copies."""
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
    """Starts a copy, from its checkpoint if there is one."""
    reader = spark.readStream.format("rocketpy").option("endpoints", copying.endpoint)
    frame = (
        reader.option("topic", copying.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", copying.batch_rows)
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
    """True if the query has no source yet. Many sources that start at once would all be slow."""
    return query.isActive and query.status["message"].startswith("Initializing")


def has_started_too_slowly(query: StreamingQuery) -> bool:
    """True if a source's Python did not start within Spark's ten seconds; the query did nothing."""
    error = query.exception()
    return error is not None and "Python worker failed to connect back" in str(error)


def main() -> None:
    """Runs the queries until they end, one fails, or the process is killed."""
    copyings = [Copying(**each) for each in json.loads(sys.argv[1])]
    spark = session(len(copyings))
    queries = [start(spark, copying) for copying in copyings]
    sys.stdout.write(f"{STARTED}\n")
    sys.stdout.flush()
    spark.streams.resetTerminated()
    if all(query.exception() is None for query in queries):
        spark.streams.awaitAnyTermination()  # Raises if a query has failed.
    for query in queries:
        query.awaitTermination()
    sys.stdout.write(f"{ENDED}\n")
    spark.stop()


if __name__ == "__main__":
    main()
