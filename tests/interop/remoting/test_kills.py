"""Kills of our broker while RocketMQ's own Java and Go clients consume and decide."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker
from tests.interop.drivers import RocketMQError
from tests.interop.remoting.clients import Consumer, Messaging, Producer, until, until_consumed
from tests.interop.remoting.test_clients import (
    CHECK_SECONDS,
    in_5,
    numbered,
    set_pop,
    until_registered,
)


def send_again(producer: Producer, bodies: list[str]) -> None:
    """Sends each message until it is acknowledged, after the end of the broker."""

    def is_sent(body: str) -> bool:
        try:
            producer.send("T", [body])
        except RocketMQError:
            return False
        return True

    for body in bodies:
        until(partial(is_sent, body))


def kill_amid(broker: LocalBroker, producer: Producer, consumer: Consumer) -> list[str]:
    """Kills the broker while the consumer has messages that it has not consumed; starts it again.

    Returns the bodies of all acknowledged messages, when the consumer has received them.
    """
    before, held, after = numbered("before", 5), numbered("hold", 45), numbered("after", 50)
    producer.send("T", before + held)
    until_consumed([consumer], before)
    broker.kill()
    assert not {*held}.intersection(consumer.bodies())
    broker.start()
    send_again(producer, after)
    consumer.release()
    until_consumed([consumer], before + held + after)
    return before + held + after


@pytest.mark.parametrize("kind", ["concurrent", "orderly", "pull"])
def test_a_killed_broker_loses_nothing_that_was_acknowledged(
    broker: LocalBroker, messaging: Messaging, kind: str
) -> None:
    broker.create_topic("T", queues=1)
    consumer = messaging.consumer("T", kind)
    sent = kill_amid(broker, messaging.producer(), consumer)
    if kind == "orderly":
        first_places = [consumer.bodies().index(body) for body in sent]
        assert first_places == sorted(first_places)


# Older clients, and the Go client, take 30 s to reconnect.
@in_5
def test_a_broadcasting_consumer_goes_on_after_a_kill(
    broker: LocalBroker, messaging: Messaging
) -> None:
    broker.create_topic("T", queues=1)
    kill_amid(broker, messaging.producer(), messaging.consumer("T", "broadcasting"))


def test_a_killed_broker_decides_each_transaction_once(
    broker: LocalBroker, messaging: Messaging
) -> None:
    broker.create_topic("T", queues=1)
    consumer, producer = messaging.consumer("T"), messaging.producer(mode="transaction")
    kinds = ["commit", "rollback", "later commit", "later rollback"]
    producer.send("T", [f"{kind} {number}" for number in range(10) for kind in kinds])
    # The producer does not wait for the storage of its decisions.
    broker.kill()
    broker.start()
    until_registered(broker, "producers")
    broker.advance_clock(CHECK_SECONDS)
    until(lambda: bool(producer.asked()))
    # Some of the checks are answered, the remaining ones are under way.
    broker.kill()
    broker.start()
    until_registered(broker, "producers")

    def is_decided() -> bool:
        broker.advance_clock(CHECK_SECONDS)
        return broker.transactions() == []

    until(is_decided, broker.transactions)
    committed = [f"{kind}commit {number}" for kind in ("", "later ") for number in range(10)]
    until_consumed([consumer], committed)
    assert sorted(each.text for each in broker.messages("T")) == sorted(committed)
    assert {*consumer.bodies()} == {*committed}


@in_5
def test_a_killed_broker_loses_no_message_of_a_pop_consumer(
    broker: LocalBroker, messaging: Messaging, tmp_path: Path
) -> None:
    broker.create_topic("T", queues=1)
    set_pop(broker, messaging, tmp_path)
    kill_amid(broker, messaging.producer(), messaging.consumer("T", "pop"))
