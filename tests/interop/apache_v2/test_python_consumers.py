"""RocketMQ's SDK for Python as simple and push consumers of our broker."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker import LocalBroker
from tests.interop.apache_v2.conftest import PYTHON
from tests.interop.drivers import Driver
from tests.interop.remoting.clients import until

_numbers = itertools.count(1)


@pytest.fixture
def consumers(tmp_path: Path) -> Iterator[Driver]:
    """Yields a process of the SDK, whose home has its logs."""
    program = str(Path(__file__).with_name("python_consumers.py"))
    environment = {**os.environ, "HOME": str(tmp_path)}
    environment.pop("PYTHONPATH", None)
    with Driver([str(PYTHON), program], tmp_path / "consumers.log", environment) as process:
        yield process


class Consumer:
    """A consumer in the SDK's process; its kind is `simple` or `push`."""

    def __init__(self, kind: str, process: Driver, broker: LocalBroker, **more: str) -> None:
        self._process = process
        self.name = f"consumer-{next(_numbers)}"
        usual = {"group": "g", "topic": "T"}
        self.ask(kind, endpoints=broker.endpoint, **usual | more)

    def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        return self._process.ask(do, name=self.name, **fields)

    def receive(self, **fields: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("receive", **fields)["messages"]
        return found

    def consumed(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("consumed")["messages"]
        return found

    def bodies(self) -> list[str]:
        return [each["body"] for each in self.consumed()]


def test_a_simple_consumer_gets_messages_with_all_their_parts(
    broker: LocalBroker, consumers: Driver
) -> None:
    broker.create_topic("T", queues=4)
    consumer = Consumer("simple", consumers, broker)
    (sent,) = broker.send("T", "a", tags="A", keys=["k1"], properties={"color": "red"})
    (message,) = consumer.receive()
    assert (message["body"], message["tag"], message["keys"]) == ("a", "A", ["k1"])
    assert message["properties"] == {"color": "red"}
    assert (message["attempt"], message["corrupted"]) == (1, False)
    assert message["id"] == sent.msg_id
    consumer.ask("ack", ids=[message["id"]])
    broker.advance_clock(20)
    assert consumer.receive() == []
    consumer.ask("stop")


@pytest.mark.parametrize(
    "given", [{"tags": "A || C"}, {"sql": "color = 'red'"}], ids=["tag", "sql92"]
)
def test_a_simple_consumer_gets_what_its_filter_selects(
    broker: LocalBroker, consumers: Driver, given: dict[str, str]
) -> None:
    broker.create_topic("T", queues=1)
    for tag, color in [("A", "red"), ("B", "blue"), ("C", "red")]:
        broker.send("T", tag, tags=tag, properties={"color": color})
    consumer = Consumer("simple", consumers, broker, **given)
    assert [each["body"] for each in consumer.receive()] == ["A", "C"]


def test_a_changed_invisible_time_counts_for_a_simple_consumer(
    broker: LocalBroker, consumers: Driver
) -> None:
    broker.create_topic("T", queues=1)
    broker.send("T", "a")
    consumer = Consumer("simple", consumers, broker)
    (first,) = consumer.receive()
    consumer.ask("change", id=first["id"], seconds=60)
    broker.advance_clock(20)
    assert consumer.receive() == []
    consumer.ask("change", id=first["id"], seconds=1)
    again: list[dict[str, Any]] = []

    def is_back() -> bool:
        again.extend(consumer.receive())
        return len(again) > 0

    until(is_back)
    assert [(each["body"], each["attempt"]) for each in again] == [("a", 2)]
    consumer.ask("ack", ids=[first["id"]])


def test_push_consumers_share_messages_and_get_failed_ones_again(
    broker: LocalBroker, consumers: Driver
) -> None:
    broker.create_topic("T", queues=4)
    members = [Consumer("push", consumers, broker) for _ in range(2)]
    sent = [f"m-{number}" for number in range(50)]
    broker.send("T", [*sent, "fail-1-a"])
    wanted = sorted([*sent, "fail-1-a", "fail-1-a"])
    found: list[str] = []

    def is_complete() -> bool:
        found[:] = sorted(body for each in members for body in each.bodies())
        return len(found) >= len(wanted)

    until(is_complete, lambda: found)
    assert found == wanted
    failed = [each for one in members for each in one.consumed() if each["body"] == "fail-1-a"]
    assert sorted(each["attempt"] for each in failed) == [1, 2]
    for each in members:
        each.ask("stop")


def test_an_ordered_push_consumer_keeps_the_order_and_forwards_dead_letters(
    broker: LocalBroker, consumers: Driver
) -> None:
    broker.create_topic("T", queues=1)
    broker.create_group("g", consume_message_orderly=True, retry_max_times=1)
    consumer = Consumer("push", consumers, broker)
    sent = ["m-0", "fail-1-a", "m-1", "fail-9-b", "m-2"]
    broker.send("T", sent, properties={"__SHARDINGKEY": "order"})
    wanted = ["m-0", "fail-1-a", "fail-1-a", "m-1", "fail-9-b", "fail-9-b", "m-2"]
    until(lambda: len(consumer.bodies()) >= len(wanted), consumer.bodies)
    assert consumer.bodies() == wanted
    until(lambda: [each.text for each in broker.messages("%DLQ%g")] == ["fail-9-b"])
    consumer.ask("stop")


def test_a_push_consumer_goes_on_after_a_kill_of_the_broker(
    broker: LocalBroker, consumers: Driver
) -> None:
    broker.create_topic("T", queues=1)
    consumer = Consumer("push", consumers, broker)
    broker.send("T", "before")
    until(lambda: "before" in consumer.bodies())
    broker.kill()
    broker.start()
    broker.send("T", "after")
    until(lambda: "after" in consumer.bodies(), consumer.bodies)
