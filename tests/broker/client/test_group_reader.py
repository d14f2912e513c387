"""A reader of a topic as a consumer group, from programs and the shell."""

from __future__ import annotations

import itertools
import json

import pytest

from rocketpy_broker import LocalBroker, LocalBrokerError
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.messages.group_reader import GroupReader
from rocketpy_broker.client.offsets import query_lag
from tests.support.broker.shell import run

_numbers = itertools.count()


@pytest.fixture
def group() -> str:
    """Returns the name of a group for one test."""
    return f"pull-group-{next(_numbers)}"


def fill(broker: LocalBroker, topic: str, count: int, queue_id: int = 0) -> list[str]:
    bodies = [f"{queue_id}-{number}" for number in range(count)]
    broker.send(topic, bodies, queue_id=queue_id)
    return bodies


def texts(broker: LocalBroker, topic: str, group: str, count: int | None = None) -> list[str]:
    return [message.text for message in broker.pull(topic, group, count)]


def committed(broker: LocalBroker, topic: str, group: str) -> list[int | None]:
    with BrokerConnection(broker.endpoint) as connection:
        lag = query_lag(connection, topic, group)
        return [queue.committed_offset for queue in lag.queues]


def test_c07_a_group_goes_on_behind_what_it_has_pulled(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, group: str
) -> None:
    bodies = fill(rocketpy_broker, rocketpy_topic, 100)
    assert texts(rocketpy_broker, rocketpy_topic, group, 40) == bodies[:40]
    assert rocketpy_broker.lag(rocketpy_topic, group).total == 60
    assert texts(rocketpy_broker, rocketpy_topic, group, 0) == []
    assert texts(rocketpy_broker, rocketpy_topic, group) == bodies[40:]
    assert texts(rocketpy_broker, rocketpy_topic, group) == []
    more = fill(rocketpy_broker, rocketpy_topic, 3)
    assert texts(rocketpy_broker, rocketpy_topic, group) == more


def test_c07_the_queues_come_one_after_the_other(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, group: str
) -> None:
    first = fill(rocketpy_broker, rocketpy_topic, 5, queue_id=0)
    second = fill(rocketpy_broker, rocketpy_topic, 5, queue_id=1)
    assert texts(rocketpy_broker, rocketpy_topic, group, 7) == first + second[:2]
    assert committed(rocketpy_broker, rocketpy_topic, group)[:3] == [5, 2, None]
    assert texts(rocketpy_broker, rocketpy_topic, group) == second[2:]


def test_c07_without_a_commit_the_group_stays_where_it_is(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, group: str
) -> None:
    fill(rocketpy_broker, rocketpy_topic, 70)
    for _ in range(2):
        assert len(rocketpy_broker.pull(rocketpy_topic, group, commit=False)) == 70
    assert set(committed(rocketpy_broker, rocketpy_topic, group)) == {None}


def test_c07_what_was_handed_out_and_not_gone_on_from_comes_again(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, group: str
) -> None:
    bodies = fill(rocketpy_broker, rocketpy_topic, 40)
    with BrokerConnection(rocketpy_broker.endpoint) as connection:
        messages = GroupReader(connection, rocketpy_topic, group).messages()
        for _ in range(33):
            next(messages)
    # The second pull has committed the messages of the first.
    assert texts(rocketpy_broker, rocketpy_topic, group) == bodies[32:]


def test_c09_an_offset_outside_the_queue_is_none(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, group: str
) -> None:
    bodies = fill(rocketpy_broker, rocketpy_topic, 3)
    with BrokerConnection(rocketpy_broker.endpoint) as connection:
        reader = GroupReader(connection, rocketpy_topic, group)
        reader._commit({0: 99})
        assert [message.text for message in reader.messages()] == bodies
    assert committed(rocketpy_broker, rocketpy_topic, group)[0] == 3


@pytest.mark.parametrize(
    ("topic", "wrong_group", "words"),
    [
        ("Unknown", "g", "topic 'Unknown' does not exist"),
        (None, "a b", "consumer_group is 'a b'"),
        (None, "", "consumer_group is ''"),
    ],
)
def test_c01_what_the_broker_refuses_is_told(
    rocketpy_broker: LocalBroker,
    rocketpy_topic: str,
    topic: str | None,
    wrong_group: str,
    words: str,
) -> None:
    with pytest.raises(LocalBrokerError, match=words):
        rocketpy_broker.pull(topic or rocketpy_topic, wrong_group)
    shown = run(rocketpy_broker, "message", "pull", topic or rocketpy_topic, "--group", wrong_group)
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert words in shown.stderr


def test_c07_a_group_pulls_from_the_shell(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, group: str
) -> None:
    bodies = fill(rocketpy_broker, rocketpy_topic, 4)
    words = ("message", "pull", rocketpy_topic, "--group", group, "--json")
    for options, wanted in [
        (("--no-commit",), bodies),
        (("-n", "3"), bodies[:3]),
        ((), bodies[3:]),
        ((), []),
    ]:
        shown = run(rocketpy_broker, *words, *options)
        assert (shown.exit_code, shown.stderr) == (0, "")
        assert [json.loads(line)["body"] for line in shown.stdout.splitlines()] == wanted


class ShortPollingBroker(LocalBroker):
    """A broker as `rocketpy broker --short-polling` starts it."""

    def _settings(self) -> dict[str, object]:
        return {**super()._settings(), "long_polling_enable": False, "short_polling_time_ms": 1}


def test_c08_a_broker_of_short_polling_is_started_from_the_shell() -> None:
    with ShortPollingBroker() as broker:
        broker.create_topic("T")
        broker.send("T", ["a"], queue_id=0)
        assert texts(broker, "T", "g") == ["a"]
        shown = run(broker, "message", "tail", "T", "--json")
        assert shown.exit_code == 0
