"""`rocketpy message send-back` and `rocketpy dlq`, as a person uses them."""

from __future__ import annotations

import itertools
import json

import pytest

from rocketpy_broker import LocalBroker, LocalBrokerError, Message
from tests.support.broker.shell import run

_numbers = itertools.count()


@pytest.fixture
def group() -> str:
    """Returns the name of a group for one test."""
    return f"retry-group-{next(_numbers)}"


def sent(broker: LocalBroker, topic: str, *bodies: str, keys: str = "k") -> list[Message]:
    broker.send(topic, bodies, tags="A", keys=keys, properties={"shop": "3"}, queue_id=0)
    return broker.messages(topic)


def test_r01_a_message_is_sent_back_by_its_id(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, group: str
) -> None:
    (message,) = sent(rocketpy_broker, rocketpy_topic, "a")
    words = ("message", "send-back", message.offset_msg_id, "--group", group)
    shown = run(rocketpy_broker, *words)
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert shown.stdout == f"{message.offset_msg_id} is delivered again in %RETRY%{group}\n"
    shown = run(rocketpy_broker, *words, "--delay-level", "-1")
    assert shown.stdout == f"{message.offset_msg_id} is a dead letter in %DLQ%{group}\n"
    shown = run(rocketpy_broker, *words, "--delay-level", "2", "--json")
    assert json.loads(shown.stdout) == {
        "offsetMsgId": message.offset_msg_id,
        "group": group,
        "sentBackTo": "retry",
    }


@pytest.mark.parametrize(
    ("offset_msg_id", "said"),
    [
        ("no-id", "offset_msg_id is 'no-id', accepted is the offsetMsgId of a message"),
        ("7F00000100001F9100000000FFFFFFFF", "look message by offset failed, 4294967295"),
    ],
)
def test_r01_an_id_of_no_message_is_refused_in_one_line(
    rocketpy_broker: LocalBroker, group: str, offset_msg_id: str, said: str
) -> None:
    shown = run(rocketpy_broker, "message", "send-back", offset_msg_id, "--group", group)
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert said in shown.stderr
    assert shown.stderr.count("\n") == 1


def test_n11_a_level_that_is_none_is_wrong_use(rocketpy_broker: LocalBroker, group: str) -> None:
    words = ("message", "send-back", "0" * 32, "--group", group, "--delay-level", "19")
    assert run(rocketpy_broker, *words).exit_code == 2


def test_r03_dead_letters_are_listed_with_the_topic_they_were_first_sent_to(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, group: str
) -> None:
    for message in sent(rocketpy_broker, rocketpy_topic, "a", "b"):
        rocketpy_broker.send_back(message, group, delay_level=-1)
    shown = run(rocketpy_broker, "dlq", "list", group)
    rows = [line.split("\t") for line in shown.stdout.splitlines()]
    assert [(row[0], row[3], row[-1]) for row in rows] == [
        (rocketpy_topic, "0", "a"),
        (rocketpy_topic, "1", "b"),
    ]
    shown = run(rocketpy_broker, "dlq", "list", group, "--json", "--offset", "1")
    (row,) = [json.loads(line) for line in shown.stdout.splitlines()]
    assert (row["body"], row["properties"]["RETRY_TOPIC"]) == ("b", rocketpy_topic)


def test_r03_dead_letters_are_sent_again_to_where_they_come_from(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, group: str
) -> None:
    for message in sent(rocketpy_broker, rocketpy_topic, "a", "b", "c"):
        rocketpy_broker.send_back(message, group, delay_level=-1)
    words = ("dlq", "resend", group)
    shown = run(rocketpy_broker, *words, "--offset", "0", "--offset", "2", "--json")
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [(row["deadLetterOffset"], row["topic"]) for row in rows] == [
        (0, rocketpy_topic),
        (2, rocketpy_topic),
    ]
    first, _, third, again, last = rocketpy_broker.messages(rocketpy_topic)
    assert [again.text, last.text] == ["a", "c"]
    assert (again.tags, again.keys) == ("A", ("k",))
    assert [again.msg_id, last.msg_id] == [row["msgId"] for row in rows]
    assert [again.msg_id, last.msg_id] == [first.msg_id, third.msg_id]
    assert again.properties.keys() == {"shop"}
    shown = run(rocketpy_broker, *words, "--key", "k")
    assert shown.stdout.count(f"to {rocketpy_topic}: queue ") == 3
    assert len(rocketpy_broker.messages(f"%DLQ%{group}")) == 3


def test_r03_no_dead_letters_are_told_as_such(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, group: str
) -> None:
    none = f"rocketpy: consumer group {group!r} has no dead letters"
    shown = run(rocketpy_broker, "dlq", "list", group)
    assert (shown.exit_code, shown.stdout, shown.stderr) == (0, "", f"{none}\n")
    shown = run(rocketpy_broker, "dlq", "list", group, "--json")
    assert (shown.exit_code, shown.output) == (0, "")
    shown = run(rocketpy_broker, "dlq", "resend", group)
    assert (shown.exit_code, shown.stderr) == (1, f"{none}\n")
    shown = run(rocketpy_broker, "dlq", "list", "g" * 300)
    assert (shown.exit_code, "accepted is" in shown.stderr) == (1, True)
    (message,) = sent(rocketpy_broker, rocketpy_topic, "a")
    assert rocketpy_broker.send_back(message.offset_msg_id, group, delay_level=-1) == "deadLetter"
    shown = run(rocketpy_broker, "dlq", "resend", group, "--key", "other")
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert f"{none} with these options" in shown.stderr


def test_r03_a_dead_letter_that_says_not_where_it_is_from_goes_to_the_retry_topic(
    rocketpy_broker: LocalBroker, group: str
) -> None:
    """Covers a letter that a client sent to the retry topic by itself, too often."""
    for topic in (f"%RETRY%{group}", f"%DLQ%{group}"):
        rocketpy_broker.create_topic(topic, queues=1)
    rocketpy_broker.send(f"%DLQ%{group}", "a")
    shown = run(rocketpy_broker, "dlq", "resend", group)
    assert f"sent dead letter 0 to %RETRY%{group}" in shown.stdout
    assert [each.text for each in rocketpy_broker.messages(f"%RETRY%{group}")] == ["a"]


def test_r01_a_message_is_sent_back_from_python(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, group: str
) -> None:
    (message,) = sent(rocketpy_broker, rocketpy_topic, "a")
    assert rocketpy_broker.send_back(message, group) == "retry"
    with pytest.raises(LocalBrokerError, match="offset_msg_id is 'x'"):
        rocketpy_broker.send_back("x", group)


def test_r01_a_message_tells_how_often_it_came_and_can_be_sent_again(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, group: str
) -> None:
    (message,) = sent(rocketpy_broker, rocketpy_topic, "a")
    rocketpy_broker.send_back(message, group, delay_level=-1)
    told = run(rocketpy_broker, "dlq", "list", group, "--json").stdout
    assert json.loads(told)["reconsumeTimes"] == 1
    done = run(rocketpy_broker, "message", "send", rocketpy_topic, "--file", "-", stdin=told)
    assert done.exit_code == 0, done.output
    shown = run(rocketpy_broker, "message", "view", message.offset_msg_id, "--json").stdout
    assert json.loads(shown)["reconsumeTimes"] == 0


def test_r03_the_dead_letters_of_all_groups_are_counted(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, group: str
) -> None:
    for message in sent(rocketpy_broker, rocketpy_topic, "a", "b"):
        rocketpy_broker.send_back(message, group, delay_level=-1)
    assert f"{group}\t2\n" in run(rocketpy_broker, "dlq", "list").stdout
    told = run(rocketpy_broker, "dlq", "list", "--json").stdout.splitlines()
    assert {"consumerGroup": group, "deadLetters": 2} in [json.loads(line) for line in told]
    shown = run(rocketpy_broker, "dlq", "list", "--key", "k")
    assert (shown.exit_code, "and --whole need a GROUP" in shown.stderr) == (2, True)


def test_r03_dead_letters_that_are_sent_again_are_counted(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, group: str
) -> None:
    for message in sent(rocketpy_broker, rocketpy_topic, "a", "b"):
        rocketpy_broker.send_back(message, group, delay_level=-1)
    words = ("dlq", "resend", group, "--all")
    assert run(rocketpy_broker, *words).stdout.endswith("sent 2 dead letters again\n")
    assert run(rocketpy_broker, *words, "--key", "k").exit_code == 2
    with LocalBroker() as empty:
        shown = run(empty, "dlq", "list")
    assert shown.stderr == "rocketpy: no consumer group has dead letters\n"


def test_the_option_that_named_the_group_of_dead_letters_is_accepted(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, group: str
) -> None:
    (message,) = sent(rocketpy_broker, rocketpy_topic, "a")
    rocketpy_broker.send_back(message, group, delay_level=-1)
    for words in (("dlq", "list"), ("dlq", "resend")):
        named = run(rocketpy_broker, *words, group)
        assert (named.exit_code, rocketpy_topic in named.stdout) == (0, True)
        optioned = run(rocketpy_broker, *words, "--group", group)
        assert (optioned.exit_code, rocketpy_topic in optioned.stdout) == (0, True)
        twice = run(rocketpy_broker, *words, group, "--group", group)
        assert (twice.exit_code, "not both" in twice.stderr) == (2, True)
    missing = run(rocketpy_broker, "dlq", "resend")
    assert (missing.exit_code, "name the GROUP" in missing.stderr) == (2, True)
