"""A Kafka broker in its own process, and clients of it in Spark's JVM.

`make bench-peers` fetches its jars. The broker is its own controller, and keeps Kafka's settings
but for its place and the replication of its own topics. It has the heap and the collector of
kafka-server-start.sh.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.cluster.processes import ServerProcess, until
from tests.interop.cluster.servers import LOOPBACK, free_port
from tests.interop.rocketmq import TOP, java_program

JARS = TOP / ".interop" / "peers"
JVM_OPTIONS = (
    *("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    # Of deleted topics: a turn's messages go before the next turn.
    "log.segment.delete.delay.ms": 1000,
}
_CLUSTER_ID = "cm9ja2V0cHktcGVlcnMtMQ"
_BYTES = "org.apache.kafka.common.serialization.ByteArraySerializer"


@dataclass(frozen=True)
class KafkaProgram:
    """A main class of Kafka with its arguments."""

    main_class: str
    arguments: tuple[str, ...]

    def command(self, folder: Path) -> list[str]:
        """Returns the whole command line."""
        return [
            *(java_program(), *JVM_OPTIONS, "-cp", f"{JARS / 'kafka'}/*"),
            *(self.main_class, *self.arguments),
        ]


class KafkaServer(ServerProcess):
    """A broker that keeps its data in its folder."""

    def __init__(self, folder: Path) -> None:
        self.port = port = free_port((0, 1))
        self.address = f"{LOOPBACK}:{port}"
        listeners = f"PLAINTEXT://{self.address},CONTROLLER://{LOOPBACK}:{port + 1}"
        settings = {
            **SETTINGS,
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.quorum.voters": f"1@{LOOPBACK}:{port + 1}",
            "log.dirs": folder / "data",
        }
        self._path = folder / "server.properties"
        super().__init__("kafka", folder, KafkaProgram("kafka.Kafka", (str(self._path),)))
        self._path.write_text("".join(f"{name}={each}\n" for name, each in settings.items()))

    def serve(self) -> None:
        """Formats the folder, starts, and waits until the port is open."""
        words = ("format", "--cluster-id", _CLUSTER_ID, "--config", str(self._path))
        command = KafkaProgram("kafka.tools.StorageTool", words).command(self.folder)
        with (self.folder / "format.log").open("wb") as output:
            subprocess.run(command, check=True, stdout=output, stderr=subprocess.STDOUT)
        self.start()

        def answers() -> bool:
            with socket.create_connection((LOOPBACK, self.port)):
                return True

        until(answers, "served by Kafka", [self])


@contextmanager
def kafka_server(folder: Path) -> Iterator[KafkaServer]:
    """Yields a broker while it runs; then it is killed."""
    server = KafkaServer(folder)
    try:
        server.serve()
        yield server
    finally:
        server.kill()


class KafkaTopics:
    """Creates and deletes topics. `jvm` is PySpark's view of Spark's JVM."""

    def __init__(self, jvm: Any, address: str) -> None:
        self._jvm = jvm
        admin = jvm.org.apache.kafka.clients.admin.AdminClient
        self._admin = admin.create(_properties(jvm, {"bootstrap.servers": address}))

    def create_topic(self, topic: str, queues: int) -> None:
        """Creates a topic with a number of partitions."""
        of, empty = self._jvm.java.util.Optional.of, self._jvm.java.util.Optional.empty
        made = self._jvm.org.apache.kafka.clients.admin.NewTopic(topic, of(queues), empty())
        self._admin.createTopics(self._jvm.java.util.Collections.singleton(made)).all().get()

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic; Kafka removes its files a second later."""
        self._admin.deleteTopics(self._jvm.java.util.Collections.singleton(topic)).all().get()


class KafkaSender:
    """A producer of single messages to partition 0, with Kafka's defaults."""

    def __init__(self, jvm: Any, address: str, topic: str) -> None:
        producer = jvm.org.apache.kafka.clients.producer
        serializers = {"key.serializer": _BYTES, "value.serializer": _BYTES}
        settings = {"bootstrap.servers": address, **serializers}
        self._producer = producer.KafkaProducer(_properties(jvm, settings))
        self._record = producer.ProducerRecord(topic, 0, None, bytearray(100))

    def send(self) -> None:
        """Sends one and waits for its acknowledgement."""
        self._producer.send(self._record).get()

    def close(self) -> None:
        """Closes the producer."""
        self._producer.close()


def _properties(jvm: Any, settings: Mapping[str, str]) -> Any:
    properties = jvm.java.util.Properties()
    for name, value in settings.items():
        properties.put(name, value)
    return properties
