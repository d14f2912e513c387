"""Messages between RocketMQ's SDKs and RocketMQ's classic Java client."""

from __future__ import annotations

import pytest

from rocketpy_broker import LocalBroker
from tests.interop.apache_v2.clients import Clients
from tests.interop.apache_v2.crossings.crossings import (
    KINDS,
    TOPIC,
    broker,
    check_received,
    deliver_at,
    pass_delivery_time,
    sdk,
    send_by_sdk,
)
from tests.interop.cluster.java_clients import JavaClient, JavaMessage, JavaQueue
from tests.interop.remoting.conftest import JavaOf, java_of
from tests.interop.rocketmq import VERSIONS

__all__ = ["broker", "deliver_at", "java_of", "sdk"]

QUEUE = JavaQueue("broker-a", 0)
pytestmark = pytest.mark.parametrize("java", VERSIONS, indirect=True)


@pytest.fixture
def java(request: pytest.FixtureRequest, broker: LocalBroker, java_of: JavaOf) -> JavaClient:
    """Returns a classic client of a version."""
    return JavaClient(java_of(request.param), broker.name_server, "java", TOPIC)


def test_the_classic_client_pulls_what_the_sdk_has_sent(
    broker: LocalBroker, sdk: Clients, java: JavaClient, deliver_at: int
) -> None:
    ids = send_by_sdk(sdk, broker, deliver_at)
    found = {each["body"].decode(): each for each in java.pull(QUEUE)}
    assert {body: each["msgId"] for body, each in found.items()} == ids
    for each in found.values():
        assert (each["tags"], sorted(each["keys"].split())) == ("a", ["k1", "k2"])
        assert each["properties"]["color"] == "red"
    for name, values in {
        "__SHARDINGKEY": [None, "g", None],
        "TIMER_DELIVER_MS": [None, None, str(deliver_at)],
    }.items():
        assert [found[kind]["properties"].get(name) for kind in KINDS] == values


def test_the_sdk_receives_what_the_classic_client_has_sent(
    broker: LocalBroker, sdk: Clients, java: JavaClient, deliver_at: int
) -> None:
    more = [{}, {"__SHARDINGKEY": "g"}, {"TIMER_DELIVER_MS": str(deliver_at)}]
    parts = {"tags": "a", "keys": ["k1", "k2"]}
    messages = [
        JavaMessage(kind.encode(), {"color": "red"}, {**parts, "systemProperties": each})
        for kind, each in zip(KINDS, more, strict=True)
    ]
    sent = java.send(QUEUE, messages)
    ids = {kind: each["msgId"] for kind, each in zip(KINDS, sent, strict=True)}
    assert pass_delivery_time(broker) == ids
    check_received(sdk, ids, deliver_at)
