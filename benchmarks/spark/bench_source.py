"""The Spark source against a Python source that yields the same Arrow batches from memory.

AvailableNow into the noop sink, local[2], the broker on the same machine. Both read the same
number of rows in the same number of tasks and in batches of the same size.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from benchmarks import data
from benchmarks.harness import Result, compare
from benchmarks.spark.spark_session import spark_session
from benchmarks.spark.synthetic import write_batches
from pyspark_rocketpy import DefaultSource
from rocketpy_broker import LocalBroker
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.rocketpy.v1 import broker_pb2, broker_pb2_grpc

QUEUES = 2
ROUNDS = 5
_numbers = itertools.count()
BLOCK_MESSAGES = 5_000
# Rows enough for some seconds a query, so that its start does not count.
ROWS = {100: 4_000_000, 1024: 1_000_000}
CASES = [
    ("all columns", None, 100, 0.5),
    ("all columns", None, 1024, 0.5),
    ("body and queueOffset", "body,queueOffset", 100, 0.3),
    ("body and queueOffset", "body,queueOffset", 1024, 0.3),
]


def fill(broker: LocalBroker, topic: str, body_bytes: int, rows: int) -> None:
    """Creates a topic and puts `rows` messages into its queues."""
    broker.create_topic(topic, queues=QUEUES)
    block_messages = BLOCK_MESSAGES if body_bytes < BLOCK_MESSAGES // 10 else BLOCK_MESSAGES // 5
    block = data.block(block_messages, body_bytes, topic)

    def requests() -> Iterator[broker_pb2.AppendRequest]:
        for number in range(rows // block_messages):
            yield broker_pb2.AppendRequest(
                topic=topic,
                queue_id=number % QUEUES,
                records=block.records,
                record_sizes=block.record_sizes,
            )

    with grpc.insecure_channel(broker.endpoint) as channel:
        for response in broker_pb2_grpc.BrokerStub(channel).Append(requests()):
            if response.status.code:
                raise RuntimeError(response.status.remark)


def drain(frame: DataFrame, checkpoint: Path) -> int:
    """Runs an AvailableNow query into the noop sink; returns the rows it read."""
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return sum(progress.numInputRows for progress in query.recentProgress)


def rocketpy_reader(
    spark: SparkSession, broker: LocalBroker, topic: str, columns: str | None
) -> DataStreamReader:
    """Returns the source with its defaults."""
    reader = spark.readStream.format("rocketpy").option("endpoints", broker.endpoint)
    reader = reader.option("topic", topic).option("startingOffsets", "earliest")
    return reader.option("columns", columns) if columns else reader


def sample_batch(broker: LocalBroker, topic: str, columns: str | None) -> pa.RecordBatch:
    """Returns one Arrow batch as our source yields it, read in this process."""
    options = {"endpoints": broker.endpoint, "topic": topic}
    source = DefaultSource({**options, **({"columns": columns} if columns else {})})
    reader = source.reader(source.schema())
    return next(reader.read(reader.partitions()[0]))


def run_case(
    spark: SparkSession,
    broker: LocalBroker,
    folder: Path,
    case: tuple[str, str | None, int, float],
) -> Result:
    """Returns the ratio of our rows a second to the synthetic source's."""
    name, columns, body_bytes, goal = case
    topic, rows = f"source-{body_bytes}", ROWS[body_bytes]
    reader = rocketpy_reader(spark, broker, topic, columns)
    batch = sample_batch(broker, topic, columns)
    path = folder / f"{topic}-{len(batch.schema)}.arrow"
    write_batches(path, batch)
    repeats = rows // QUEUES // batch.num_rows
    synthetic = spark.readStream.format("synthetic").schema(reader.load().schema)
    synthetic = synthetic.option("path", str(path)).option("tasks", QUEUES)
    synthetic = synthetic.option("repeats", repeats)

    def checked(make: Callable[[], DataFrame], expected: int) -> Callable[[], None]:
        def work() -> None:
            read = drain(make(), folder / f"checkpoint-{next(_numbers)}")
            if read != expected:
                raise RuntimeError(f"read {read} rows instead of {expected}")

        return work

    comparison = compare(
        checked(reader.load, rows),
        checked(synthetic.load, repeats * batch.num_rows * QUEUES),
        ROUNDS,
    )
    speed = rows / comparison.seconds / 1e6
    detail = f"{speed:.2f} M rows/s, synthetic {rows / comparison.baseline_seconds / 1e6:.2f}"
    return Result(
        f"source / synthetic, {name}, {body_bytes} B",
        comparison.ratio,
        "ratio",
        goal,
        detail=detail,
    )


def run() -> list[Result]:
    """Returns all columns and two columns, small and large bodies."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        LocalBroker(flush=FlushDiskType.ASYNC_FLUSH, commit_log_segment_bytes=1 << 30) as broker,
        spark_session() as spark,
    ):
        for body_bytes, rows in ROWS.items():
            fill(broker, f"source-{body_bytes}", body_bytes, rows)
        return [run_case(spark, broker, Path(name), case) for case in CASES]
