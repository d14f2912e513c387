"""A Spark program that writes rows through tasks with failing first attempts.

    python failing_attempts.py HOW KIND WHERE TARGET FOLDER

HOW is `raise` (an attempt fails when the sink has had all its rows) or `kill` (its Python workers
are killed then, the sink's too). KIND is `batch`, or `stream`, which reads the topic `source`.
WHERE is JSON: the options that lead to a broker, and for a batch more options of the sink.
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
HOW, KIND, TARGET, FOLDER = *sys.argv[1:3], *sys.argv[4:]
WHERE = json.loads(sys.argv[3])
OPTIONS = {**WHERE, "topic": TARGET, "batchBytesMax": "20000"}
MASTER = "local[2,20]"
CONF = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
}


def main() -> None:
    """Writes the rows and ends with the job's exit code."""
    builder = SparkSession.builder.master(MASTER)
    for name, value in CONF.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    if KIND == "batch":
        rows = spark.range(0, ROWS, 1, PARTITIONS).selectExpr("cast(id as string) as body")
        troubled(rows).write.format("rocketpy").options(**OPTIONS).mode("append").save()
    else:
        source = {**WHERE, "topic": "source", "startingOffsets": "earliest"}
        source |= {"columns": "body", "minPartitions": str(PARTITIONS)}
        rows = spark.readStream.format("rocketpy").options(**source).load()
        writer = troubled(rows).writeStream.format("rocketpy").options(**OPTIONS)
        writer = writer.option("checkpointLocation", f"{FOLDER}/checkpoint")
        assert writer.trigger(availableNow=True).start().awaitTermination(270)
    spark.stop()


def troubled(rows: DataFrame) -> DataFrame:
    """Returns the same rows, through tasks with failing first attempts."""
    return rows.mapInArrow({"raise": failing, "kill": dying}[HOW], rows.schema)


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
