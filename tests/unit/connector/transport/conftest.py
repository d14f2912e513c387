"""A fixture that provides each transport in turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyspark_rocketpy.transport.grpc_v1.client import forget_client
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.grpc_v1.transport import GrpcTransport
from pyspark_rocketpy.transport.remoting.cluster.client import _clusters, cluster_for
from pyspark_rocketpy.transport.remoting.net.calls import ClusterConfig
from pyspark_rocketpy.transport.remoting.net.connections import SHARED
from pyspark_rocketpy.transport.remoting.net.peers import Timeouts
from pyspark_rocketpy.transport.remoting.sink import RemotingTransport
from pyspark_rocketpy.transport.remoting.source import RemotingSource
from pyspark_rocketpy.transport.values import RetryPolicy
from rocketpy_broker import LocalBroker
from tests.support.time_limits import WAIT_SECONDS_MAX
from tests.unit.connector.transport.contract import Setup
from tests.unit.connector.transport.scripted import MemoryBroker, ScriptedTransport

RETRIES = RetryPolicy(3, 10)


@pytest.fixture(params=["grpc_v1", "remoting", "scripted"])
def setup(request: pytest.FixtureRequest) -> Iterator[Setup]:
    """Yields each transport in turn; `remoting` is that of clusters, to the same broker."""
    if request.param == "scripted":
        memory = MemoryBroker()
        transport = ScriptedTransport(memory)
        yield Setup(
            transport,
            transport,
            memory.create_topic,
            lambda: memory.recoveries.add(memory.topics),
            memory.readable.__setitem__,
        )
        return
    local: LocalBroker = request.getfixturevalue("rocketpy_broker")
    yield from (_by_grpc if request.param == "grpc_v1" else _by_remoting)(local)


def _by_grpc(local: LocalBroker) -> Iterator[Setup]:
    client = ClientConfig((local.endpoint,), 10_000)

    def restart() -> None:
        local.kill()
        local.start()

    def show(topic: str, queues: int) -> None:
        local.update_topic(topic, queues=queues)

    transport = GrpcTransport(client, RETRIES)
    yield Setup(transport, transport, local.create_topic, restart, show)
    forget_client(client)


def _by_remoting(local: LocalBroker) -> Iterator[Setup]:
    timeouts = Timeouts(WAIT_SECONDS_MAX * 1000, "connectTimeout")
    cluster = ClusterConfig((local.name_server,), timeouts, timeouts)
    source = RemotingSource(cluster, RETRIES, "group", timeouts.ms, 64, 32 << 20, 0)

    def restart() -> None:
        raise NotImplementedError("no test of recoveries runs on a cluster")

    def show(topic: str, queues: int) -> None:
        local.update_topic(topic, queues=queues)
        # The route would be kept for 30 s.
        cluster_for(cluster).doubt(topic)

    name = source.offset_queries().broker_name()
    yield Setup(
        source, RemotingTransport(cluster, RETRIES), local.create_topic, restart, show, name
    )
    SHARED.close()
    _clusters.clear()
