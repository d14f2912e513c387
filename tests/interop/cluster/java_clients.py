"""RocketMQ's own Java clients and its mqadmin, each in a process of its own.

`java/ClusterClient.java` is the other side of a JavaClient.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.interop.cluster.processes import Program, configure_logs, until
from tests.interop.rocketmq import RocketMQStore

MQADMIN = "org.apache.rocketmq.tools.command.MQAdminStartup"
# Exceptions of a tool that waits no longer.
_NOT_ANSWERED = ("RemotingConnectException", "RemotingTimeoutException")


@dataclass(frozen=True)
class JavaMessage:
    """A message that a Java program sends.

    `options` are tags, keys, delayTimeLevel, flag, and systemProperties, which users cannot put.
    """

    body: bytes
    properties: dict[str, str] = field(default_factory=dict)
    options: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class JavaQueue:
    """A queue of the client's topic."""

    broker: str
    queue_id: int


class JavaClient:
    """A producer and a consumer for one topic. Each process has one: the next replaces it."""

    def __init__(self, process: RocketMQStore, name_servers: str, group: str, topic: str) -> None:
        self._process = process
        process.ask("connect", nameServers=name_servers, group=group, topic=topic)

    def send(self, queue: JavaQueue, messages: Sequence[JavaMessage]) -> list[dict[str, Any]]:
        """Sends one by one; messages with a property `first` go in transactions, to any queue."""
        results: list[dict[str, Any]] = self._ask("clientSend", queue, messages)["results"]
        return results

    def send_batch(self, queue: JavaQueue, messages: Sequence[JavaMessage]) -> dict[str, Any]:
        """Sends as one batch."""
        result: dict[str, Any] = self._ask("clientSendBatch", queue, messages)["results"][0]
        return result

    def pull(self, queue: JavaQueue, expression: str = "*") -> list[dict[str, Any]]:
        """Returns all messages of a queue, bodies inflated."""
        answer = self._process.ask("clientPull", expression=expression, **_queue(queue))
        return [{**one, "body": base64.b64decode(one["body"])} for one in answer["records"]]

    def until_pulled(self, queue: JavaQueue, bodies: Sequence[bytes]) -> None:
        """Waits until a queue has exactly these messages: a broker answers a send before that."""
        until(
            lambda: [one["body"] for one in self.pull(queue)] == [*bodies],
            f"pulled from {queue}: {bodies}",
            [],
        )

    def commit(self, queue: JavaQueue, offset: int) -> None:
        """Commits for the client's group."""
        self._process.ask("clientCommit", offset=offset, **_queue(queue))

    def committed(self, queue: JavaQueue) -> int:
        """Returns the offset of the client's group, as its broker reports it."""
        return int(self._process.ask("clientCommitted", **_queue(queue))["offset"])

    def offset_by_time(self, queue: JavaQueue, timestamp_ms: int) -> int:
        """Returns a queue's offset at a time."""
        answer = self._process.ask("clientOffsetByTime", timestamp=timestamp_ms, **_queue(queue))
        return int(answer["offset"])

    @property
    def asked(self) -> list[str]:
        """The messages of the transactions that the broker checked."""
        bodies: list[str] = self._process.ask("clientAsked")["asked"]
        return bodies

    def _ask(self, do: str, queue: JavaQueue, messages: Sequence[JavaMessage]) -> dict[str, Any]:
        return self._process.ask(do, messages=[_message(one) for one in messages], **_queue(queue))


# By version and topic.
ConnectJava = Callable[[str, str], JavaClient]


def mqadmin(version: str, folder: Path, *arguments: str) -> str:
    """Returns the output of a version's administration tool."""
    configure_logs(folder)

    def run() -> str:
        done = Program(version, MQADMIN, arguments).run(folder)
        return done.stdout + done.stderr

    return answered(run)


def answered(run: Callable[[], str]) -> str:
    """Returns the output of the tool's first run in which a server has answered.

    The tool waits for a server for five seconds; a busy machine may take them for the tool's start.
    """
    outputs: list[str] = []

    def is_answered() -> bool:
        outputs.append(run())
        return not any(each in outputs[-1] for each in _NOT_ANSWERED)

    until(is_answered, "answered to mqadmin", [])
    return outputs[-1]


def row(text: str, *begin: str) -> list[str]:
    """Returns the words of the line that begins with these."""
    for line in text.splitlines():
        words = line.split()
        if words[: len(begin)] == list(begin):
            return words
    raise AssertionError(text)


def _queue(queue: JavaQueue) -> dict[str, Any]:
    return {"broker": queue.broker, "queueId": queue.queue_id}


def _message(message: JavaMessage) -> dict[str, object]:
    body = base64.b64encode(message.body).decode("ascii")
    return {**message.options, "body": body, "properties": message.properties}
