"""A Spark program that writes rows through tasks with failing first attempts.

    python failing_attempts.py WHERE FOLDER HOW:KIND:TARGET...

WHERE is JSON: the options that lead to a broker, and for a batch more options of the sink. Each
further word is a job, which writes to the topic TARGET. Jobs run one after the other. HOW is
`raise` (an attempt fails when the sink has had all its rows) or `kill` (its Python workers are
killed then, the sink's too). KIND is `batch`, or `stream`, which reads the topic `source`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

ROWS, PARTITIONS = 20_000, 4
FOLDER, *JOBS = sys.argv[2:]
WHERE = json.loads(sys.argv[1])
MASTER = "local[2,20]"
CONF = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
}


def main() -> None:
    """Runs the jobs; the exit code reports whether Spark succeeded."""
    builder = SparkSession.builder.master(MASTER)
    for name, value in CONF.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for job in JOBS:
        run(spark, *job.split(":"))
    spark.stop()


def run(spark: SparkSession, how: str, kind: str, target: str) -> None:
    """Writes the rows to a topic."""
    options = {**WHERE, "topic": target, "batchBytesMax": "20000"}
    if kind == "batch":
        rows = spark.range(0, ROWS, 1, PARTITIONS).selectExpr("cast(id as string) as body")
        troubled(rows, how).write.format("rocketpy").options(**options).mode("append").save()
        return
    source = {**WHERE, "topic": "source", "startingOffsets": "earliest"}
    source |= {"columns": "body", "minPartitions": str(PARTITIONS)}
    rows = spark.readStream.format("rocketpy").options(**source).load()
    writer = troubled(rows, how).writeStream.format("rocketpy").options(**options)
    writer = writer.option("checkpointLocation", f"{FOLDER}/checkpoint")
    assert writer.trigger(availableNow=True).start().awaitTermination(270)


def troubled(rows: DataFrame, how: str) -> DataFrame:
    """Returns the same rows, through tasks with failing first attempts."""
    return rows.mapInArrow({"raise": failing, "kill": dying}[how], rows.schema)


def attempt() -> int:
    context = TaskContext.get()
    assert context is not None
    return context.attemptNumber()


def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields all rows, then fails."""
    yield from batches
    if attempt() == 0:
        raise RuntimeError("a first attempt fails")


def dying(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields all rows, then kills every worker that shares this one's parent."""
    yield from batches
    if attempt() == 0:
        for process in Path("/proc").iterdir():
            if process.name.isdecimal() and process.name != str(os.getpid()):
                kill_if_child(process, os.getppid())
        os.kill(os.getpid(), signal.SIGKILL)


def kill_if_child(process: Path, parent: int) -> None:
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return  # It has ended meanwhile.
    if int(fields[1]) == parent:
        os.kill(int(process.name), signal.SIGKILL)


main()
