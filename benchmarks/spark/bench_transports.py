"""Our connector at one broker by remoting, beside itself by gRPC.

Spark reads all columns into the noop sink, and writes rows that the JVM makes, at least once. The
broker is a LocalBroker with ASYNC_FLUSH.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from benchmarks.harness import Comparison, Result, compare
from benchmarks.spark.bench_sink import rows_of
from benchmarks.spark.bench_source import fill
from benchmarks.spark.spark_session import spark_session
from pyspark_rocketpy.options.choices import DeliveryGuarantee
from rocketpy_broker import LocalBroker
from rocketpy_broker.store.config import FlushDiskType

WRITTEN = "written"
QUEUES = 4
# Body size in bytes -> rows a round.
ROWS = {100: 1_000_000, 1024: 200_000}
RATIO_MIN = 1.0


def read(spark: SparkSession, topic: str, address: Mapping[str, str]) -> None:
    """Reads a whole topic into the noop sink."""
    frame = spark.read.format("rocketpy").options(topic=topic, **address).load()
    frame.write.format("noop").mode("append").save()


def write(frame: DataFrame, address: Mapping[str, str]) -> None:
    """Writes the frame once."""
    options = {"topic": WRITTEN, "delivery": DeliveryGuarantee.AT_LEAST_ONCE.value, **address}
    frame.write.format("rocketpy").options(**options).mode("append").save()


def result(name: str, done: Comparison, rows: int) -> Result:
    """Returns the ratio, with both rates as its detail."""
    rates = rows / done.seconds / 1e6, rows / done.baseline_seconds / 1e6
    detail = f"{rates[0]:.2f} M rows/s, gRPC {rates[1]:.2f}"
    name = f"connector by remoting / by gRPC, {name}"
    return Result(name, done.ratio, "ratio", RATIO_MIN, detail=detail)


def run() -> Iterator[Result]:
    """Yields reads and writes of small and large bodies."""
    broker = LocalBroker(flush=FlushDiskType.ASYNC_FLUSH, commit_log_segment_bytes=1 << 30)
    with broker, spark_session() as spark:
        by_remoting = {"nameServer": broker.name_server}
        by_grpc = {"endpoints": broker.endpoint}
        broker.create_topic(WRITTEN, queues=QUEUES)
        for body_bytes, rows in ROWS.items():
            topic = f"read-{body_bytes}"
            fill(broker, topic, body_bytes, rows)
            reads = partial(read, spark, topic)
            done = compare(partial(reads, by_remoting), partial(reads, by_grpc))
            yield result(f"read all columns, {body_bytes} B", done, rows)
        for body_bytes, rows in ROWS.items():
            writes = partial(write, rows_of(spark, body_bytes, rows))
            done = compare(partial(writes, by_remoting), partial(writes, by_grpc))
            yield result(f"write at least once, {body_bytes} B", done, rows)
