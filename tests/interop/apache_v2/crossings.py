"""Messages of three kinds that cross between RocketMQ's SDK for Python and another client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.runtime.clock import SystemClock
from tests.interop.apache_v2.python_messages import PythonMessages
from tests.interop.remoting.clients import until

HOUR_SECONDS = 3_600
TOPIC = "T"
KINDS = ("normal", "grouped", "timed")


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    """Yields a broker with a topic of one queue."""
    with LocalBroker() as started:
        started.create_topic(TOPIC, queues=1)
        yield started


@pytest.fixture
def deliver_at() -> int:
    """Returns a time in an hour, in milliseconds of a whole second."""
    return (SystemClock().now_ms() // 1_000 + HOUR_SECONDS) * 1_000


def pass_delivery_time(broker: LocalBroker) -> dict[str, str]:
    """Returns the stored ids by body, after the delivery time."""
    broker.advance_clock(HOUR_SECONDS + 10)
    until(lambda: len(broker.messages(TOPIC)) == len(KINDS), lambda: broker.messages(TOPIC))
    return {message.text: message.msg_id for message in broker.messages(TOPIC)}


def send_by_sdk(sdk: PythonMessages, broker: LocalBroker, deliver_at: int) -> dict[str, str]:
    """Sends a message of each kind; returns the ids that the SDK gave them, by body."""
    parts = {"tag": "a", "keys": ["k1", "k2"], "properties": {"color": "red"}}
    more: list[dict[str, Any]] = [{}, {"message_group": "g"}, {"deliverAt": deliver_at}]
    messages = [{"body": kind, **parts, **each} for kind, each in zip(KINDS, more, strict=True)]
    ids = dict(zip(KINDS, sdk.send(broker, TOPIC, *messages), strict=True))
    assert pass_delivery_time(broker) == ids
    return ids


def check_received(
    sdk: PythonMessages, broker: LocalBroker, ids: dict[str, str], deliver_at: int
) -> None:
    """Asserts that the SDK receives a message of each kind with all its parts."""
    received: dict[str, dict[str, Any]] = {}

    def is_complete() -> bool:
        received.update({each["body"]: each for each in sdk.receive(broker, TOPIC, "sdk")})
        return received.keys() == {*KINDS}

    until(is_complete, lambda: received)
    assert {body: each["id"] for body, each in received.items()} == ids
    for each in received.values():
        assert (each["tag"], sorted(each["keys"])) == ("a", ["k1", "k2"])
        assert (each["properties"], each["attempt"]) == ({"color": "red"}, 1)
    assert [received[kind]["group"] for kind in KINDS] == [None, "g", None]
    assert [received[kind]["deliverAt"] for kind in KINDS] == [0, 0, deliver_at]
