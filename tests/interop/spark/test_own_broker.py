"""One query with our broker and Java's in one cluster, found by either name server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.cluster.cluster import A
from tests.interop.cluster.own_servers.own_broker import OWN, OwnBroker, own_broker
from tests.interop.spark.queries import QUEUES, OfCluster, places
from tests.support.time_limits import WAIT_SECONDS_MAX

__all__ = ["own_broker"]


@pytest.fixture
def at_both(of_cluster: OfCluster, own_broker: OwnBroker) -> OfCluster:
    """Returns a topic with two queues at our broker and two at a Java broker."""
    topic = of_cluster.beside("at-both", A)
    create(topic, own_broker)
    topic.others[OWN] = own_broker.address
    return topic


def create(topic: OfCluster, own_broker: OwnBroker) -> None:
    """Creates the topic at our broker; every name server then routes to both brokers."""
    own_broker.create_topic(topic.topic, QUEUES)
    for server in topic.cluster.name_servers:
        assert server.routes(topic.topic).keys() == {A, OWN}


def send(topic: OfCluster, text: str) -> None:
    """Sends to every queue of both brokers."""
    for name in (A, OWN):
        for queue_id in range(QUEUES):
            topic.send(name, *(f"{text} {number}" for number in range(10)), queue_id=queue_id)


@pytest.mark.parametrize("number", [0, 1], ids=["by Java's name server", "by our name server"])
def test_n01_batches_and_streams_read_our_broker_and_javas(at_both: OfCluster, number: int) -> None:
    servers = {"nameServer": at_both.cluster.name_servers[number].address}
    for text in ("first", "second"):
        send(at_both, text)
        assert places(at_both.read(**servers)) == sorted(at_both.sent)
        at_both.run(**servers)
        assert at_both.streamed() == sorted(at_both.sent)


@pytest.mark.parametrize("delivery", ["at-least-once", "effectively-once"])
def test_n01_a_stream_writes_to_our_broker_and_javas(
    at_both: OfCluster, own_broker: OwnBroker, tmp_path: Path, delivery: str
) -> None:
    target = at_both.beside("copy", A)
    create(target, own_broker)
    at_both.cluster.create_topic("rocketpy_control", 1, [at_both.cluster.broker(A)])
    send(at_both, "m")
    frame = at_both.spark.readStream.format("rocketpy").options(
        **at_both.options(startingOffsets="earliest")
    )
    rows = frame.load().selectExpr("concat(brokerName, queueId, queueOffset) as body")
    options = target.options(delivery=delivery, checkpointLocation=tmp_path / "checkpoint")
    writer = rows.writeStream.format("rocketpy").options(**options)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT_SECONDS_MAX)
    written = places(target.read_written())
    expected = [f"{one.broker_name}{one.queue_id}{one.queue_offset}" for one in at_both.sent]
    assert sorted(one.body.decode() for one in written) == sorted(expected)
    assert {one.broker_name for one in written} == {A, OWN}
