"""The clock of a LocalBroker, moved by a test: waiting messages come then, not before."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from subprocess import PIPE

import grpc
import pytest

from rocketpy_broker import LocalBroker, LocalBrokerError
from rocketpy_broker.client import groups
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_proto.rocketpy.v1 import testing_pb2, testing_pb2_grpc
from tests.support.broker.shell import popen, started

GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
HOUR = 3_600
FLUSHES = ("ASYNC_FLUSH", "SYNC_FLUSH")


@pytest.fixture(scope="module", params=FLUSHES)
def broker(request: pytest.FixtureRequest) -> Iterator[LocalBroker]:
    with LocalBroker(flush=request.param) as broker:
        yield broker


@pytest.fixture
def topic(broker: LocalBroker) -> Iterator[str]:
    broker.create_topic("T", queues=2)
    yield "T"
    broker.reset()


def texts(broker: LocalBroker, topic: str = "T") -> list[str]:
    return [message.text for message in broker.messages(topic)]


def test_a_delay_level_is_over_when_the_clock_says_so(broker: LocalBroker, topic: str) -> None:
    broker.send(topic, [str(number) for number in range(100)], delay_level=18)
    broker.advance_clock(HOUR)
    assert texts(broker) == []
    broker.advance_clock(HOUR)
    assert sorted(texts(broker), key=int) == [str(number) for number in range(100)]


def test_a_delivery_time_comes_when_the_clock_says_so(broker: LocalBroker, topic: str) -> None:
    broker.send(topic, "second", deliver_at=broker.now() + timedelta(hours=10))
    broker.send(topic, "first", deliver_at=broker.now() + timedelta(hours=8))
    broker.advance_clock(timedelta(hours=7))
    assert texts(broker) == []
    broker.advance_clock(timedelta(hours=1))
    assert texts(broker) == ["first"]
    broker.advance_clock(timedelta(hours=2))
    assert texts(broker) == ["first", "second"]


def test_a_delivery_time_by_the_programs_own_clock_comes_too(topic: str) -> None:
    with LocalBroker() as broker:
        broker.create_topic("T")
        broker.send("T", "a", deliver_at=datetime.now(timezone.utc) + timedelta(hours=1))
        broker.advance_clock(HOUR - 600)
        assert texts(broker) == []
        broker.advance_clock(600)
        assert texts(broker) == ["a"]


def test_a_retry_comes_and_is_counted(broker: LocalBroker, topic: str) -> None:
    broker.create_group("billing", retry_max_times=2)
    broker.send(topic, "a", keys="k")
    [message] = broker.messages(topic)
    for times, seconds in ((1, 10), (2, 30)):
        assert broker.send_back(message, "billing") == "retry"
        assert len(broker.pull("%RETRY%billing", "billing")) == 0
        broker.advance_clock(seconds)
        [message] = broker.pull("%RETRY%billing", "billing")
        assert message.reconsume_times == times
    assert broker.send_back(message, "billing") == "deadLetter"
    assert [each.reconsume_times for each in broker.messages("%DLQ%billing")] == [3]


def test_a_transaction_is_asked_after_and_given_up(broker: LocalBroker, topic: str) -> None:
    broker.send_transaction(topic, "half", "shop", keys="k")
    for asked in range(1, 16):
        broker.advance_clock(30)
        [opened] = broker.transactions("shop")
        assert opened.check_times == asked
    broker.advance_clock(30)
    assert broker.transactions() == []
    assert texts(broker, GIVEN_UP) == ["half"]
    assert texts(broker) == []


def test_a_transaction_is_young_however_far_the_clock_is_ahead(
    broker: LocalBroker, topic: str
) -> None:
    broker.advance_clock(100 * HOUR)
    transaction = broker.send_transaction(
        topic, "half", "shop", properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "120"}
    )
    broker.advance_clock(60)
    assert [each.check_times for each in broker.transactions()] == [0]
    broker.commit(transaction)
    assert texts(broker) == ["half"]


def test_a_transaction_that_is_committed_in_time_is_delivered(
    broker: LocalBroker, topic: str
) -> None:
    committed = broker.send_transaction(topic, b"yes", "shop")
    rolled_back = broker.send_transaction(topic, "no", "shop", queue_id=1)
    assert texts(broker) == []
    broker.advance_clock(60)
    # The entries of the list are accepted as well.
    first, second = broker.transactions()
    assert first.transaction.transaction_id == committed.transaction_id
    broker.commit(first)
    broker.rollback(second)
    assert texts(broker) == ["yes"]
    broker.commit(committed)
    with pytest.raises(LocalBrokerError, match="was rolled back before"):
        broker.commit(rolled_back)


def test_a_client_that_is_silent_is_no_member_any_more(broker: LocalBroker, topic: str) -> None:
    with BrokerConnection(broker.endpoint) as connection:
        groups.heartbeat(connection, "client", consumers=[groups.consumer("billing")])
    assert broker.group("billing").member_count == 1
    broker.advance_clock(10 * 60)
    assert broker.group("billing").member_count == 0


def test_messages_are_stored_at_the_brokers_time(broker: LocalBroker, topic: str) -> None:
    broker.send(topic, "a")
    broker.advance_clock(HOUR)
    since = broker.now()
    broker.send(topic, ["b", "c"])
    first, second, third = broker.messages(topic)
    assert second.store_timestamp - first.store_timestamp >= timedelta(seconds=HOUR)
    assert second.store_timestamp <= third.store_timestamp
    assert [message.text for message in broker.messages(topic, since=since)] == ["b", "c"]
    assert broker.messages(topic, since=broker.now() + timedelta(seconds=1)) == []
    assert len(broker.messages(topic, since=datetime.fromtimestamp(0, timezone.utc))) == 3
    with pytest.raises(LocalBrokerError, match="has no time zone"):
        broker.messages(topic, since=datetime.fromtimestamp(0))  # noqa: DTZ006


def test_a_call_that_waits_for_a_message_goes_on_waiting(broker: LocalBroker, topic: str) -> None:
    with popen(broker, "message", "tail", topic, "--from", "earliest", "-f") as tailing:
        assert tailing.stdout is not None
        broker.send(topic, "a")
        assert tailing.stdout.readline().endswith("a\n")
        for _ in range(5):
            broker.advance_clock(24 * HOUR)
        broker.send(topic, "b")
        assert tailing.stdout.readline().endswith("b\n")
        tailing.terminate()


def test_the_clock_stays_ahead_over_restarts() -> None:
    with LocalBroker() as broker:
        broker.create_topic("T")
        broker.advance_clock(100 * HOUR)
        broker.send("T", "later", delay_level=18)
        before = broker.now()
        broker.restart()
        assert broker.now() >= before
        broker.kill()
        broker.start()
        assert broker.now() >= before
        broker.advance_clock(2 * HOUR)
        assert texts(broker) == ["later"]


@pytest.mark.parametrize(
    "wrong",
    [
        *(-1, timedelta(seconds=-1), "1", None, float("nan"), 1e30),
        *(timedelta.max, timedelta.min, 1e12),
    ],
)
def test_a_step_that_is_none_is_refused(broker: LocalBroker, wrong: float) -> None:
    before = broker.now()
    with pytest.raises(LocalBrokerError):
        broker.advance_clock(wrong)
    assert broker.now() - before < timedelta(hours=1)


def test_levels_can_be_named() -> None:
    with LocalBroker(message_delay_level="1d 2h") as broker:
        broker.create_topic("T", queues=1)
        broker.send("T", "day", delay_level=1)
        broker.send("T", "hours", delay_level=2)
        broker.advance_clock(2 * HOUR)
        assert texts(broker) == ["hours"]
        broker.advance_clock(22 * HOUR)
        assert texts(broker) == ["hours", "day"]
    with pytest.raises(ParameterIllegalError, match="messageDelayLevel"):
        LocalBroker(message_delay_level="100ms")


def test_a_broker_that_is_not_for_tests_has_no_such_service(tmp_path: Path) -> None:
    command = ["broker", "--data", str(tmp_path), "--port", "0"]
    with started(*command, stdout=PIPE) as process:
        assert process.stdout is not None
        endpoint = process.stdout.readline().split()[4]
        with grpc.insecure_channel(endpoint) as channel:
            stub = testing_pb2_grpc.TestingStub(channel)
            with pytest.raises(grpc.RpcError) as caught:
                stub.AdvanceClock(testing_pb2.AdvanceClockRequest(advance_ms=1), timeout=30)
        process.terminate()
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
