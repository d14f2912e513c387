"""SIGKILL of our broker while clients of each kind use it: nothing acknowledged is lost."""

from __future__ import annotations

from functools import partial

import pytest

from tests.interop.apache_v2.clients import Clients, Producer
from tests.interop.apache_v2.conftest import ALL_AT_OURS, SDKS_AT_OURS, at
from tests.interop.apache_v2.servers import TRANSACTION, OwnServer, texts
from tests.interop.drivers import RocketMQError
from tests.interop.remoting.clients import until

pytestmark = pytest.mark.xdist_group("apache_v2")
BEFORE, AFTER = ([f"{word}-{number}" for number in range(10)] for word in ("before", "after"))


def kill(server: OwnServer) -> None:
    """Kills the broker and starts it again."""
    server.broker.kill()
    server.broker.start()


def send_all(producer: Producer, topic: str, bodies: list[str]) -> None:
    """Sends each message until it is acknowledged."""

    def is_sent(body: str) -> bool:
        try:
            producer.send(topic, body)
        except RocketMQError:
            return False
        return True

    for body in bodies:
        until(partial(is_sent, body))


@at(ALL_AT_OURS)
def test_a_producer_goes_on_and_nothing_is_lost(
    server: OwnServer, clients: Clients, topic: str
) -> None:
    server.create_topic(topic)
    producer = clients.producer(topic)
    send_all(producer, topic, BEFORE)
    kill(server)
    send_all(producer, topic, AFTER)
    assert set(texts(server, topic)) == {*BEFORE, *AFTER}


@at(ALL_AT_OURS)
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
def test_an_open_transaction_ends(
    server: OwnServer, clients: Clients, topic: str, *, commits: bool
) -> None:
    server.create_topic(topic, queues=1, kind=TRANSACTION)
    producer = clients.producer(topic)
    transaction_id = producer.transaction(topic, "open")
    kill(server)

    def ends() -> bool:
        try:
            producer.end(transaction_id, commits=commits)
        except RocketMQError:
            return False
        return True

    until(ends)
    assert texts(server, topic) == (["open"] if commits else [])
    assert server.broker.transactions() == []


@at(SDKS_AT_OURS)
def test_a_simple_consumer_gets_what_it_has_not_acknowledged(
    server: OwnServer, clients: Clients, topic: str, group: str
) -> None:
    server.create_topic(topic, queues=1)
    producer, consumer = clients.producer(topic), clients.simple(topic, group)
    send_all(producer, topic, BEFORE)
    received = consumer.receive(len(BEFORE))
    for each in received[:5]:
        consumer.ack(each)
    kill(server)
    send_all(producer, topic, AFTER)
    server.advance(11)
    found: set[str] = set()

    def is_complete() -> bool:
        try:
            found.update(each.body for each in consumer.receive_once(32))
        except RocketMQError:
            return False
        return found >= {*BEFORE[5:], *AFTER}

    until(is_complete, lambda: found)
    assert found == {*BEFORE[5:], *AFTER}


@at(SDKS_AT_OURS)
def test_a_push_consumer_goes_on(
    server: OwnServer, clients: Clients, topic: str, group: str
) -> None:
    server.create_topic(topic, queues=1)
    producer, consumer = clients.producer(topic), clients.push(topic, group)
    send_all(producer, topic, BEFORE)
    until(lambda: len(consumer.bodies()) > 0)
    kill(server)
    send_all(producer, topic, AFTER)
    until(lambda: {*consumer.bodies()} == {*BEFORE, *AFTER}, consumer.bodies)
