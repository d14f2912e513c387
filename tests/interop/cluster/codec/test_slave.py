"""A slave's answers while its master runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rocketpy_proto.remoting import RequestCode, ResponseCode
from rocketpy_proto.remoting.headers.topics import CreateTopicRequest
from tests.interop.cluster.cluster import A, Cluster
from tests.interop.cluster.connection import Connection
from tests.interop.cluster.messages import (
    Outgoing,
    Queue,
    bodies,
    max_offset,
    min_offset,
    pull,
    put,
    send,
)
from tests.interop.cluster.processes import until
from tests.interop.cluster.servers import SLAVE_ID, Broker

COUNT = 5


@pytest.fixture
def master(cluster: Cluster) -> Broker:
    """Returns the master that has a slave."""
    return cluster.broker(A)


@pytest.fixture
def slave(cluster: Cluster) -> Broker:
    """Returns its slave."""
    return cluster.broker(A, SLAVE_ID)


@pytest.fixture
def at_slave(slave: Broker) -> Iterator[Connection]:
    """Yields a connection to the slave."""
    with Connection(slave.address) as opened:
        yield opened


@pytest.fixture
def copied(connection: Connection, at_slave: Connection, queue: Queue, slave: Broker) -> Queue:
    """Returns a queue with messages that the slave has, too."""
    for number in range(COUNT):
        put(connection, queue, Outgoing(b"%d" % number))
    until(lambda: max_offset(at_slave, queue) == COUNT, "copied", [slave])
    return queue


@pytest.fixture
def readable_slave(at_slave: Connection, slave: Broker) -> Iterator[Connection]:
    """Yields a connection to the slave while it permits reads."""
    with slave.switched("slaveReadEnable", to=True):
        yield at_slave


def test_a_slave_tells_its_range_but_is_not_read_by_default(
    at_slave: Connection, copied: Queue
) -> None:
    assert (min_offset(at_slave, copied), max_offset(at_slave, copied)) == (0, COUNT)
    refused = pull(at_slave, copied)
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert "REJECTREQUEST" in refused.remark


def test_a_slave_takes_no_messages(at_slave: Connection, copied: Queue) -> None:
    assert send(at_slave, copied, Outgoing(b"refused")).code == ResponseCode.SYSTEM_BUSY


def test_a_slave_that_may_be_read_has_the_masters_records(
    readable_slave: Connection, connection: Connection, copied: Queue
) -> None:
    # A slave fetches topics once a minute; this test does not wait for that.
    header = CreateTopicRequest(topic=copied.topic, read_queue_nums=2, write_queue_nums=2)
    readable_slave.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header).ok()
    answer = pull(readable_slave, copied)
    assert bytes(answer.ok().command.body) == bytes(pull(connection, copied).command.body)
    assert bodies(readable_slave, copied) == [b"%d" % number for number in range(COUNT)]
    at_end = pull(readable_slave, copied, COUNT)
    assert at_end.code == ResponseCode.PULL_NOT_FOUND
    beyond = pull(readable_slave, copied, COUNT + 1)
    assert beyond.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert beyond.header.next_begin_offset == COUNT + 1


def test_a_master_says_how_far_its_slave_is(connection: Connection, copied: Queue) -> None:
    def slaves() -> list[tuple[bool, int]]:
        status = connection.ask(RequestCode.GET_BROKER_HA_STATUS).ok().content
        assert status.is_master
        return [(each.is_in_sync, int(each.diff)) for each in status.connections]

    until(lambda: slaves() == [(True, 0)], "in step", [])
