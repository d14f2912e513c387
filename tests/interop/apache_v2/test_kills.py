"""SIGKILL of our broker while clients of each kind use it: nothing acknowledged is lost.

No message comes twice within its invisible time.
"""

from __future__ import annotations

import contextlib
from functools import partial

import pytest

from tests.interop.apache_v2.clients import Clients, Producer, Received, Simple
from tests.interop.apache_v2.conftest import ALL_AT_OURS, SDKS_AT_OURS, at
from tests.interop.apache_v2.servers import TRANSACTION, OwnServer, texts
from tests.interop.drivers import RocketMQError
from tests.interop.remoting.clients import until

pytestmark = pytest.mark.xdist_group("apache_v2")
BEFORE, AFTER = ([f"{word}-{number}" for number in range(10)] for word in ("before", "after"))
# No kill and no start takes as long.
HIDDEN_SECONDS = 600


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
    assert sorted(texts(server, topic)) == sorted([*BEFORE, *AFTER])


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
    received = consumer.receive(len(BEFORE), HIDDEN_SECONDS)
    for each in received[:5]:
        consumer.ack(each)
    kill(server)
    send_all(producer, topic, AFTER)
    # Within the invisible time the other messages do not come.
    later = receive_all(consumer, len(AFTER))
    assert sorted(each.body for each in later) == AFTER
    assert {each.attempt for each in later} == {1}
    for each in later:
        consumer.ack(each)
    server.advance(HIDDEN_SECONDS + 1)
    again = receive_all(consumer, len(received[5:]))
    assert sorted(each.body for each in again) == sorted(each.body for each in received[5:])
    assert {each.attempt for each in again} == {2}


def receive_all(consumer: Simple, wanted: int) -> list[Received]:
    """Receives as many messages from a broker that may not serve yet, and what else comes."""
    found: list[Received] = []

    def is_complete() -> bool:
        with contextlib.suppress(RocketMQError):
            found.extend(consumer.receive_once(32, HIDDEN_SECONDS))
        return len(found) >= wanted

    until(is_complete, lambda: found)
    return found


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
    until(lambda: {*consumer.bodies()} >= {*BEFORE, *AFTER}, consumer.bodies)
    assert sorted(consumer.bodies()) == sorted([*BEFORE, *AFTER])
