"""H04: a query with the endpoints of master and slave reads on, and goes on after a promotion."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pyspark_rocketpy.errors import DataLossError
from pyspark_rocketpy.source.readers import RocketpyStreamReader
from rocketpy_broker import LocalBroker
from rocketpy_broker.client import brokers
from tests.broker.replication.promotion.test_h04_promotion import until
from tests.spark.source.test_s09_topic_made_again import read_to, rows
from tests.spark.source.test_stream_reader import reader, send
from tests.support.time_limits import WAIT_SECONDS_MAX

TOPIC = "T"


class Pair(NamedTuple):
    master: LocalBroker
    slave: LocalBroker

    def reader(self, **options: str) -> RocketpyStreamReader:
        endpoints = f"{self.master.endpoint},{self.slave.endpoint}"
        return reader(self.master, TOPIC, endpoints=endpoints, **options)

    def until_copied(self) -> None:
        count = len(self.master.messages(TOPIC))
        until(lambda: len(self.slave.messages(TOPIC)) == count)

    def promote(self) -> None:
        with self.slave._connection() as connection:
            brokers.promote(connection, force=True)
            assert brokers.await_master(connection, WAIT_SECONDS_MAX)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with LocalBroker(tmp_path / "a", ha_port=0) as master:
        address = master.remoting_endpoint
        with LocalBroker(tmp_path / "b", broker_role="SLAVE", master=address) as slave:
            master.create_topic(TOPIC, queues=1)
            yield Pair(master, slave)


def test_h04_a_query_reads_on_from_the_slave_and_after_its_promotion(pair: Pair) -> None:
    send(pair.master, TOPIC, b"one", b"two")
    pair.until_copied()
    source = pair.reader()
    start = source.initialOffset()
    middle = read_to(source, start)
    assert [*rows(source, source.partitions(start, middle))] == [b"one", b"two"]
    send(pair.master, TOPIC, b"three")
    pair.until_copied()
    pair.master.kill()
    end = read_to(source, middle)
    assert [*rows(source, source.partitions(middle, end))] == [b"three"]
    pair.promote()
    pair.slave.send(TOPIC, b"four")
    after = read_to(source, end)
    assert [*rows(source, source.partitions(end, after))] == [b"four"]


def test_h04_a_slave_that_lacks_messages_loses_none_until_it_is_promoted(pair: Pair) -> None:
    send(pair.master, TOPIC, b"one")
    pair.until_copied()
    source = pair.reader()
    start = source.initialOffset()
    pair.slave.stop()
    send(pair.master, TOPIC, b"two", b"three")
    end = read_to(source, start)
    assert [*rows(source, source.partitions(start, end))] == [b"one", b"two", b"three"]
    pair.master.kill()
    pair.slave.start()
    # The slave may get them when the master is back.
    assert read_to(source, end) == end
    pair.promote()
    pair.slave.send(TOPIC, b"four")
    with pytest.raises(DataLossError, match=r"offsets \[1, 3\) of queue 0 of topic 'T'"):
        read_to(source, end)
    lenient = pair.reader(failOnDataLoss="false")
    after = read_to(lenient, end)
    assert [*rows(lenient, lenient.partitions(end, after))] == [b"four"]


def test_h04_a_query_waits_for_a_master_that_comes_back(pair: Pair) -> None:
    send(pair.master, TOPIC, b"one")
    pair.until_copied()
    source = pair.reader()
    start = source.initialOffset()
    pair.slave.stop()
    send(pair.master, TOPIC, b"two")
    end = read_to(source, start)
    pair.master.kill()
    pair.slave.start()
    assert read_to(source, end) == end
    pair.master.start()
    pair.until_copied()
    send(pair.master, TOPIC, b"three")
    # The query may still ask the slave, which gets the message a moment later.
    until(lambda: read_to(source, end) != end)
    after = read_to(source, end)
    assert [*rows(source, source.partitions(start, after))] == [b"one", b"two", b"three"]
