"""Producers and consumers of RocketMQ's own clients, in a process of their language.

The other sides are `java/Messaging.java` and `go/main.go`.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.interop.cluster.processes import PAUSE_SECONDS
from tests.interop.drivers import Driver
from tests.interop.rocketmq import TOP, VERSIONS
from tests.support.time_limits import WAIT_SECONDS_MAX

GO = "go"
in_java = pytest.mark.parametrize("client", VERSIONS, indirect=True, scope="session")
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Consumed:
    """A message as a consumer received it."""

    body: str
    topic: str
    queue_id: int
    queue_offset: int
    reconsume_times: int
    msg_id: str
    age_ms: int


@contextmanager
def go_process(folder: Path) -> Iterator[Driver]:
    """Yields a process of Go clients; `folder` is its home, which has the local offsets."""
    environment = {**os.environ, "HOME": str(folder), "ROCKETMQ_GO_LOG_LEVEL": "warn"}
    command = [str(TOP / ".interop" / "go" / "client")]
    with Driver(command, folder / "go.log", environment) as process:
        yield process


class Messaging:
    """Clients in one process, by name."""

    def __init__(self, process: Driver, name_servers: str, version: str) -> None:
        self._process = process
        self.version = version
        self._name_servers = name_servers
        self._names: list[str] = []

    def producer(self, group: str = "producers", **options: object) -> Producer:
        """Starts a producer with the options `mode`, `trace`, `namespace` (Java), `tls` (Go)."""
        name = self._start("produce", group=group, **options)
        return Producer(self, name)

    def consumer(
        self,
        topic: str,
        kind: str = "concurrent",
        group: str = "consumers",
        expression: str = "*",
        **options: object,
    ) -> Consumer:
        """Starts a consumer: concurrent, orderly, broadcasting, replying, pull; in Java pop.

        Options: `trace`, `maxReconsumeTimes`, `isSql` for an expression of SQL92, `namespace`
        (Java), `tls` (Go).
        """
        usual = {"topic": topic, "kind": kind, "group": group, "expression": expression}
        name = self._start("consume", **usual, **options)
        return Consumer(self, name)

    def ask(self, act: str, name: str, **request: object) -> dict[str, Any]:
        """Asks one client."""
        return self._process.ask("messaging", act=act, name=name, **request)

    def stop(self, name: str) -> None:
        """Stops one client."""
        self._names.remove(name)
        self.ask("stop", name)

    def stop_all(self) -> None:
        """Stops all clients."""
        for name in reversed(self._names[:]):
            self.stop(name)

    def _start(self, act: str, **request: object) -> str:
        name = f"client-{next(_numbers)}"
        self._names.append(name)
        self.ask(act, name, nameServers=self._name_servers, **request)
        return name


@dataclass(frozen=True)
class Producer:
    """A producer."""

    messaging: Messaging
    name: str

    def send(
        self, topic: str, bodies: Sequence[str], mode: str = "sync", **options: object
    ) -> list[dict[str, Any]]:
        """Sends messages: sync, async, oneway, batch, or ordered by an `orderKey`."""
        answer = self.messaging.ask(
            "send", self.name, topic=topic, bodies=list(bodies), mode=mode, **options
        )
        results: list[dict[str, Any]] = answer["results"]
        return results

    def request(self, topic: str, body: str) -> str:
        """Sends a request and returns the reply."""
        reply: str = self.messaging.ask("request", self.name, topic=topic, body=body)["reply"]
        return reply

    def recall(self, topic: str, handle: str) -> str:
        """Recalls a message with a delivery time; returns its id."""
        msg_id: str = self.messaging.ask("recall", self.name, topic=topic, handle=handle)["msgId"]
        return msg_id

    def asked(self) -> list[str]:
        """Returns the bodies of the transactions that the broker has checked."""
        bodies: list[str] = self.messaging.ask("asked", self.name)["asked"]
        return bodies


@dataclass(frozen=True)
class Consumer:
    """A consumer."""

    messaging: Messaging
    name: str

    def consumed(self) -> list[Consumed]:
        """Returns the messages so far, in order."""
        return [
            Consumed(
                each["body"],
                each["topic"],
                each["queueId"],
                each["queueOffset"],
                each["reconsumeTimes"],
                each["msgId"],
                each["ageMs"],
            )
            for each in self.messaging.ask("consumed", self.name)["consumed"]
        ]

    def bodies(self) -> list[str]:
        """Returns the bodies so far, in order."""
        return [each.body for each in self.consumed()]

    def release(self) -> None:
        """Lets the listener go on with bodies that begin with `hold`."""
        self.messaging.ask("release", self.name)

    def stop(self) -> None:
        """Stops the consumer, which commits its offsets."""
        self.messaging.stop(self.name)


def until(is_so: Callable[[], bool], seen: Callable[[], object] = lambda: "") -> None:
    """Waits until the condition holds."""
    end = time.monotonic() + WAIT_SECONDS_MAX
    while not is_so():
        assert time.monotonic() < end, seen()
        time.sleep(PAUSE_SECONDS)


def until_consumed(consumers: Sequence[Consumer], bodies: Sequence[str]) -> None:
    """Waits until the consumers have received these bodies together, in any order."""
    until(
        lambda: set(bodies) <= {body for each in consumers for body in each.bodies()},
        lambda: {each.name: each.bodies() for each in consumers},
    )
