"""Messages that are sent again with their properties: nothing of the old ones is kept."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest

from rocketpy_broker import LocalBroker, Message
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.messages.topic_reader import TopicReader
from rocketpy_proto.record.properties import NOT_COPIED_NAMES, WAITING_NAMES
from tests.support.broker.shell import run

_numbers = itertools.count()
Copy = Callable[[LocalBroker, str, str], None]


def by_local_broker(broker: LocalBroker, source: str, target: str) -> None:
    for each in broker.messages(source):
        broker.send(target, each.body, tags=each.tags, keys=each.keys, properties=each.properties)


def by_command(broker: LocalBroker, source: str, target: str) -> None:
    lines = run(broker, "message", "tail", source, "--json", "--from", "earliest").stdout
    done = run(broker, "message", "send", target, "--file", "-", stdin=lines)
    assert done.exit_code == 0, done.output


WAYS = pytest.mark.parametrize("copy", [by_local_broker, by_command])


@pytest.fixture
def new_topic(rocketpy_broker: LocalBroker) -> Callable[[], str]:
    def make() -> str:
        name = f"copies-{next(_numbers)}"
        rocketpy_broker.create_topic(name, queues=1)
        return name

    return make


def dead(broker: LocalBroker, message: Message) -> str:
    """Turns a message into a dead letter; returns its group."""
    group = f"copies-group-{next(_numbers)}"
    assert broker.send_back(message, group, delay_level=-1) == "deadLetter"
    return group


@WAYS
@pytest.mark.parametrize("folder", ["%DLQ%", "%RETRY%"])
def test_r03_a_dead_letter_of_a_copy_is_resent_to_the_topic_of_the_copy(
    rocketpy_broker: LocalBroker, new_topic: Callable[[], str], copy: Copy, folder: str
) -> None:
    broker, first, second = rocketpy_broker, new_topic(), new_topic()
    broker.send(first, "a", tags="T", keys="k", properties={"shop": "3"})
    (message,) = broker.messages(first)
    group = dead(broker, message)
    if folder == "%RETRY%":
        broker.send_back(message, group, delay_level=1)
        with BrokerConnection(broker.endpoint) as connection:
            reader = TopicReader(connection, folder + group)
            while not broker.messages(folder + group):
                list(reader.next_messages(wait_ms_max=5_000))
    copy(broker, folder + group, second)
    (copied,) = broker.messages(second)
    assert copied.properties == {"shop": "3"}
    again = dead(broker, copied)
    shown = run(broker, "dlq", "resend", again, "--json")
    assert json.loads(shown.stdout)["topic"] == second
    assert [len(broker.messages(topic)) for topic in (first, second)] == [1, 2]
    assert [(each.tags, each.keys) for each in broker.messages(second)] == [("T", ("k",))] * 2


@WAYS
def test_a_copy_of_a_message_that_was_due_at_once_is_sent(
    rocketpy_broker: LocalBroker, new_topic: Callable[[], str], copy: Copy
) -> None:
    first, second = new_topic(), new_topic()
    past = datetime.now(timezone.utc) - timedelta(days=1)
    rocketpy_broker.send(first, "a", deliver_at=past)
    copy(rocketpy_broker, first, second)
    (copied,) = rocketpy_broker.messages(second)
    assert copied.properties == {}


@pytest.mark.parametrize("name", sorted(NOT_COPIED_NAMES))
def test_each_property_of_brokers_is_left_out(
    rocketpy_broker: LocalBroker, new_topic: Callable[[], str], name: str
) -> None:
    topic = new_topic()
    # A message that has waited has this property.
    marks = {"REAL_TOPIC": topic} if name in WAITING_NAMES else {}
    value = "true" if name == "TRAN_MSG" else "3"
    properties = {name: value, **marks, "shop": "3"}
    rocketpy_broker.send(topic, "a", properties=properties)
    line = json.dumps({"body": "a", "properties": properties})
    run(rocketpy_broker, "message", "send", topic, "--file", "-", stdin=line)
    if not marks:
        words = ["--body", "a", "--property", f"{name}=3", "--property", "shop=3"]
        run(rocketpy_broker, "message", "send", topic, *words)
    messages = rocketpy_broker.messages(topic)
    assert [each.properties for each in messages] == [{"shop": "3"}] * (2 if marks else 3)


@pytest.mark.parametrize("value", ["0", "-1"])
def test_a_level_of_no_delay_is_left_out(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, value: str
) -> None:
    """Covers the level of a dead letter."""
    rocketpy_broker.send(rocketpy_topic, "a", properties={"DELAY": value})
    assert rocketpy_broker.messages(rocketpy_topic)[0].properties == {}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("DELAY", "3", "'DELAY' is not sent as a property; use delayLevel"),
        ("TIMER_DELIVER_MS", "9" * 13, "use deliverAt"),
        ("TIMER_DELAY_MS", "1", "use deliverAt"),
        ("TIMER_DELAY_SEC", "soon", "use deliverAt"),
        ("TRAN_MSG", "TRUE", "use `rocketpy transaction send`"),
    ],
)
def test_a_line_that_asks_to_wait_by_a_property_is_refused(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, name: str, value: str, said: str
) -> None:
    line = json.dumps({"body": "a", "properties": {name: value}})
    done = run(rocketpy_broker, "message", "send", rocketpy_topic, "--file", "-", stdin=line)
    assert (done.exit_code, said in done.stderr) == (1, True)
    assert rocketpy_broker.messages(rocketpy_topic) == []


@pytest.mark.parametrize("key", ["order 17", " ", "a ", "  a"])
def test_a_key_with_a_blank_is_refused_by_every_way(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, key: str
) -> None:
    line = json.dumps({"body": "a", "keys": ["b", key]})
    send = ("message", "send", rocketpy_topic)
    for words, stdin in (
        ((*send, "--body", "a", "--key", "b", "--key", key), None),
        ((*send, "--file", "-"), line),
        (
            ("transaction", "send", rocketpy_topic, "--group", "g", "--body", "a", "--key", key),
            None,
        ),
    ):
        done = run(rocketpy_broker, *words, stdin=stdin)
        assert done.exit_code == 1
        assert f"key {key!r} has a blank" in done.stderr
    with pytest.raises(Exception, match=f"key {key!r} has a blank"):
        rocketpy_broker.send(rocketpy_topic, "a", keys=["b", key])
    assert rocketpy_broker.messages(rocketpy_topic) == []


def test_an_empty_key_is_none(rocketpy_broker: LocalBroker, rocketpy_topic: str) -> None:
    rocketpy_broker.send(rocketpy_topic, "a", keys=["", "b", ""])
    run(rocketpy_broker, "message", "send", rocketpy_topic, "--body", "a", "--key", "")
    assert [each.keys for each in rocketpy_broker.messages(rocketpy_topic)] == [("b",), ()]


@pytest.mark.parametrize("tags", ["a||b", " a", "*", "a b", "ä\t"])
def test_a_tag_that_no_expression_can_name_is_kept_as_it_is(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, tags: str
) -> None:
    rocketpy_broker.send(rocketpy_topic, "a", tags=tags)
    run(rocketpy_broker, "message", "send", rocketpy_topic, "--body", "a", "--tag", tags)
    assert [each.tags for each in rocketpy_broker.messages(rocketpy_topic)] == [tags] * 2
