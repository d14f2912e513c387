"""The Spark sink against a Python writer that discards its rows, and its two deliveries.

A batch job writes rows that the JVM makes; local[2], the broker on the same machine, once with
ASYNC_FLUSH and once with SYNC_FLUSH. Each round continues after the last one. Against the
discarding writer the sink delivers at least once; exactly-once has a figure of its own.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from benchmarks.harness import Result, compare
from benchmarks.spark.spark_session import spark_session
from pyspark_rocketpy.options.choices import DeliveryGuarantee
from rocketpy_broker import LocalBroker
from rocketpy_broker.store.config import FlushDiskType

TOPIC = "sink"
QUEUES = 4
GOAL = 0.3
GOAL_EXACTLY_ONCE = 1.3
# Body size in bytes -> rows a round.
ROWS = {100: 2_000_000, 1024: 300_000}


def rows_of(spark: SparkSession, body_bytes: int, count: int) -> DataFrame:
    """Returns rows with a body, made by the JVM on demand."""
    frame = spark.range(0, count, 1, 2)
    return frame.selectExpr(f"lpad(cast(id as string), {body_bytes}, 'x') as body")


def run() -> list[Result]:
    """Returns small and large bodies, with both kinds of flush."""
    results = []
    with spark_session() as spark:
        for flush in FlushDiskType:
            for body_bytes, count in ROWS.items():
                frame = rows_of(spark, body_bytes, count)
                results.append(run_case(frame, flush, body_bytes, count))
                results.append(run_deliveries(frame, flush, body_bytes, count))
    return results


def save(frame: DataFrame, broker: LocalBroker, delivery: DeliveryGuarantee) -> None:
    """Writes the frame once."""
    options = {"endpoints": broker.endpoint, "topic": TOPIC, "delivery": delivery.value}
    frame.write.format("rocketpy").options(**options).mode("append").save()


def run_deliveries(frame: DataFrame, flush: FlushDiskType, body_bytes: int, count: int) -> Result:
    """Returns the time of exactly-once as a multiple of at-least-once."""
    with LocalBroker(flush=flush, commit_log_segment_bytes=1 << 30) as broker:
        broker.create_topic(TOPIC, queues=QUEUES)
        comparison = compare(
            lambda: save(frame, broker, DeliveryGuarantee.EXACTLY_ONCE),
            lambda: save(frame, broker, DeliveryGuarantee.AT_LEAST_ONCE),
        )
    detail = f"{count / comparison.seconds / 1e6:.2f} M rows/s exactly once"
    name = f"exactly-once / at-least-once, time, {body_bytes} B, {flush.value}"
    ratio = 1 / comparison.ratio
    return Result(name, ratio, "ratio", GOAL_EXACTLY_ONCE, at_most=True, detail=detail)


def run_case(frame: DataFrame, flush: FlushDiskType, body_bytes: int, count: int) -> Result:
    """Returns the ratio of our rows a second to the discarding writer's."""
    with LocalBroker(flush=flush, commit_log_segment_bytes=1 << 30) as broker:
        broker.create_topic(TOPIC, queues=QUEUES)
        comparison = compare(
            lambda: save(frame, broker, DeliveryGuarantee.AT_LEAST_ONCE),
            lambda: frame.write.format("synthetic").mode("append").save(),
        )
    speed = count / comparison.seconds / 1e6
    detail = f"{speed:.2f} M rows/s, discarding {count / comparison.baseline_seconds / 1e6:.2f}"
    name = f"sink / discarding writer, {body_bytes} B, {flush.value}"
    return Result(name, comparison.ratio, "ratio", GOAL, detail=detail)
