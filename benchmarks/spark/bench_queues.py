"""Rows over a thousand queues against rows over eight: encoded only, and through Spark.

Queues are drawn row by row, so that an Arrow batch holds about ten rows of each. Encoding alone is
`write_batches` with a transport that drops its blocks. Through Spark, a batch job delivers at least
once and exactly once: local[2], the broker on the same machine with ASYNC_FLUSH.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks.data import sink_rows
from benchmarks.harness import Result, compare
from benchmarks.spark.bench_sink import ROWS, rows_of, save
from benchmarks.spark.spark_session import spark_session
from pyspark_rocketpy.options.choices import DeliveryGuarantee
from pyspark_rocketpy.sink.task_writer import WriteConfig, write_batches
from pyspark_rocketpy.transport.values import BrokerLimits
from pyspark_rocketpy.transport.write_values import (
    Attempt,
    BatchJob,
    BatchName,
    Block,
    CommittedBatch,
    WriteQueues,
)
from rocketpy_broker import LocalBroker
from rocketpy_broker.store.config import FlushDiskType

FEW, MANY = 8, 1_000
GOAL = 0.5
# The deliveries that our broker has.
DELIVERIES = (DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE)
BLOCK_BYTES, BATCH_ROWS = 2 << 20, 10_000
BODY_BYTES = 100


class DroppingTransport:
    """A SinkTransport and its own BlockWriter, which drops all blocks."""

    def limits(self) -> BrokerLimits:
        return BrokerLimits(4 << 20, 32 << 20)

    def write_queues(self, topics: Sequence[str]) -> dict[str, WriteQueues]:
        return dict.fromkeys(topics, WriteQueues({"": MANY}))

    def block_writer(self, attempt: Attempt | None) -> DroppingTransport:
        return self

    def commit_batch(self, parts: Sequence[bytes], batch_id: int) -> CommittedBatch:
        return CommittedBatch(batch_id, True, 0, 0)

    def abort_batch(self, job: BatchJob) -> None:
        return

    def send(self, block: Block) -> None:
        return

    def finish(self) -> bytes:
        return b""

    def close(self) -> None:
        return


def encode(batches: list[pa.RecordBatch]) -> None:
    """Encodes as a task does, without sends."""
    config = WriteConfig(DroppingTransport(), "T", ("body", "queueId"), BLOCK_BYTES)
    write_batches(config, iter(batches), BatchName("writer", 1), 0)


def run() -> list[Result]:
    """Returns encoding, then Spark with both deliveries."""
    results = [run_encoding(BODY_BYTES, 1_000_000)]
    with spark_session() as spark:
        results += [
            run_spark(spark, body_bytes, delivery) for delivery in DELIVERIES for body_bytes in ROWS
        ]
    return results


def run_encoding(body_bytes: int, count: int) -> Result:
    """Returns the speed over many queues as a share of that over few."""
    numbers = range(count // BATCH_ROWS)
    many, few = (
        [sink_rows(BATCH_ROWS, body_bytes, queues, number) for number in numbers]
        for queues in (MANY, FEW)
    )
    comparison = compare(lambda: encode(many), lambda: encode(few))
    detail = f"{count / comparison.seconds / 1e6:.2f} M rows/s in one task"
    name = f"encode for {MANY:,} queues / {FEW} queues, {body_bytes} B"
    return Result(name, comparison.ratio, "ratio", GOAL, detail=detail)


def run_spark(spark: SparkSession, body_bytes: int, delivery: DeliveryGuarantee) -> Result:
    """Returns the same for a batch job."""
    count = ROWS[body_bytes]
    frame = rows_of(spark, body_bytes, count)

    def over(queues: int) -> DataFrame:
        return frame.selectExpr(
            "body",
            f"cast(pmod(hash(body), {queues}) as int) as queueId",
            f"'queues-{queues}' as topic",
        )

    many, few = over(MANY), over(FEW)
    with LocalBroker(flush=FlushDiskType.ASYNC_FLUSH, commit_log_segment_bytes=1 << 30) as broker:
        for queues in (MANY, FEW):
            broker.create_topic(f"queues-{queues}", queues=queues)
        comparison = compare(
            lambda: save(many, broker, delivery), lambda: save(few, broker, delivery)
        )
    detail = (
        f"{count / comparison.seconds / 1e6:.2f} M rows/s, {FEW} queues "
        f"{count / comparison.baseline_seconds / 1e6:.2f}"
    )
    name = f"sink to {MANY:,} queues / {FEW} queues, {body_bytes} B, {delivery.value}"
    return Result(name, comparison.ratio, "ratio", GOAL, detail=detail)
