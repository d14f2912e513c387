"""A name server and a broker of RocketMQ, and topics full of messages.

Nothing outlives a run. The broker has RocketMQ's own settings but for its place, its heap and its
timeouts on a busy machine. Unlike in tests its JVM compiles fully.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rocketpy_proto.record.properties import encode_properties
from rocketpy_proto.remoting import BatchMessage, RequestCode, encode_batch
from tests.interop.cluster.cluster import A, Cluster
from tests.interop.cluster.connection import Connection
from tests.interop.cluster.messages import Outgoing, Queue, until_pullable
from tests.interop.cluster.servers import BrokerSpec

QUEUES = 4
# Of a send; brokers accept 4 MiB.
BATCH_BYTES = 256 << 10
BROKER = BrokerSpec(
    A,
    conf={
        "mappedFileSizeCommitLog": 1 << 30,
        "mappedFileSizeConsumeQueue": 6_000_000,
        "enablePropertyFilter": "false",
        "transactionTimeOut": 6_000,
        "transactionCheckInterval": 30_000,
    },
    jvm_options=("-Xms256m", "-Xmx512m", "-XX:MaxDirectMemorySize=1g"),
)


@dataclass(frozen=True)
class FilledTopic:
    """A topic of QUEUES queues and its content."""

    name: str
    messages: int
    body_bytes: int


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """Yields one of each, while it runs; then both are killed."""
    cluster = Cluster(folder, [BROKER], name_servers=1)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


def fill(cluster: Cluster, topic: FilledTopic) -> None:
    """Creates a topic and fills its queues, each over its own connection."""
    cluster.create_topic(topic.name, QUEUES)
    batch = _batch(BATCH_BYTES // topic.body_bytes, topic.body_bytes)
    queues = [Queue(topic.name, queue_id) for queue_id in range(QUEUES)]
    with ThreadPoolExecutor(QUEUES) as threads:
        for done in [
            threads.submit(_fill_queue, cluster, queue, batch, topic.messages // QUEUES)
            for queue in queues
        ]:
            done.result()


def _fill_queue(cluster: Cluster, queue: Queue, batch: list[BatchMessage], count: int) -> None:
    together, rest = encode_batch(batch), encode_batch(batch[: count % len(batch)])
    header = Outgoing(b"").header(queue, is_batch=True)
    with Connection(cluster.broker(A).address) as connection:
        for body in [together] * (count // len(batch)) + [rest] * bool(rest):
            connection.ask(RequestCode.SEND_BATCH_MESSAGE, header, body).ok()
        until_pullable(connection, queue, count - 1)


def _batch(count: int, body_bytes: int) -> list[BatchMessage]:
    """Returns messages with random bodies and the properties that RocketMQ's producers add."""
    content = np.random.default_rng(7).bytes(count * body_bytes)
    return [
        BatchMessage(
            content[number * body_bytes : (number + 1) * body_bytes],
            encode_properties({"WAIT": "true", "UNIQ_KEY": f"7F000001{number:024X}"}),
        )
        for number in range(count)
    ]
