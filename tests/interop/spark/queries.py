"""A topic of a cluster as Spark reads it, and the messages sent to it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rocketpy_proto.record.properties import encode_properties
from rocketpy_proto.remoting import BatchMessage
from tests.interop.cluster.cluster import Cluster
from tests.interop.cluster.connection import Connection
from tests.interop.cluster.messages import Queue, send_batch, until_pullable
from tests.support.time_limits import WAIT_SECONDS_MAX

QUEUES = 2
PAUSE_SECONDS = 0.1
COLUMNS = "brokerName string, queueId int, queueOffset long, body binary"


class Place(NamedTuple):
    """A message's broker, queue and offset, and its body."""

    broker_name: str
    queue_id: int
    queue_offset: int
    body: bytes


@dataclass
class OfCluster:
    """A topic, with reads and writes of it; `sent` is everything that `send` stored there.

    `others` are addresses of brokers that are not the cluster's own, by name.
    """

    topic: str
    spark: SparkSession
    cluster: Cluster
    folder: Path
    sent: list[Place] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)

    def options(self, **options: object) -> dict[str, str]:
        """Options of the connector; a value of None leaves one out."""
        merged = {"nameServer": self.cluster.addresses, "topic": self.topic, **options}
        return {name: str(value) for name, value in merged.items() if value is not None}

    def beside(self, name: str, *broker_names: str) -> OfCluster:
        """Returns a new topic at these brokers alone; its streams have their own folder."""
        topic = f"{self.topic[:80]}-{name}"
        brokers = [self.cluster.broker(broker_name) for broker_name in broker_names]
        self.cluster.create_topic(topic, brokers=brokers)
        return OfCluster(topic, self.spark, self.cluster, self.folder / name)

    def send(
        self,
        broker_name: str,
        *bodies: str,
        queue_id: int = 0,
        properties: Mapping[str, str] | None = None,
    ) -> list[Place]:
        """Stores messages as one batch, and waits until they can be pulled."""
        encoded = encode_properties(properties or {})
        messages = [BatchMessage(body.encode(), encoded) for body in bodies]
        queue = Queue(self.topic, queue_id)
        address = self.others.get(broker_name) or self.cluster.broker(broker_name).address
        with Connection(address) as connection:
            begin = send_batch(connection, queue, messages).ok().header.queue_offset
            until_pullable(connection, queue, begin + len(bodies) - 1)
        places = [
            Place(broker_name, queue_id, begin + number, body.encode())
            for number, body in enumerate(bodies)
        ]
        self.sent += places
        return places

    def send_to_all(self, text: str, count: int = 50) -> None:
        """Sends the same number of messages to every queue of every master."""
        for broker in self.cluster.masters:
            for queue_id in range(QUEUES):
                bodies = (f"{text} {number}" for number in range(count))
                self.send(broker.spec.name, *bodies, queue_id=queue_id)

    def read(self, **options: object) -> DataFrame:
        """Reads as a batch."""
        return self.spark.read.format("rocketpy").options(**self.options(**options)).load()

    def read_written(self, **options: object) -> DataFrame:
        """Reads as a batch, also the messages of another sender that it has just written."""
        self.cluster.until_dispatched()
        return self.read(**options)

    def start(self, *, runs_on: bool = True, **options: object) -> StreamingQuery:
        """Starts a stream into files, each written once by Spark; continues from its checkpoint."""
        asked = {"startingOffsets": "earliest", **options}
        frame = self.spark.readStream.format("rocketpy").options(**self.options(**asked)).load()
        writer = frame.writeStream.format("parquet").option("path", str(self.folder / "rows"))
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        if runs_on:
            return writer.trigger(processingTime="0 seconds").start()
        return writer.trigger(availableNow=True).start()

    def run(self, **options: object) -> None:
        """Runs a stream over all available messages."""
        query = self.start(runs_on=False, **options)
        assert query.awaitTermination(WAIT_SECONDS_MAX)

    def streamed(self) -> list[Place]:
        """Returns the messages that the streams have written."""
        return places(self.spark.read.schema(COLUMNS).parquet(str(self.folder / "rows")))

    def until_streamed(self, query: StreamingQuery) -> None:
        """Waits until every sent message is there; asserts that each is there once."""
        end = time.monotonic() + WAIT_SECONDS_MAX
        while not (self.folder / "rows").exists() or self.missing():
            assert query.isActive, query.exception()
            assert time.monotonic() < end, f"{len(self.missing())} are missing: {query.status}"
            time.sleep(PAUSE_SECONDS)
        assert self.doubled() == {}

    def missing(self) -> set[Place]:
        """Returns the sent messages that the streams have not written."""
        return set(self.sent) - set(self.streamed())

    def doubled(self) -> dict[Place, int]:
        """Returns the messages that were written more than once, or never sent."""
        counts = Counter(self.streamed())
        strange = {place: 0 for place in counts if place not in self.sent}
        return {place: count for place, count in counts.items() if count > 1} | strange


def places(frame: DataFrame) -> list[Place]:
    """Returns the messages of a frame, by their place."""
    rows = frame.select("brokerName", "queueId", "queueOffset", "body").collect()
    return sorted(Place(row[0], row[1], row[2], bytes(row[3])) for row in rows)
