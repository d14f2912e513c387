"""RocketMQ's SDK for Python in its own process, `sdk_program.py`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rocketmq.java_client import Sends
from tests.interop.drivers import Driver
from tests.interop.rocketmq import TOP

PYTHON = TOP / ".interop" / "python-sdk" / "bin" / "python"


@dataclass(frozen=True)
class SdkClient:
    """A running client."""

    driver: Driver

    def send(self, topic: str, sends: Sends) -> None:
        """Sends asynchronously, and waits for every acknowledgement."""
        numbers = {"count": sends.count, "bodyBytes": sends.body_bytes, "inFlight": sends.in_flight}
        self.driver.ask("send", topic=topic, **numbers)

    def listen(self, topic: str, group: str, count: int, pace_us: int) -> list[int]:
        """Returns the sorted microseconds from single sends to the call of a push listener."""
        request = {"topic": topic, "group": group, "count": count, "paceMicros": pace_us}
        micros: list[int] = self.driver.ask("listen", **request)["micros"]
        return micros

    def consume(
        self, topic: str, group: str, count: int, threads: int
    ) -> tuple[tuple[int, int], float]:
        """Receives and acknowledges messages.

        Returns the numbers of messages and of deliveries, and the seconds to the last message.
        """
        request = {"topic": topic, "group": group, "count": count, "threads": threads}
        answer = self.driver.ask("consume", **request)
        return (answer["messages"], answer["deliveries"]), answer["seconds"]


@contextmanager
def sdk_client(
    endpoints: str, folder: Path, access_key: str = "", secret_key: str = ""
) -> Iterator[SdkClient]:
    """Yields a client while it runs; its output is in the folder."""
    folder.mkdir()
    program = Path(__file__).with_name("sdk_program.py")
    command = [str(PYTHON), str(program), endpoints, access_key, secret_key]
    environment = {**os.environ, "HOME": str(folder)}
    environment.pop("PYTHONPATH", None)
    with Driver(command, folder / "output.log", environment) as driver:
        yield SdkClient(driver)
