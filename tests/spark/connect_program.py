"""A program under Spark Connect: writes, reads and streams, in its own process.

Its argument is the broker's endpoint. It starts a local Connect server, which ends with it. It
prints one JSON object with its results.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from prometheus_client import CollectorRegistry
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession

from pyspark_rocketpy.metrics import QueryMetrics
from tests.support.time_limits import WAIT_SECONDS_MAX

SERVER = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
}
ROWS, PER_BATCH = 1000, 300


def session() -> SparkSession:
    """Returns a session of a Connect server at a free port."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_TESTING"] = "1"  # PySpark then takes a free port, and not always 15002.
    # The builder's settings also go to the client's session, which refuses these.
    told = " ".join(f"--conf {name}={value}" for name, value in SERVER.items())
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"{told} pyspark-shell"
    return SparkSession.builder.remote("local[2]").getOrCreate()


def read(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """Returns a topic's bodies, as a batch."""
    rows = spark.read.format("rocketpy").options(**options).option("columns", "body").load()
    return rows.selectExpr("string(body) as body")


def copy(spark: SparkSession, source: dict[str, str], target: dict[str, str], folder: str) -> int:
    """Streams from topic to topic until nothing is left; returns the number of batches."""
    stream = spark.readStream.format("rocketpy").options(**source)
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", PER_BATCH)
    writer = stream.load().select("body").writeStream.format("rocketpy").options(**target)
    query = writer.option("checkpointLocation", folder).trigger(availableNow=True).start()
    assert query.awaitTermination(240)
    return len(query.recentProgress)


def scraped(spark: SparkSession, source: dict[str, str], folder: str) -> dict[str, float | None]:
    """Returns a query's metrics after it has read everything, and after their removal."""
    registry = CollectorRegistry()
    listener = QueryMetrics(registry)
    spark.streams.addListener(listener)
    stream = spark.readStream.format("rocketpy").options(**source)
    rows = stream.option("startingOffsets", "earliest").load()
    writer = rows.writeStream.format("noop").queryName("watched")
    query = writer.option("checkpointLocation", folder).start()

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"rocketpy_query_{name}", {"query": "watched", **labels})

    def wait_for(rows: float | None) -> None:
        ends = time.monotonic() + WAIT_SECONDS_MAX
        while value("input_rows_total") != rows and time.monotonic() < ends:
            threading.Event().wait(0.05)

    wait_for(ROWS)
    seen = {"rows": value("input_rows_total"), "batch": value("last_batch_id")}
    seen["lag"] = value("lag_messages", topic=source["topic"])
    query.stop()
    wait_for(None)
    spark.streams.removeListener(listener)
    return {**seen, "rows after the end": value("input_rows_total")}


def main(endpoint: str) -> None:
    """Runs a batch write, a batch read, streaming source and sink, a replay, and metrics."""
    spark = session()
    source = {"endpoints": endpoint, "topic": "connect-source"}
    target = {"endpoints": endpoint, "topic": "connect-target"}
    rows = spark.range(ROWS).selectExpr("string(id) as body")
    rows.write.format("rocketpy").options(**source).mode("append").save()
    with TemporaryDirectory() as folder:
        batches = copy(spark, source, target, folder)
        notes = Path(folder, "commits")
        last = max(int(note.name) for note in notes.iterdir() if note.name.isdigit())
        (notes / str(last)).unlink()
        (notes / f".{last}.crc").unlink()
        replayed = copy(spark, source, target, folder)
    with TemporaryDirectory() as folder:
        metrics = scraped(spark, source, folder)
    found = read(spark, target)
    seen = {
        "is_connect": isinstance(spark, ConnectSession),
        "source": read(spark, source).count(),
        "batches": batches,
        "replayed": replayed,
        "target": found.count(),
        "distinct": found.distinct().count(),
        "metrics": metrics,
    }
    spark.stop()
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
