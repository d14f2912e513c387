"""The sink's transport for clusters: its parts and its refusals."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyspark_rocketpy.errors import ConnectionFailedError, TopicNotExistError
from pyspark_rocketpy.options.values import SinkOptions
from pyspark_rocketpy.transport.remoting.cluster.client import _clusters
from pyspark_rocketpy.transport.remoting.net.connections import SHARED
from pyspark_rocketpy.transport.remoting.sink import BODY_BYTES_MAX, RemotingTransport
from pyspark_rocketpy.transport.values import RetryPolicy
from tests.unit.connector.transport.remoting.conftest import Peers
from tests.unit.connector.transport.remoting.scripted_cluster import TOPIC, Knowledge, route_of
from tests.unit.connector.transport.remoting.scripted_peer import ScriptedPeer, answering


@pytest.fixture(autouse=True)
def _leave() -> Iterator[None]:
    yield
    SHARED.close()
    _clusters.clear()


def transport_of(name_server: ScriptedPeer, **options: str) -> RemotingTransport:
    given = {"nameServer": name_server.address, "topic": TOPIC, **options}
    return RemotingTransport.of_sink(SinkOptions.parse(given))


def test_options_say_how_patient_it_is(peers: Peers) -> None:
    server = peers(answering(Knowledge().answer))
    times = {"sendTimeout": "123ms", "retryTimesMax": "4", "retryBackoff": "5ms"}
    transport = transport_of(server, connectTimeout="678ms", accessKey="a", secretKey="b", **times)
    assert (transport.send_timeout_ms, transport.retries) == (123, RetryPolicy(4, 5))
    assert transport.cluster.connect.ms == transport.cluster.request.ms == 678
    assert transport.cluster.access is not None
    assert "secret_key" not in repr(transport)


def test_a_job_that_cannot_begin_is_told_at_once(peers: Peers) -> None:
    server = peers(answering(Knowledge({TOPIC: route_of(a="h:1")}).answer))
    transport = transport_of(server)
    assert transport.prepared(TOPIC, is_single=True) == transport
    assert transport.prepared(None, is_single=False) == transport
    with pytest.raises(TopicNotExistError, match="missing"):
        transport.prepared("missing", is_single=True)
    once = transport_of(server, delivery="effectively-once")
    with pytest.raises(TopicNotExistError, match="rocketpy_control"):
        once.prepared(TOPIC, is_single=True)
    server.close()
    with pytest.raises(ConnectionFailedError, match="option nameServer"):
        transport.prepared(None, is_single=True)


def test_bodies_are_within_what_brokers_take_by_default(peers: Peers) -> None:
    limits = transport_of(peers(answering(Knowledge().answer))).limits()
    assert (limits.body_bytes_min, limits.body_bytes_max) == (1, BODY_BYTES_MAX)
    assert limits.request_bytes_max > BODY_BYTES_MAX
