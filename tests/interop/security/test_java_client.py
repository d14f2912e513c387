"""RocketMQ's classic Java client with an AclClientRPCHook."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rocketpy_broker import LocalBroker
from tests.interop.drivers import RocketMQError
from tests.interop.remoting.clients import Messaging, until_consumed
from tests.interop.security.conftest import (
    GROUP,
    REFUSED,
    TOPIC,
    WRONG,
    Signing,
    in_java,
    keys,
    texts,
)

pytestmark = [in_java, pytest.mark.usefixtures("topic")]


@pytest.fixture
def clients(java: Signing) -> Iterator[Messaging]:
    """Yields classic clients, which stop with the test."""
    started = java.clients()
    yield started
    started.stop_all()


def test_the_classic_client_sends_and_consumes_with_its_keys(
    broker: LocalBroker, clients: Messaging
) -> None:
    consumer = clients.consumer(TOPIC, group=GROUP, **keys("reader"))
    clients.producer(**keys("writer")).send(TOPIC, ["signed"])
    until_consumed([consumer], ["signed"])
    assert texts(broker) == ["signed"]


def test_the_classic_client_is_refused_with_wrong_keys_or_without_permission(
    broker: LocalBroker, clients: Messaging
) -> None:
    # Without keys for its route, the client reports that it has none.
    for given in (keys("writer", WRONG), {}):
        with pytest.raises(RocketMQError, match=f"No route info of this topic: {TOPIC}"):
            clients.producer(**given).send(TOPIC, ["refused"])
    with pytest.raises(RocketMQError, match=rf"{REFUSED}.*reader.*PUB.*{TOPIC}"):
        clients.producer(**keys("reader")).send(TOPIC, ["refused"])
    assert texts(broker) == []
