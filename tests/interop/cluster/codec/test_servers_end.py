"""Servers that are killed, frozen, restarted and added, as clients see them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpy_proto.remoting import RequestCode
from tests.interop.cluster.cluster import OLD, A, B, Cluster
from tests.interop.cluster.connection import Connection
from tests.interop.cluster.messages import Outgoing, Queue, bodies, max_offset, put, until_pullable
from tests.interop.cluster.processes import until
from tests.interop.cluster.servers import MASTER_ID, SLAVE_ID, Broker, BrokerSpec

TOPIC = "mortal"
QUEUE = Queue(TOPIC)
ADDED = "broker-c"


@pytest.fixture(scope="module", autouse=True)
def _topic(cluster: Cluster) -> None:
    cluster.create_topic(TOPIC, 1)


@pytest.fixture
def with_addition(fragile_cluster: Cluster) -> Iterator[Cluster]:
    """Yields the cluster for a test that adds a broker; removes the broker after the test."""
    yield fragile_cluster
    fragile_cluster.remove(fragile_cluster.broker(ADDED))


def test_a_frozen_broker_keeps_its_route_and_answers_when_it_thaws(
    fragile_cluster: Cluster,
) -> None:
    broker = fragile_cluster.broker(B)
    with Connection(broker.address) as connection:
        before = max_offset(connection, QUEUE)
        broker.freeze()
        message = Outgoing(b"patient")
        connection.begin(RequestCode.SEND_MESSAGE_V2, message.header(QUEUE), message.body)
        assert fragile_cluster.name_servers[0].routes(TOPIC)[B] == {MASTER_ID: broker.address}
        with pytest.raises(TimeoutError):
            connection.wait_at_most(1)
        broker.thaw()
        assert connection.expect(RequestCode.SEND_MESSAGE_V2).ok().header.queue_offset == before


def test_a_start_that_fails_shows_what_the_server_said(tmp_path: Path) -> None:
    misplaced = BrokerSpec("broker-x", conf={"brokerRole": "SLAVE"})
    broker = Broker(misplaced, tmp_path / "broker", [])
    broker.start()
    with pytest.raises(AssertionError) as failure:
        broker.until_it_answers()
    assert str(failure.value).startswith("not answered by broker-x-0, and broker-x-0 ended\n")
    assert "Slave's brokerId must be > 0" in str(failure.value)


def test_what_was_killed_comes_back_as_it_was_while_a_broker_joins(
    with_addition: Cluster,
) -> None:
    # All steps in one test, since each broker start takes ten seconds until registration.
    cluster = with_addition
    first, second = cluster.name_servers
    master, slave = cluster.broker(A), cluster.broker(A, SLAVE_ID)
    with Connection(master.address) as connection, Connection(slave.address) as at_slave:
        put(connection, QUEUE, Outgoing(b"kept"))
        until(lambda: max_offset(at_slave, QUEUE) == 1, "copied", [slave])
        first.kill()
        master.kill()
        until(lambda: set(second.routes(TOPIC)[A]) == {SLAVE_ID}, "without the master", [slave])
        assert set(second.routes(TOPIC)) == {A, B, OLD}
        assert max_offset(at_slave, QUEUE) == 1
        with pytest.raises(ConnectionError):
            max_offset(connection, QUEUE)
    added = cluster.add(BrokerSpec(ADDED))
    for server in (first, second):
        assert set(server.routes(TOPIC)) == {A, B, OLD}
        assert set(server.routes(TOPIC)[A]) == {MASTER_ID, SLAVE_ID}
    with Connection(master.address) as connection:
        until_pullable(connection, QUEUE, 0)
        assert bodies(connection, QUEUE) == [b"kept"]
    cluster.create_topic(TOPIC, 1)
    assert set(first.routes(TOPIC)) == {A, B, OLD, ADDED}
    with Connection(added.address) as connection:
        assert put(connection, QUEUE, Outgoing(b"first")).queue_offset == 0
