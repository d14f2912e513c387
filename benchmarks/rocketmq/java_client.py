"""RocketMQ's own Java client in its own process, `tests/interop/java/BenchClient.java`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.interop.cluster.processes import DIE_WITH_PARENT, Program, environment
from tests.interop.drivers import Driver
from tests.interop.rocketmq import classes_of

# Unlike in tests the JVM compiles fully.
JVM_OPTIONS = ("-Xms256m", "-Xmx1g")


@dataclass(frozen=True)
class Sends:
    """Messages of the same size: `batch` of them in a request, `in_flight` requests at once."""

    count: int
    body_bytes: int
    in_flight: int
    batch: int = 1


@dataclass(frozen=True)
class JavaClient:
    """A running client; its JVM has compiled the code of earlier requests."""

    driver: Driver

    def send(self, topic: str, sends: Sends) -> None:
        """Sends asynchronously, and waits for every acknowledgement."""
        self.driver.ask(
            "send",
            topic=topic,
            count=sends.count,
            bodyBytes=sends.body_bytes,
            inFlight=sends.in_flight,
            batch=sends.batch,
        )

    def pull(self, topic: str) -> tuple[int, int]:
        """Reads all of a topic; returns the number of messages and of their bodies' bytes."""
        answer = self.driver.ask("pull", topic=topic)
        return answer["messages"], answer["bodyBytes"]

    def listen(self, topic: str, group: str, count: int, pace_us: int) -> list[int]:
        """Returns the sorted microseconds from single sends to the call of a push listener."""
        request = {"topic": topic, "group": group, "count": count, "paceMicros": pace_us}
        micros: list[int] = self.driver.ask("listen", **request)["micros"]
        return micros


def is_compiled(version: str) -> bool:
    """True if RocketMQ's jars of a version are here, and the client is compiled against them."""
    return (classes_of(version) / "BenchClient.class").exists()


@contextmanager
def java_client(version: str, name_servers: str, folder: Path) -> Iterator[JavaClient]:
    """Yields a client of a RocketMQ version while it runs; its output is in the folder."""
    folder.mkdir()
    program = Program(version, "BenchClient", (name_servers,), jvm_options=JVM_OPTIONS)
    command = [*DIE_WITH_PARENT, *program.command(folder)]
    with Driver(command, folder / "output.log", environment(folder)) as driver:
        yield JavaClient(driver)
