"""A Spark driver of its own that copies a topic to another, exactly once; a program for tests.

    python -m tests.spark.copying_driver '{"endpoint": "…", "checkpoint": "…", …}'

It prints a line when its query runs and one when it has ended. What a kill does to it is what the
tests look at.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

from pyspark.sql import SparkSession

STARTED, ENDED = "started", "ended"
BATCH_ROWS = 40


@dataclass(frozen=True)
class Copying:
    """What to copy, and how."""

    endpoint: str
    source: str
    target: str
    checkpoint: str
    master: str = "local[2]"
    available_now: bool = False


def session(copying: Copying) -> SparkSession:
    """A session without a web page, on loopback."""
    builder = SparkSession.builder.master(copying.master).appName("copying")
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
