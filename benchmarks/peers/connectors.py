"""Both connectors of Spark in one session, each with its broker."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.peers.kafka import JARS, KafkaSender, KafkaServer, KafkaTopics, kafka_server
from benchmarks.peers.options import NO_OPTIONS, Options
from benchmarks.peers.processes import Programs
from benchmarks.spark.bench_latency import Sender
from benchmarks.spark.bench_sink import rows_of
from benchmarks.spark.spark_session import spark_session
from rocketpy_broker import LocalBroker
from rocketpy_broker.store.config import FlushDiskType

QUEUES = 4
SEGMENT_BYTES = 1 << 30
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Setting:
    """The size of a run: rows of 100 B in a job, rounds of a line, least seconds of a turn."""

    rows: int = 1_800_000
    rounds: int = 5
    seconds: float = 8.0

    def rows_of(self, body_bytes: int) -> int:
        """Returns the rows of a job; a quarter of large ones."""
        return self.rows if body_bytes <= 100 else self.rows // 4


class SingleSender(Protocol):
    """A producer of single messages to the first queue."""

    def send(self) -> object:
        """Sends one and waits for its acknowledgement."""

    def close(self) -> None:
        """Closes the connection."""


class Topics(Protocol):
    """Creation and deletion of topics."""

    def create_topic(self, topic: str, queues: int) -> None:
        """Creates a topic."""

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic."""


@dataclass(frozen=True, slots=True)
class Connector:
    """A source and sink of Spark, and the broker to which its options lead."""

    spark: SparkSession
    name: str
    body: str
    subscribe: str
    address: Options
    topics: Topics
    programs: Programs
    sender: Callable[[str], SingleSender]

    def new_topic(self, queues: int = QUEUES) -> str:
        """Creates a topic and returns its name."""
        name = f"peers-{next(_numbers)}"
        self.topics.create_topic(name, queues)
        return name

    def batch(self, topic: str, options: Options = NO_OPTIONS) -> DataFrame:
        """Returns all rows of a topic."""
        reader = self.spark.read.format(self.name).options(**self.address, **options)
        return reader.option(self.subscribe, topic).load()

    def stream(self, topic: str, options: Options = NO_OPTIONS) -> DataFrame:
        """Returns the stream of a topic from its start."""
        reader = self.spark.readStream.format(self.name).options(**self.address, **options)
        reader = reader.option("startingOffsets", "earliest")
        return reader.option(self.subscribe, topic).load()

    def save(self, frame: DataFrame, topic: str, options: Options = NO_OPTIONS) -> None:
        """Writes a frame with column `body` once."""
        writer = frame.withColumnRenamed("body", self.body).write.format(self.name)
        writer.options(**self.address, **options).option("topic", topic).mode("append").save()

    def sink(self, frame: DataFrame, topic: str, options: Options = NO_OPTIONS) -> DataStreamWriter:
        """Returns the writer of a stream."""
        writer = frame.writeStream.format(self.name).options(**self.address, **options)
        return writer.option("topic", topic)


@dataclass(frozen=True, slots=True)
class Bench:
    """Session, Kafka broker and folder of a run."""

    setting: Setting
    spark: SparkSession
    kafka_server: KafkaServer
    folder: Path

    @property
    def jvm(self) -> Any:
        """PySpark's view of Spark's JVM."""
        return self.spark.sparkContext._jvm  # noqa: SLF001

    def kafka(self) -> Connector:
        """Returns Spark's Kafka connector."""
        address = self.kafka_server.address
        return Connector(
            self.spark,
            name="kafka",
            body="value",
            subscribe="subscribe",
            address={"kafka.bootstrap.servers": address},
            topics=KafkaTopics(self.jvm, address),
            programs=Programs(self._jvm_pid, self.kafka_server.pid),
            sender=partial(KafkaSender, self.jvm, address),
        )

    @contextmanager
    def ours(self, flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH) -> Iterator[Connector]:
        """Yields our connector with an empty broker, which ends with its store."""
        with LocalBroker(flush=flush, commit_log_segment_bytes=SEGMENT_BYTES) as broker:
            yield Connector(
                self.spark,
                name="rocketpy",
                body="body",
                subscribe="topic",
                address={"endpoints": broker.endpoint},
                topics=broker,
                programs=Programs(self._jvm_pid, broker.pid),
                sender=partial(Sender, broker),
            )

    @property
    def _jvm_pid(self) -> int:
        return int(self.jvm.java.lang.ProcessHandle.current().pid())

    def checkpoint(self) -> str:
        """Returns a folder for the checkpoint of a new query."""
        return str(self.folder / f"checkpoint-{next(_numbers)}")

    def rows(self, count: int, body_bytes: int) -> DataFrame:
        """Returns rows with a body, which the JVM makes on demand."""
        return rows_of(self.spark, body_bytes, count)


@contextmanager
def open_bench(setting: Setting) -> Iterator[Bench]:
    """Yields a bench while its session and its Kafka broker run."""
    jars = ",".join(map(str, sorted((JARS / "spark-kafka").glob("*.jar"))))
    # As docs/performance.md advises.
    config = {"spark.jars": jars, "spark.python.unix.domain.socket.enabled": "true"}
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        kafka_server(Path(name) / "kafka") as server,
        spark_session(config) as spark,
    ):
        yield Bench(setting, spark, server, Path(name))
