"""One interface to RocketMQ's SDKs and to our own client, each in a process of its own.

The other sides are `python_sdk.py`, `java/SdkDriver.java` and `own_client.py`.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.apache_v2.servers import Server
from tests.interop.drivers import Driver, RocketMQError
from tests.interop.remoting.clients import until
from tests.interop.rocketmq import JAVA_OPTIONS, TOP, home_options, java_program

JAVA, PYTHON, OWN = "java", "python", "own"
JAVA_SDK = TOP / ".interop" / "java-sdk"
PYTHON_SDK = TOP / ".interop" / "python-sdk" / "bin" / "python"
# The proxy accepts no shorter one.
INVISIBLE_SECONDS = 10
# The proxy's answer to a consumer whose settings have not come, or whose group was not created.
_NO_SETTINGS = '"settings" is null'
_HERE = Path(__file__).parent
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Received:
    """A message as a consumer received it, or as a checker of transactions was asked for it.

    `deliver_at` is in milliseconds since 1970, or 0.
    """

    id: str
    body: str
    tag: str | None
    keys: Sequence[str]
    group: str | None
    properties: Mapping[str, str]
    attempt: int
    deliver_at: int = 0


class Clients:
    """Clients of one kind in one process, which use one server."""

    def __init__(self, kind: str, server: Server, folder: Path, ca_file: str | None = None) -> None:
        """Takes a file of authorities; with it all clients use TLS."""
        self.kind = kind
        self._usual: dict[str, object] = {
            "endpoints": server.endpoint if ca_file is None else server.tls_endpoint,
            "tls": ca_file is not None,
            "namespace": "",
            "accessKey": "",
            "secretKey": "",
        }
        environment = {**os.environ, "HOME": str(folder)}
        environment.pop("JDK_JAVA_OPTIONS", None)
        if kind == PYTHON:
            environment.pop("PYTHONPATH", None)
        if ca_file is not None:
            environment["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"] = ca_file
        log = folder / f"{kind}-{next(_numbers)}.log"
        self._process = Driver(_command(kind, folder), log, environment)

    @property
    def modes(self) -> Sequence[str]:
        """The kinds of sends."""
        return ["sync"] if self.kind == OWN else ["sync", "async"]

    def producer(self, *topics: str, **options: str) -> Producer:
        """Starts a producer; options of all clients are `namespace`, `accessKey`, `secretKey`."""
        return Producer(self, self._start("producer", topics=topics, **options))

    def simple(self, topic: str, group: str, expression: str = "*", **options: Any) -> Simple:
        """Starts a simple consumer; with the option `sql` the expression is SQL92."""
        return Simple(self, self._consumer("simple", topic, group, expression, options))

    def push(self, topic: str, group: str) -> Push:
        """Starts a push consumer; its listener fails `fail-2-a` twice."""
        return Push(self, self._consumer("push", topic, group, "*", {}))

    def ask(self, do: str, name: str = "", **fields: object) -> dict[str, Any]:
        """Sends a request to one client."""
        return self._process.ask(do, name=name, **fields)

    def kill(self) -> None:
        """Kills the process, as a crash does."""
        self._process.kill()

    def _consumer(
        self, kind: str, topic: str, group: str, expression: str, options: Mapping[str, object]
    ) -> str:
        usual: dict[str, object] = {"topic": topic, "expression": expression, "sql": False}
        return self._start(kind, group=group, **{**usual, **options})

    def _start(self, kind: str, **fields: object) -> str:
        name = f"{kind}-{next(_numbers)}"
        self.ask(kind, name, **self._usual | fields)
        return name


@dataclass(frozen=True)
class Producer:
    """A producer."""

    clients: Clients
    name: str

    def send(self, topic: str, *bodies: str, mode: str = "sync", **parts: Any) -> list[Any]:
        """Sends messages with the same parts; returns their receipts.

        Parts are `tag`, `keys`, `properties`, `group` and `deliverAt` in ms since 1970.
        """
        messages = [{"topic": topic, "body": body, **parts} for body in bodies]
        answer = self.clients.ask("send", self.name, messages=messages, mode=mode)
        receipts: list[Any] = answer["receipts"]
        return receipts

    def transaction(self, topic: str, body: str) -> str:
        """Sends a half message and returns its id."""
        message = {"topic": topic, "body": body, "properties": {"color": "red"}}
        answer = self.clients.ask("transaction", self.name, message=message)
        return str(answer["receipts"][0]["messageId"])

    def end(self, message_id: str, *, commits: bool) -> None:
        """Commits or rolls back a transaction."""
        self.clients.ask("end", self.name, messageId=message_id, commits=commits)

    def recall(self, topic: str, handle: str) -> str:
        """Recalls a delayed message and returns its id."""
        answer = self.clients.ask("recall", self.name, topic=topic, handle=handle)
        return str(answer["messageId"])

    def checked(self) -> list[Received]:
        """Returns the half messages for which the checker was asked."""
        return _messages(self.clients.ask("seen", self.name))


@dataclass(frozen=True)
class Simple:
    """A simple consumer."""

    clients: Clients
    name: str

    def receive(self, wanted: int, invisible_seconds: int = INVISIBLE_SECONDS) -> list[Received]:
        """Receives until there are as many messages."""
        found: list[Received] = []

        def is_complete() -> bool:
            try:
                found.extend(self.receive_once(wanted - len(found), invisible_seconds))
            except RocketMQError as error:
                # The SDK for Python does not wait until the proxy has its settings.
                if _NO_SETTINGS not in str(error):
                    raise
            return len(found) >= wanted

        until(is_complete, lambda: found)
        return found

    def receive_once(
        self, count: int, invisible_seconds: int = INVISIBLE_SECONDS
    ) -> list[Received]:
        """Waits once for messages, for some seconds."""
        answer = self.clients.ask("receive", self.name, count=count, invisible=invisible_seconds)
        return _messages(answer)

    def ack(self, message: Received) -> None:
        """Acknowledges a message."""
        self.clients.ask("ack", self.name, id=message.id)

    def change(self, message: Received, invisible_seconds: int) -> None:
        """Changes the invisible time of a message."""
        self.clients.ask("change", self.name, id=message.id, seconds=invisible_seconds)

    def stop(self) -> None:
        """Ends it with a notice to its server."""
        self.clients.ask("stop", self.name)


@dataclass(frozen=True)
class Push:
    """A push consumer."""

    clients: Clients
    name: str

    def consumed(self) -> list[Received]:
        """Returns the messages so far, in order."""
        return _messages(self.clients.ask("seen", self.name))

    def bodies(self) -> list[str]:
        """Returns the bodies so far, in order."""
        return [each.body for each in self.consumed()]


def _command(kind: str, folder: Path) -> list[str]:
    if kind == OWN:
        return [sys.executable, str(_HERE / "own_client.py")]
    if kind == PYTHON:
        return [str(PYTHON_SDK), str(_HERE / "python_sdk.py")]
    path = f"{JAVA_SDK / 'classes'}:{JAVA_SDK / 'lib'}/*"
    return [java_program(), *home_options(folder), *JAVA_OPTIONS, "-cp", path, "SdkDriver"]


def _messages(answer: Mapping[str, Any]) -> list[Received]:
    return [Received(**each) for each in answer["messages"]]
