"""Messages of three kinds that cross between one of RocketMQ's SDKs and another client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.runtime.clock import SystemClock
from tests.interop.apache_v2.clients import JAVA, PYTHON, Clients
from tests.interop.apache_v2.servers import OwnServer
from tests.interop.remoting.clients import until

HOUR_SECONDS = 3_600
# No receive takes as long: no message comes twice.
HIDDEN_SECONDS = 600
TOPIC = "T"
KINDS = ("normal", "grouped", "timed")


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    """Yields a broker with a topic of one queue."""
    with LocalBroker() as started:
        started.create_topic(TOPIC, queues=1)
        yield started


@pytest.fixture(params=[JAVA, PYTHON])
def sdk(request: pytest.FixtureRequest, broker: LocalBroker, tmp_path: Path) -> Iterator[Clients]:
    """Yields clients of an SDK, in a process of their own."""
    clients = Clients(request.param, OwnServer(broker), tmp_path)
    yield clients
    clients.kill()


@pytest.fixture
def deliver_at() -> int:
    """Returns a time in an hour, in milliseconds of a whole second."""
    return (SystemClock().now_ms() // 1_000 + HOUR_SECONDS) * 1_000


def pass_delivery_time(broker: LocalBroker) -> dict[str, str]:
    """Returns the stored ids by body, after the delivery time."""
    broker.advance_clock(HOUR_SECONDS + 10)
    until(lambda: len(broker.messages(TOPIC)) == len(KINDS), lambda: broker.messages(TOPIC))
    return {message.text: message.msg_id for message in broker.messages(TOPIC)}


def send_by_sdk(sdk: Clients, broker: LocalBroker, deliver_at: int) -> dict[str, str]:
    """Sends a message of each kind; returns the ids that the SDK gave them, by body."""
    parts: dict[str, Any] = {"tag": "a", "keys": ["k1", "k2"], "properties": {"color": "red"}}
    more: list[dict[str, Any]] = [{}, {"group": "g"}, {"deliverAt": deliver_at}]
    producer = sdk.producer(TOPIC)
    ids = {
        kind: producer.send(TOPIC, kind, **parts, **each)[0]["messageId"]
        for kind, each in zip(KINDS, more, strict=True)
    }
    assert pass_delivery_time(broker) == ids
    return ids


def check_received(sdk: Clients, ids: dict[str, str], deliver_at: int) -> None:
    """Asserts that the SDK receives a message of each kind with all its parts."""
    consumer = sdk.simple(TOPIC, "sdk")
    received = {each.body: each for each in consumer.receive(len(KINDS), HIDDEN_SECONDS)}
    for each in received.values():
        consumer.ack(each)
        assert (each.tag, sorted(each.keys)) == ("a", ["k1", "k2"])
        assert (each.properties, each.attempt) == ({"color": "red"}, 1)
    assert {body: each.id for body, each in received.items()} == ids
    assert [received[kind].group for kind in KINDS] == [None, "g", None]
    assert [received[kind].deliver_at for kind in KINDS] == [0, 0, deliver_at]
