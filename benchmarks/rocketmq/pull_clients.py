"""Our source's tasks as readers of whole topics of a cluster.

Their processes start once. Connections are ready for a topic's next read, as in a long-lived
application. Nothing outlives a run.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark_rocketpy.options.values import SourceOptions
from pyspark_rocketpy.source.columns import source_schema
from pyspark_rocketpy.source.readers import RocketpyBatchReader
from pyspark_rocketpy.transport.remoting.source import RemotingSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition

    from benchmarks.rocketmq.real_cluster import FilledTopic
    from tests.interop.cluster.cluster import Cluster

# As in Spark's local[2].
TASKS_AT_ONCE = 2


class ReadTooLittleError(Exception):
    """Our client read other content than the topic's."""

    def __init__(self, topic: FilledTopic, messages: int) -> None:
        super().__init__(f"read {messages:,} messages of {topic}")


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
