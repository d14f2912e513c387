"""A client of groups, without an event loop: heartbeats, notices, locks, members."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.errors import RefusedError, UnreachableError
from rocketpy_broker.client.groups import (
    consumer,
    heartbeat,
    list_connections,
    list_members,
    listening,
    lock_queues,
    unlock_queues,
    unregister,
)
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import groups_pb2

QUEUES = [groups_pb2.LockedQueue(topic="T", queue_id=queue_id) for queue_id in range(2)]


@pytest.fixture
def connection(rocketpy_broker: LocalBroker) -> Iterator[BrokerConnection]:
    with BrokerConnection(rocketpy_broker.endpoint) as connection:
        yield connection


def test_g03_who_sends_heartbeats_is_listed(connection: BrokerConnection) -> None:
    subscription = groups_pb2.Subscription(topic="T", expression="a || b", sub_version=3)
    listed = consumer("listed", [subscription])
    heartbeat(connection, "c1", consumers=[listed], producer_groups=["listed"])
    heartbeat(connection, "c2", consumers=[listed])
    assert list_members(connection, "listed") == ["c1", "c2"]
    found = list_connections(connection, "listed")
    assert [client.client_id for client in found.consumers] == ["c1", "c2"]
    [producer] = found.producers
    assert producer.address.startswith("127.0.0.1:")
    assert producer.last_update_ms > 0
    unregister(connection, "c1", producer_group="listed")
    assert list_connections(connection, "listed").producers == []
    unregister(connection, "c1")
    unregister(connection, "c2", consumer_group="listed")
    with pytest.raises(RefusedError, match="no consumer for this group, listed"):
        list_members(connection, "listed")


def test_g04_queues_are_locked_and_given_back(connection: BrokerConnection) -> None:
    assert lock_queues(connection, "c1", "locked", QUEUES) == QUEUES
    assert lock_queues(connection, "c2", "locked", QUEUES) == []
    unlock_queues(connection, "c1", "locked", QUEUES[:1])
    assert lock_queues(connection, "c2", "locked", QUEUES) == QUEUES[:1]


def test_g02_a_client_hears_of_others_and_leaves_with_its_stream(
    connection: BrokerConnection,
) -> None:
    with listening(connection, "c1") as notices:
        heartbeat(connection, "c1", consumers=[consumer("heard")])
        assert next(notices).members_changed.consumer_group == "heard"
        with listening(connection, "c2"):
            heartbeat(connection, "c2", consumers=[consumer("heard")])
            assert next(notices).members_changed.consumer_group == "heard"
        assert next(notices).members_changed.consumer_group == "heard"
        assert list_members(connection, "heard") == ["c1"]


def test_a_stream_that_another_one_takes_over_says_so(connection: BrokerConnection) -> None:
    with (
        listening(connection, "c1") as older,
        listening(connection, "c1"),
        pytest.raises(RefusedError, match="newer stream") as raised,
    ):
        next(older)
    assert raised.value.response_code == ResponseCode.ILLEGAL_OPERATION


def test_a_stream_ends_with_the_broker() -> None:
    with LocalBroker(flush="ASYNC_FLUSH") as broker, BrokerConnection(broker.endpoint) as own:
        stopping = threading.Thread(target=broker.stop)
        with listening(own, "c1") as notices:
            stopping.start()
            assert list(notices) == []
        stopping.join()
        with pytest.raises(UnreachableError), listening(own, "c1"):
            pytest.fail("nobody is there")


def test_a_refusal_has_the_brokers_words(connection: BrokerConnection) -> None:
    with pytest.raises(RefusedError, match="client_id is ''"):
        heartbeat(connection, "", producer_groups=["p"])
    with listening(connection, "") as notices, pytest.raises(RefusedError, match="client_id is"):
        next(notices)
