"""Readers of whole topics of a cluster: RocketMQ's Java client, and our source's tasks.

Each client's processes start once. Connections and compiled code are ready for a topic's next read,
as in a long-lived application. Nothing outlives a run.
"""

from __future__ import annotations

import multiprocessing
import subprocess
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_rocketpy.options.values import SourceOptions
from pyspark_rocketpy.source.columns import source_schema
from pyspark_rocketpy.source.readers import RocketpyBatchReader
from pyspark_rocketpy.transport.remoting.source import RemotingSource
from tests.interop.cluster.processes import DIE_WITH_PARENT, Program, environment
from tests.interop.rocketmq import V5

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition

    from benchmarks.real_cluster import FilledTopic
    from tests.interop.cluster.cluster import Cluster

# As in Spark's local[2].
TASKS_AT_ONCE = 2


class ReadTooLittleError(Exception):
    """A client read other content than the topic's."""

    def __init__(self, topic: FilledTopic, messages: int) -> None:
        super().__init__(f"read {messages:,} messages of {topic}")


@dataclass(frozen=True)
class JavaClient:
    """A running `tests/interop/java/PullClient.java`."""

    process: subprocess.Popen[str]

    def read(self, topic: FilledTopic) -> None:
        """Reads all of a topic. Raises ReadTooLittleError."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{topic.name}\n")
        self.process.stdin.flush()
        messages, body_bytes = map(int, (self.process.stdout.readline() or "0 0").split())
        if (messages, body_bytes) != (topic.messages, topic.messages * topic.body_bytes):
            raise ReadTooLittleError(topic, messages)


@contextmanager
def java_client(cluster: Cluster, folder: Path) -> Iterator[JavaClient]:
    """Yields the Java client, while it runs."""
    folder.mkdir()
    program = Program(V5, "PullClient", (cluster.addresses,), jvm_options=("-Xms256m", "-Xmx1g"))
    with (
        (folder / "output.log").open("ab") as log,
        subprocess.Popen(
            [*DIE_WITH_PARENT, *program.command(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment(folder),
            text=True,
        ) as process,
    ):
        try:
            yield JavaClient(process)
        finally:
            process.kill()


@dataclass(frozen=True)
class OurClient:
    """Processes that read the source's planned ranges, as tasks do."""

    cluster: Cluster
    tasks: ProcessPoolExecutor

    def read(self, topic: FilledTopic) -> None:
        """Plans a batch of all of a topic and reads it. Raises ReadTooLittleError."""
        reader = batch_reader(self.cluster.addresses, topic.name)
        read = partial(rows_of, self.cluster.addresses, topic.name)
        rows = sum(self.tasks.map(read, reader.partitions()))
        if rows != topic.messages:
            raise ReadTooLittleError(topic, rows)


@contextmanager
def our_client(cluster: Cluster) -> Iterator[OurClient]:
    """Yields our client, while its processes run."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(TASKS_AT_ONCE, context) as tasks:
        yield OurClient(cluster, tasks)


def batch_reader(name_servers: str, topic: str) -> RocketpyBatchReader:
    """Returns the source's reader of a topic, with its defaults: all columns, all messages."""
    options = SourceOptions.parse({"nameServer": name_servers, "topic": topic}, is_shared=True)
    schema = source_schema(options.columns)
    return RocketpyBatchReader(options, schema, RemotingSource.of_source(options))


def rows_of(name_servers: str, topic: str, partition: InputPartition) -> int:
    """Returns the number of rows of a task, decoded and dropped; runs in a worker process."""
    reader = batch_reader(name_servers, topic)
    return sum(batch.num_rows for batch in reader.read(partition))
