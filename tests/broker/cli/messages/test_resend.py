"""`rocketpy message resend` and `dlq resend` into topics of every message type."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count

import pytest

from rocketpy_broker import LocalBroker, LocalBrokerError, Message
from tests.support.broker.shell import run

TYPES = ["NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "UNSPECIFIED"]
_numbers = count()


@pytest.fixture
def number() -> int:
    """Returns a number that no other test has."""
    return next(_numbers)


@pytest.fixture
def messages(rocketpy_broker: LocalBroker, rocketpy_topic: str) -> list[Message]:
    """Returns three messages: plain, with a message group, with a property of the user's."""
    shop = {"shop": "3", "_SYS_MSG_PRIORITY_": "7"}
    groups: Iterator[dict[str, str]] = iter([{}, {"__SHARDINGKEY": "g1"}, shop])
    for body, properties in zip("abc", groups, strict=True):
        rocketpy_broker.send(rocketpy_topic, body, tags="A", properties=properties, queue_id=0)
    return rocketpy_broker.messages(rocketpy_topic)


def typed(broker: LocalBroker, message_type: str, number: int) -> str:
    topic = f"resent-{message_type}-{number}"
    broker.create_topic(topic, queues=4, attributes={"message.type": message_type})
    return topic


@pytest.mark.parametrize("message_type", TYPES)
def test_r03_dead_letters_are_sent_to_a_topic_of_any_type(
    rocketpy_broker: LocalBroker, messages: list[Message], message_type: str, number: int
) -> None:
    topic, group = typed(rocketpy_broker, message_type, number), f"resender-{number}"
    for message in messages:
        rocketpy_broker.send_back(message, group, delay_level=-1)
    words = ("dlq", "resend", group, "--to", topic, "--json")
    shown = run(rocketpy_broker, *words)
    assert (shown.exit_code, shown.stderr) == (0, "")
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [row["topic"] for row in rows] == [topic] * 3
    check_sent(rocketpy_broker, topic, messages, [row["msgId"] for row in rows])
    assert [row["msgId"] for row in rows] == [message.msg_id for message in messages]


@pytest.mark.parametrize("message_type", TYPES)
def test_r03_messages_are_sent_again_to_a_topic_of_any_type(
    rocketpy_broker: LocalBroker, messages: list[Message], message_type: str, number: int
) -> None:
    topic = typed(rocketpy_broker, message_type, number)
    ids = [message.offset_msg_id for message in messages]
    shown = run(rocketpy_broker, "message", "resend", *ids, "--to", topic, "--json")
    assert (shown.exit_code, shown.stderr) == (0, "")
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    check_sent(rocketpy_broker, topic, messages, [row["msgId"] for row in rows])
    line = run(rocketpy_broker, "message", "resend", ids[0], "--to", topic).stdout
    assert line.startswith(f"sent message {ids[0]} to {topic}: queue ")


def check_sent(
    broker: LocalBroker, topic: str, messages: list[Message], msg_ids: list[str]
) -> None:
    """Asserts that all are there at once, with bodies, tags, properties and ids."""
    found = {message.msg_id: message for message in broker.messages(topic)}
    assert found.keys() == set(msg_ids)
    for message, msg_id in zip(messages, msg_ids, strict=True):
        copy = found[msg_id]
        assert (copy.text, copy.tags) == (message.text, message.tags)
        assert copy.properties.get("shop") == message.properties.get("shop")


def test_r03_a_message_group_keeps_its_order_when_it_is_sent_again(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, number: int
) -> None:
    topic, group = typed(rocketpy_broker, "FIFO", number), f"resender-{number}"
    bodies = [str(each) for each in range(20)]
    properties = {"__SHARDINGKEY": "one"}
    rocketpy_broker.send(rocketpy_topic, bodies, properties=properties, queue_id=1)
    for message in rocketpy_broker.messages(rocketpy_topic):
        rocketpy_broker.send_back(message, group, delay_level=-1)
    assert run(rocketpy_broker, "dlq", "resend", group, "--to", topic).exit_code == 0
    found = rocketpy_broker.messages(topic)
    assert len({message.queue_id for message in found}) == 1
    assert [message.text for message in found] == bodies


def test_r03_a_dead_letter_of_a_delayed_message_goes_back_to_its_own_topic_at_once(
    rocketpy_broker: LocalBroker, number: int
) -> None:
    topic, group = typed(rocketpy_broker, "DELAY", number), f"resender-{number}"
    over = ("--deliver-at", "2026-01-01T00:00:00Z")
    shown = run(rocketpy_broker, "message", "send", topic, "--body", "late", *over)
    assert f"sent 1 message to {topic}: queue " in shown.stdout
    assert ", offset 0, id " in shown.stdout
    (message,) = rocketpy_broker.messages(topic)
    rocketpy_broker.send_back(message, group, delay_level=-1)
    shown = run(rocketpy_broker, "dlq", "resend", group)
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert [each.text for each in rocketpy_broker.messages(topic)] == ["late", "late"]


def test_r03_a_topic_that_does_not_exist_is_named(
    rocketpy_broker: LocalBroker, messages: list[Message], number: int
) -> None:
    group = f"resender-{number}"
    rocketpy_broker.send_back(messages[0], group, delay_level=-1)
    shown = run(rocketpy_broker, "dlq", "resend", group, "--to", "resent-nowhere")
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert "resent-nowhere" in shown.stderr


def test_r03_an_empty_topic_is_not_the_messages_own(
    rocketpy_broker: LocalBroker, messages: list[Message], number: int
) -> None:
    """Covers a script whose variable is empty."""
    group = f"resender-{number}"
    rocketpy_broker.send_back(messages[0], group, delay_level=-1)
    for words in (("dlq", "resend", group), ("message", "resend", messages[0].offset_msg_id)):
        shown = run(rocketpy_broker, *words, "--to", "")
        assert (shown.exit_code, shown.stdout) == (1, "")
        assert "topic is ''" in shown.stderr
    with pytest.raises(LocalBrokerError, match="topic is ''"):
        rocketpy_broker.resend_dead_letters(group, rocketpy_broker.dead_letters(group), topic="")
    assert rocketpy_broker.messages(messages[0].topic) == messages
