"""State of a test in a LocalBroker, and its removal by `reset` and by the fixtures."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker, LocalBrokerError
from rocketpy_broker.services.transactions.open_transactions import COUNT_MAX
from tests.support.broker.running_broker import StartBroker, until
from tests.support.broker.transactions import LARGE, append_halves
from tests.support.time_limits import WAIT_SECONDS_MAX

GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as broker:
        yield broker


def leave_everything(broker: LocalBroker) -> None:
    """Leaves every kind of state that another test could see."""
    broker.create_topic("orders", queues=2)
    broker.create_group("billing", retry_max_times=1, consume_enable=True)
    broker.send("orders", ["a", "b"], keys="k")
    broker.send("orders", "level", delay_level=5)
    broker.send("orders", "time", deliver_at=broker.now() + timedelta(minutes=1))
    [first, second] = broker.pull("orders", "billing")
    broker.send_back(first, "billing")
    broker.send_back(second, "billing", delay_level=-1)
    broker.create_topic("%DLQ%lost", queues=1)
    broker.send_transaction("orders", "given up", "shop")
    for _ in range(16):
        broker.advance_clock(30)
    broker.send_transaction("orders", "half", "shop")
    broker.send("orders", "later", delay_level=5)


def check_empty(broker: LocalBroker) -> None:
    assert broker.topics() == broker.groups() == []
    assert broker.transactions() == []
    assert broker.messages(GIVEN_UP) == []
    with pytest.raises(LocalBrokerError, match="does not exist"):
        broker.messages("%DLQ%billing")
    with pytest.raises(LocalBrokerError, match="does not exist"):
        broker.messages("%RETRY%billing")
    with pytest.raises(LocalBrokerError, match="does not exist"):
        broker.messages("%DLQ%lost")
    with pytest.raises(LocalBrokerError):
        broker.group("billing")
    # The same names again: they get nothing of the earlier state.
    broker.create_topic("orders", queues=2)
    assert (broker.create_group("billing").settings or {})["retryMaxTimes"] == 16
    assert broker.lag("orders", "billing").total == 0
    assert broker.query("orders", "k") == []
    broker.advance_clock(10 * 60)
    assert broker.messages("orders") == broker.pull("orders", "billing") == []
    assert broker.group("billing").dead_letter_count == 0
    assert broker.messages(GIVEN_UP) == []


def test_reset_leaves_nothing(broker: LocalBroker) -> None:
    leave_everything(broker)
    assert broker.group("billing").dead_letter_count == 1
    assert len(broker.messages(GIVEN_UP)) == 1
    broker.reset()
    check_empty(broker)
    broker.reset()
    check_empty(broker)
    broker.reset()


def test_reset_stays_over_a_crash(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        leave_everything(broker)
        broker.reset()
        broker.kill()
        broker.start()
        check_empty(broker)


async def test_more_transactions_go_than_one_answer_lists(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker(**LARGE) as running:
        await running.create_topic("T")
        append_halves(running, COUNT_MAX + 1)
    with LocalBroker(tmp_path) as broker:
        # The broker reads the half messages of its log.
        await until(lambda: len(broker.transactions()) == COUNT_MAX)
        broker.reset()
        assert broker.transactions() == []


def test_groups_have_settings_and_places(broker: LocalBroker) -> None:
    broker.create_topic("orders", queues=2)
    broker.send("orders", ["a", "b"], queue_id=0)
    broker.advance_clock(60)
    since = broker.now()
    broker.send("orders", ["c", "d"], queue_id=0)
    details = broker.create_group("billing", retry_max_times=3, consume_enable=False)
    assert details.settings is not None
    assert details.settings["retryMaxTimes"] == 3
    assert broker.group("billing") == details
    assert broker.groups() == ["billing"]
    with pytest.raises(LocalBrokerError):
        broker.pull("orders", "billing")
    broker.update_group("billing", consume_enable=True)
    assert len(broker.pull("orders", "billing")) == 4
    for to, left in (("earliest", 4), ("latest", 0), (since, 2), (3, 1)):
        reset = broker.reset_group("orders", "billing", to, queue_id=0)
        assert [each.queue_id for each in reset] == [0]
        assert broker.lag("orders", "billing").total == left
    assert [message.text for message in broker.pull("orders", "billing")] == ["d"]
    broker.delete_group("billing")
    assert broker.groups() == []
    broker.create_group("again")
    with pytest.raises(LocalBrokerError, match="exists already"):
        broker.create_group("again")
    broker.reset()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda b: b.create_group("G", retries=1),
            "setting is unknown: retries. Accepted",
        ),
        (
            lambda b: b.update_group("G", retry_max_times="1"),
            "the group's setting retry_max_times is '1', accepted is an int",
        ),
        (
            lambda b: b.create_group("G", consume_enable="no"),
            "the group's setting consume_enable is 'no', accepted is a bool",
        ),
        (lambda b: b.update_group("none", retry_max_times=1), "none"),
        (lambda b: b.reset_group("T", "G", "begin"), "to is 'begin', accepted is 'earliest'"),
        (lambda b: b.reset_group("T", "G", b.now().replace(tzinfo=None)), "has no time zone"),
        (lambda b: b.create_group("G", retry_max_times=1 << 40), "cannot be sent to the"),
        (lambda b: b.reset_group("T", "G", 1 << 70), "cannot be sent to the"),
        (lambda b: b.reset_group("T", "G", 0, queue_id=1 << 40), "cannot be sent to the"),
        (lambda b: b.send_transaction("T", "a", ""), "producer group"),
        (lambda b: b.send_transaction("T", 5, "G"), "body is 5, accepted is str or bytes"),
        (lambda b: b.send_transaction("nowhere", "a", "G"), "does not exist"),
        (lambda b: b.send_transaction("T", "a", 5), "group is 5, accepted is the name of a prod"),
        (lambda b: b.commit(None), "transaction is None, accepted is a transaction of"),
        (lambda b: b.rollback("x"), "transaction is 'x', accepted is a transaction of"),
        (lambda b: b.send_back(None, "G"), "message is None, accepted is a message or its off"),
        (lambda b: b.resend_dead_letters("G", ["a"]), "a dead letter is 'a', accepted is a mess"),
        (lambda b: b.create_topic("U", attributes=["a"]), r"attributes is \['a'\], accepted is a"),
        (lambda b: b.update_topic("T", attributes="a"), "attributes is 'a', accepted is a dict"),
        (lambda b: b.pull("T", "G", -1), "count is -1, accepted is 0 or more, or None"),
        (lambda b: b.pull("T", "G", 2.5), "count is 2.5, accepted is 0 or more, or None"),
        (lambda b: b.query("T", "k", count=-1), "count"),
        (lambda b: b.query("T", "k", tag="t"), "tag is 't', accepted is none"),
        (lambda b: b.query("T", "k", since="now"), "the time is 'now', accepted is a datetime"),
        (lambda b: b.view("nonsense"), "nonsense"),
    ],
)
def test_what_cannot_be_is_an_error_of_the_broker(
    broker: LocalBroker, call: object, said: str
) -> None:
    broker.create_topic("T", exist_ok=True)
    with pytest.raises(LocalBrokerError, match=said):
        call(broker)  # type: ignore[operator]


def test_messages_are_found_by_key_and_id(broker: LocalBroker) -> None:
    broker.create_topic("keys", queues=1)
    broker.send("keys", [str(number) for number in range(5)], keys=["k", "l"])
    broker.send("keys", "tagged", tags="t")
    assert [message.text for message in broker.query("keys", tag="t")] == ["tagged"]
    found = broker.query("keys", "k")
    assert [message.text for message in found] == ["0", "1", "2", "3", "4"]
    assert [message.text for message in broker.query("keys", "l", count=2)] == ["3", "4"]
    assert broker.query("keys", found[1].msg_id) == [found[1]]
    assert broker.view(found[2].offset_msg_id) == found[2]
    assert broker.query("keys", "none") == []


PROJECT = """
import os
import pytest


@pytest.fixture(scope="module")
def catalogue(rocketpy_broker):
    rocketpy_broker.create_topic("catalogue", queues=1)
    rocketpy_broker.send("catalogue", ["a", "b"])
    rocketpy_broker.create_group("readers", retry_max_times=4)
    return "catalogue"


def leave(broker, topic):
    broker.create_group("billing", retry_max_times=1)
    broker.send(topic, "a")
    [message] = broker.pull(topic, "billing")
    broker.send_back(message, "billing", delay_level=-1)
    assert len(broker.messages("%DLQ%billing")) == 1
    broker.send_transaction(topic, "half", "shop")
    broker.send(topic, "late", delay_level=5)
    broker.update_group("billing", retry_max_times=7)


def is_clean(broker):
    topics = {each for each in broker.topics() if not each.startswith("test-")}
    kept = topics - {"catalogue", "prices"}, broker.transactions(), set(broker.groups())
    return kept in ((set(), [], set()), (set(), [], {"readers"}))


@pytest.fixture(scope="module")
def prices(request):
    request.getfixturevalue("rocketpy_broker").create_topic("prices")
    return "prices"


@pytest.mark.parametrize("number", range(2))
def test_first_of_all(request, number):
    request.getfixturevalue("rocketpy_broker").create_topic("first")


@pytest.mark.parametrize("number", range(3))
def test_with_a_topic(rocketpy_broker, rocketpy_topic, catalogue, number):
    assert is_clean(rocketpy_broker)
    leave(rocketpy_broker, rocketpy_topic)
    assert len(rocketpy_broker.messages(catalogue)) == 2


@pytest.mark.parametrize("number", range(2))
def test_without_a_topic(rocketpy_broker, catalogue, number):
    assert is_clean(rocketpy_broker)
    rocketpy_broker.create_topic("orders")
    leave(rocketpy_broker, "orders")
    assert rocketpy_broker.group("readers").settings["retryMaxTimes"] == 4


def test_asked_for_late(request):
    broker = request.getfixturevalue("rocketpy_broker")
    assert is_clean(broker)
    broker.create_topic("late")
    request.getfixturevalue("prices")


@pytest.mark.parametrize("number", range(2))
def test_with_a_fixture_that_was_requested_late(request, number):
    broker = request.getfixturevalue("rocketpy_broker")
    assert is_clean(broker) and "prices" in broker.topics()
    assert request.getfixturevalue("prices") == "prices"
    broker.create_topic("orders")
    leave(broker, "orders")


def test_that_stops_its_broker(rocketpy_broker):
    assert is_clean(rocketpy_broker)
    rocketpy_broker.create_topic("orders")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_that_forks(rocketpy_broker, rocketpy_topic):
    child = os.fork()
    if child == 0:
        raise SystemExit(3)
    os.waitpid(child, 0)
    assert rocketpy_topic in rocketpy_broker.topics()


def test_that_uses_no_broker():
    pass
"""


def test_the_fixtures_leave_nothing_of_a_test_to_the_next(tmp_path: Path) -> None:
    (tmp_path / "test_project.py").write_text(PROJECT, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_SECONDS_MAX, check=False
    )
    assert done.stdout.splitlines()[-1].startswith("13 passed"), done.stdout
