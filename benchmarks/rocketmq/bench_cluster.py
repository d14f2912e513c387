"""Reads of a real RocketMQ broker: our tasks and Spark beside RocketMQ's Java client.

Name server, broker and all clients run on this machine, the broker with RocketMQ's own settings.
The Java client pulls with a thread for each queue, 32 messages at a time, and decodes every
message. Our tasks decode to Arrow, two at a time; Spark reads into the noop sink. Skipped if `make
interop` has not fetched RocketMQ.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import Result, compare, median_seconds
from benchmarks.rocketmq.java_client import JavaClient, is_compiled, java_client
from benchmarks.rocketmq.pull_clients import OurClient, our_client
from benchmarks.rocketmq.real_cluster import FilledTopic, fill, running_cluster
from benchmarks.spark.spark_session import spark_session
from tests.interop.cluster.cluster import Cluster
from tests.interop.rocketmq import V5

TOPICS = (FilledTopic("small", 1_000_000, 100), FilledTopic("large", 200_000, 1024))
# By body size.
RATIO_MIN = {100: 4.0, 1024: 0.0}
M_ROWS_MIN = {100: 0.35, 1024: 0.0}


def read_by_java(java: JavaClient, topic: FilledTopic) -> None:
    """Reads all of a topic by the Java client."""
    read = java.pull(topic.name)
    assert read == (topic.messages, topic.messages * topic.body_bytes), (topic, read)


def pulled(topic: FilledTopic, ours: OurClient, java: JavaClient) -> Result:
    """Returns our speed against the Java client's, in turns."""
    comparison = compare(lambda: ours.read(topic), lambda: read_by_java(java, topic))
    detail = (
        f"{topic.messages / comparison.seconds / 1e6:.2f} M msgs/s, "
        f"Java {topic.messages / comparison.baseline_seconds / 1e6:.2f}"
    )
    name = f"cluster: pull to Arrow / Java pull client, {topic.body_bytes} B"
    return Result(name, comparison.ratio, "ratio", RATIO_MIN[topic.body_bytes], detail=detail)


def read_by_spark(cluster: Cluster) -> Iterator[Result]:
    """Yields a batch query of each topic, all columns."""
    with spark_session() as spark:
        reader = spark.read.format("rocketpy").option("nameServer", cluster.addresses)
        for topic in TOPICS:
            frame = reader.option("topic", topic.name).load()
            assert frame.count() == topic.messages, topic
            seconds = median_seconds(frame.write.format("noop").mode("append").save)
            name = f"cluster: rows into Spark's noop sink, {topic.body_bytes} B"
            speed = topic.messages / seconds / 1e6
            yield Result(name, speed, "M rows/s", M_ROWS_MIN[topic.body_bytes])


def run() -> Iterator[Result]:
    """Yields the results for small and large bodies."""
    if not is_compiled(V5):
        print("cluster is left out: RocketMQ's jars are not here; make interop fetches them")
        return
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        with running_cluster(folder) as cluster:
            for topic in TOPICS:
                fill(cluster, topic)
            with (
                java_client(V5, cluster.addresses, folder / "java") as java,
                our_client(cluster) as ours,
            ):
                yield from (pulled(topic, ours, java) for topic in TOPICS)
            yield from read_by_spark(cluster)
