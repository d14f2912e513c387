"""A broker restarted at another address, while clients keep the old route."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyspark_rocketpy import clock
from pyspark_rocketpy.offsets import BrokerQueue, QueueRange
from pyspark_rocketpy.transport.remoting.cluster.client import cluster_for
from pyspark_rocketpy.transport.remoting.cluster.queue_requests import consumer_offset
from pyspark_rocketpy.transport.remoting.net.calls import ClusterConfig
from pyspark_rocketpy.transport.remoting.net.peers import Timeouts
from pyspark_rocketpy.transport.remoting.send.requests import SendBatch, send
from pyspark_rocketpy.transport.remoting.source import RemotingSource
from pyspark_rocketpy.transport.values import PullOptions, QueueTime, RetryPolicy, Subscription
from rocketpy_proto.remoting import MessageQueue
from tests.interop.cluster.cluster import Cluster
from tests.interop.cluster.processes import until
from tests.interop.cluster.servers import Broker, BrokerSpec
from tests.interop.rocketmq import V4, V5
from tests.support.blocks import bodies_of
from tests.support.time_limits import WAIT_SECONDS_MAX

PATIENT = Timeouts(WAIT_SECONDS_MAX * 1000, "connectTimeout")
GROUP = "moved-readers"
OPTIONS = PullOptions(GROUP, 1 << 20, fail_on_data_loss=True)
# No retries, and no waits for a broker.
ONCE = RetryPolicy(0, 1)


@pytest.fixture(params=[V5, V4])
def moving(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Broker]:
    """Yields a broker of each version, which may move."""
    name = f"broker-moving-{request.param.replace('.', '-')}"
    cluster.add(BrokerSpec(name, version=request.param))
    yield cluster.broker(name)
    cluster.remove(cluster.broker(name))


def test_the_first_query_after_a_broker_has_moved_finds_it(
    cluster: Cluster, moving: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Time stands still, so the old route stays valid during any start of the broker.
    now_ms = clock.monotonic_ms()
    monkeypatch.setattr(clock, "monotonic_ms", lambda: now_ms)
    name = moving.spec.name
    topic = f"of-{name}"
    cluster.create_topic(topic, 1, [moving])
    config = ClusterConfig(tuple(cluster.addresses.split(";")), PATIENT, PATIENT)
    source = RemotingSource(config, ONCE, GROUP, 30_000, 4, 1 << 20, 1)
    seen, queue = cluster_for(config), MessageQueue(name, 0, topic)
    subscription, of_broker = Subscription((topic,), None, GROUP), BrokerQueue(name, 0)

    def sent(body: bytes) -> int:
        return send(seen, queue, SendBatch(body, 1, ""), PATIENT).answer().queue_offset

    def end() -> int:
        return source.offset_queries().bounds(subscription)[topic][of_broker].max_offset

    assert (sent(b"0"), sent(b"1")) == (0, 1)
    source.offset_queries().commit(GROUP, {topic: {of_broker: 1}}, {})
    until(lambda: end() == 2, "stored", [moving])

    old = moving.address
    moved = cluster.move(moving)
    assert moved.address != old
    # An error of the first query would end the wait.
    until(lambda: end() == 2, "stored", [moved])
    part = QueueRange(topic, 0, 0, 2, broker_name=name)
    pieces = list(source.pull(part, OPTIONS))
    assert b"".join(b"".join(bodies_of(bytes(p.records), p.sizes)) for p in pieces) == b"01"
    assert source.offset_queries().search([QueueTime(topic, 0, 0, name)]) == [0]

    cluster.move(cluster.broker(name))
    assert sent(b"2") == 2
    cluster.move(cluster.broker(name))
    source.offset_queries().commit(GROUP, {topic: {of_broker: 2}}, {})
    assert consumer_offset(seen, GROUP, queue).answer() == 2
