"""A whole RocketMQ broker with its own clients, and a directory's content for each side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketpy_broker.store.check.faults import Fault
from rocketpy_broker.store.check.read_only import StoreSizes
from rocketpy_broker.store.check.whole_store import StoreCheck
from rocketpy_broker.store.values import QueueKey
from tests.interop.cluster.servers import BROKER_PORTS, LOOPBACK, free_port
from tests.interop.remoting.clients import until as wait_until
from tests.interop.rocketmq import V5, RocketMQStore

QUEUES = 4
PRODUCERS, CONSUMERS = "producers", "consumers"
TOPIC, RETRIES, DEAD_LETTERS = "T", f"%RETRY%{CONSUMERS}", f"%DLQ%{CONSUMERS}"


@dataclass(frozen=True)
class Delivery:
    """A message as RocketMQ's consumer received it."""

    topic: str
    body: str
    reconsume_times: int


class RocketMQBroker:
    """A RocketMQ broker over a directory, in its own process; `conf` is its broker.conf."""

    def __init__(self, folder: Path, version: str = V5, **conf: object) -> None:
        scratch = folder.with_name(folder.name + "-rocketmq")
        scratch.mkdir(exist_ok=True)
        self._process = RocketMQStore(scratch / "rocketmq.log", scratch, version)
        texts = {name: str(value) for name, value in conf.items()}
        port = free_port(BROKER_PORTS)
        self.address = f"{LOOPBACK}:{port}"
        self._process.ask("startBroker", folder=str(folder), port=port, conf=texts)

    def create_topic(self) -> None:
        """Creates the topic of all messages."""
        self._process.ask("createTopic", topic=TOPIC, queues=QUEUES)

    def start_producer(self) -> None:
        """Starts a producer that sends in transactions and answers their checks."""
        self._process.ask("startProducer", group=PRODUCERS, topic=TOPIC)

    def start_consumer(self) -> None:
        """Starts a consumer of the topic and of its own retries."""
        self._process.ask("startConsumer", group=CONSUMERS, topic=TOPIC)

    def send(self, body: str, **properties: str) -> None:
        """Sends with the producer; `java/ClientDriver.java` lists the effects of the properties."""
        messages = [{"body": body, "properties": properties}]
        self._process.ask("send", topic=TOPIC, messages=messages)

    @property
    def asked(self) -> list[str]:
        """The messages of the transactions that the broker checked at the producer."""
        bodies: list[str] = self._process.ask("seen")["asked"]
        return bodies

    @property
    def consumed(self) -> list[Delivery]:
        """The messages that the consumer received."""
        seen = self._process.ask("seen")["consumed"]
        return [Delivery(one["topic"], one["body"], one["reconsumeTimes"]) for one in seen]

    def count(self, topic: str, queue_id: int = 0) -> int:
        """Returns the number of messages in a queue."""
        return self._process.range(QueueKey(topic, queue_id))["max"]

    def records(self, topic: str) -> list[dict[str, Any]]:
        """Returns a topic's visible records, in the order of the log."""
        found: list[dict[str, Any]] = []
        for queue_id in range(QUEUES):
            if self.count(topic, queue_id) > 0:
                found += self._process.dump(QueueKey(topic, queue_id))
        return sorted(found, key=lambda record: int(record["physicalOffset"]))

    def bodies(self, topic: str) -> list[str]:
        """Returns a topic's visible bodies, sorted."""
        return sorted(record["body"].decode() for record in self.records(topic))

    def until(self, is_so: Callable[[], bool]) -> None:
        """Waits until the condition holds."""
        wait_until(is_so, lambda: (self.asked, self.consumed, self.bodies(TOPIC)))

    def stop_clients(self) -> None:
        """Makes the clients leave their groups; the consumer commits its offsets."""
        self._process.ask("stopClients")

    def stop(self) -> None:
        """Stops the broker cleanly."""
        self._process.ask("stopBroker")
        self._process.end()

    def kill(self) -> None:
        """Kills the broker with SIGKILL."""
        self._process.kill()

    def __enter__(self) -> RocketMQBroker:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.kill()


def check_clean(folder: Path) -> None:
    """Asserts that `rocketpy store check` finds no fault."""
    findings = StoreCheck(folder, StoreSizes.of(folder)).run()
    assert [found for found in findings if isinstance(found, Fault)] == []
