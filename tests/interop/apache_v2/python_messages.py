"""Messages that RocketMQ's SDK for Python sends and receives, and its log."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker import LocalBroker
from tests.interop.apache_v2.conftest import PYTHON
from tests.interop.drivers import Driver

PROGRAMS = ("python_sdk.py", "python_consumers.py")
_numbers = itertools.count(1)


class PythonMessages:
    """Producers and consumers of the SDK, of one message or receive each.

    `keys` are `accessKey` and `secretKey`.
    """

    def __init__(self, producers: Driver, consumers: Driver, home: Path) -> None:
        self._producers, self._consumers = producers, consumers
        self._home = home

    def send(
        self, broker: LocalBroker, topic: str, *messages: Mapping[str, Any], **keys: str
    ) -> list[str]:
        """Sends messages with `body`, `tag` and so on; returns their ids. Raises RocketMQError."""
        name = f"producer-{next(_numbers)}"
        usual = {"name": name, "namespace": "", "tls": False, "accessKey": "", "secretKey": ""}
        configuration = usual | {"endpoints": broker.endpoint, "topics": [topic]} | keys
        self._producers.ask("producer", **configuration)
        parts = [{"topic": topic, **each} for each in messages]
        answer = self._producers.ask("send", name=name, messages=parts, mode="sync")
        self._producers.ask("stop", name=name)
        return [receipt["messageId"] for receipt in answer["receipts"]]

    def receive(
        self, broker: LocalBroker, topic: str, group: str, **keys: str
    ) -> list[dict[str, Any]]:
        """Returns the messages of one receive, and acknowledges them. Raises RocketMQError."""
        name = f"consumer-{next(_numbers)}"
        usual = {"name": name, "namespace": "", "tls": False, "accessKey": "", "secretKey": ""}
        subscription = {"topic": topic, "group": group, "sql": False, "expression": "*"}
        self._consumers.ask(
            "simple", **usual | {"endpoints": broker.endpoint} | subscription | keys
        )
        found: list[dict[str, Any]] = self._consumers.ask(
            "receive", name=name, count=32, invisible=60
        )["messages"]
        for message in found:
            self._consumers.ask("ack", name=name, id=message["id"], ids=[message["id"]])
        self._consumers.ask("stop", name=name)
        return found

    def log(self) -> str:
        """Returns the text that the SDK has logged."""
        return (self._home / "logs/rocketmq_python/rocketmq_client.log").read_text("utf-8")


@pytest.fixture
def python_messages(tmp_path: Path) -> Iterator[PythonMessages]:
    """Yields processes of the SDK, whose home has its logs."""
    environment = {**os.environ, "HOME": str(tmp_path)}
    environment.pop("PYTHONPATH", None)
    with ExitStack() as stack:
        producers, consumers = (
            stack.enter_context(
                Driver(
                    [str(PYTHON), str(Path(__file__).with_name(program))],
                    tmp_path / f"{program}.log",
                    environment,
                )
            )
            for program in PROGRAMS
        )
        yield PythonMessages(producers, consumers, tmp_path)
