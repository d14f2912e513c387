"""A Spark program that writes rows through tasks with two attempts at once.

    python rival_attempts.py MASTER ENDPOINT FOLDER RUNS

In each run each job writes to its topic of that run; the streams read the rows that the first job,
a batch, has written. The sink is the real one, with an obstacle for some attempts. Each of these
reports in FOLDER/attempts its topic and role, its number and host, and its progress. It also
reports that it waited for another one in vain, as it does where Spark starts no second attempt.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pyspark_rocketpy import DefaultSource
from pyspark_rocketpy.sink.task_writer import RowsWritten
from pyspark_rocketpy.sink.writers import RocketpyStreamWriter, RocketpyWriter

MASTER, ENDPOINT, FOLDER, RUNS = sys.argv[1:]
ROWS, PARTITIONS = 20_000, 3
# The roles of a job's partitions. `standing`: the first attempt never ends. `racing`: the first one
# ends when the second one does. `killing`: the first one kills its executor when it has written.
JOBS = {
    "batch": {0: "standing", 1: "racing"},
    "stream": {0: "standing", 1: "racing"},
    "killed": {0: "killing"},
}
# Not always the second attempt: Spark that stops a worker as it starts ends all workers of that
# executor, with the other attempts in them.
RIVALS = range(1, 10)
# Of the cluster that runs this program; each host has one executor.
HOSTS = 2
STAND_SECONDS_MAX = 240.0
LOOK_SECONDS = 0.01
CONF = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.executor.memory": "512m",
    "spark.python.task.killTimeout": "100ms",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.0",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.efficiency.enabled": "false",
}
Batches = Iterator[pa.RecordBatch]


def main() -> None:
    """Runs all jobs; the exit code reports whether Spark succeeded."""
    builder = SparkSession.builder.master(MASTER)
    for name, value in CONF.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(RivalSource)
    Path(FOLDER, "attempts").touch()
    for number in range(int(RUNS)):
        standing = wait_standing(spark)
        write_batch(spark, f"batch-{number}")
        write_stream(spark, f"stream-{number}", f"batch-{number}")
        write_stream(spark, f"killed-{number}", f"batch-{number}")
        if number + 1 < int(RUNS):
            wait_replaced(spark, standing)
    spark.stop()


def executors(spark: SparkSession) -> set[str]:
    """Returns the executors that Spark knows."""
    ids: str = spark.sparkContext._jsc.sc().getExecutorIds().mkString(" ")
    return set(ids.split())


def wait_standing(spark: SparkSession) -> set[str]:
    """Waits until each host has an executor; returns the executors."""
    deadline = time.monotonic() + STAND_SECONDS_MAX
    while len(now := executors(spark)) != HOSTS:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{HOSTS} executors were to come, there are {now}")
        time.sleep(LOOK_SECONDS)
    return now


def wait_replaced(spark: SparkSession, before: set[str]) -> None:
    """Waits until another executor replaces the killed one: each run starts like the first.

    Spark may not even have noticed the kill if a rival attempt was already running.
    """
    deadline = time.monotonic() + STAND_SECONDS_MAX
    while len(now := executors(spark)) != len(before) or len(now - before) != 1:
        if time.monotonic() > deadline:
            raise TimeoutError(f"executors {before} were not replaced: {now}")
        time.sleep(LOOK_SECONDS)


def options(topic: str) -> dict[str, str]:
    return {"endpoints": ENDPOINT, "topic": topic, "batchBytesMax": "20000"}


def write_batch(spark: SparkSession, topic: str) -> None:
    rows = spark.range(0, ROWS, 1, PARTITIONS).selectExpr("cast(id as string) as body")
    rows.write.format("rival").options(**options(topic)).mode("append").save()


def write_stream(spark: SparkSession, topic: str, written: str) -> None:
    source = {"endpoints": ENDPOINT, "topic": written, "startingOffsets": "earliest"}
    source |= {"columns": "body", "minPartitions": str(PARTITIONS)}
    rows = spark.readStream.format("rocketpy").options(**source).load()
    writer = rows.writeStream.format("rival").options(**options(topic))
    writer = writer.option("checkpointLocation", f"{FOLDER}/{topic}")
    assert writer.trigger(availableNow=True).start().awaitTermination(240)


class RivalSource(DefaultSource):
    """The connector, with obstacles for its writers."""

    @classmethod
    def name(cls) -> str:
        return "rival"

    def writer(self, schema: StructType, overwrite: bool) -> RocketpyWriter:
        return RivalWriter(self._sink_plan(schema))

    def streamWriter(  # noqa: N802 (the name is PySpark's)
        self, schema: StructType, overwrite: bool
    ) -> RocketpyStreamWriter:
        return RivalStreamWriter(self._sink_plan(schema))


class RivalWriter(RocketpyWriter):
    def write(self, iterator: Batches) -> RowsWritten:
        return rival_write(self._sink._config.topic, super().write, iterator)


class RivalStreamWriter(RocketpyStreamWriter):
    def write(self, iterator: Batches) -> RowsWritten:
        return rival_write(self._sink._config.topic, super().write, iterator)


def rival_write(
    topic: str | None, write: Callable[[Batches], RowsWritten], batches: Batches
) -> RowsWritten:
    """Writes as the sink does, with an obstacle by the attempt's role."""
    context = TaskContext.get()
    assert topic is not None
    assert context is not None
    number = context.attemptNumber()
    role = JOBS[topic.partition("-")[0]].get(context.partitionId())
    if role is None:
        return write(batches)
    attempt = f"{topic} {role} {number} {os.environ['SPARK_LOCAL_IP']}"
    if role == "standing" and number == 0:
        return write(then_stand_still(batches, attempt))
    if number > 0:
        wait_told(f"{topic} {role} 0 ")  # Spark may start it long before the first one is there.
    written = write(batches)
    tell(f"{attempt} written")
    if role == "racing" and number == 0:
        wait_told(*(f"{topic} {role} {rival} " for rival in RIVALS))
    if role == "killing" and number == 0:
        executor().kill()
        wait_told("nothing more")
    return written


def then_stand_still(batches: Batches, attempt: str) -> Batches:
    """Yields all rows, and then never ends."""
    yield from batches
    tell(f"{attempt} handed over")
    wait_told("nothing more")


def executor() -> psutil.Process:
    """Returns this worker's executor: the parent of its workers' daemon."""
    parents = psutil.Process().parents()
    return next(process for process in parents if process.name() == "java")


def tell(line: str) -> None:
    with Path(FOLDER, "attempts").open("a", encoding="utf-8") as attempts:
        attempts.write(line + "\n")


def wait_told(*beginnings: str) -> None:
    """Waits until an attempt has reported a line with one of these starts, or is killed."""
    deadline = time.monotonic() + STAND_SECONDS_MAX
    while not any(
        line.startswith(beginnings) for line in Path(FOLDER, "attempts").read_text().splitlines()
    ):
        if time.monotonic() > deadline:
            tell(f"in vain: {beginnings} was not told")
            raise TimeoutError(beginnings)
        time.sleep(LOOK_SECONDS)


main()
