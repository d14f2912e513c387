"""The connector's transport to brokers with access control; 5.3 speaks TLS only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from pyspark_rocketpy.errors import BrokerError, ConnectionFailedError
from pyspark_rocketpy.transport.remoting.cluster import client
from pyspark_rocketpy.transport.remoting.cluster.groups import check_expression
from pyspark_rocketpy.transport.remoting.cluster.queue_requests import Pull, max_offset, pull
from pyspark_rocketpy.transport.remoting.cluster.routes import Routes
from pyspark_rocketpy.transport.remoting.net.access_keys import AccessKeys
from pyspark_rocketpy.transport.remoting.net.calls import ClusterConfig, RequestSender
from pyspark_rocketpy.transport.remoting.net.connections import Connections
from pyspark_rocketpy.transport.remoting.net.peers import Peer
from pyspark_rocketpy.transport.remoting.send.requests import SendBatch, send
from rocketpy_proto.remoting import MessageQueue
from rocketpy_proto.remoting.bodies.routes import BrokerData, TopicRouteData
from rocketpy_proto.tls import TlsConfig
from tests.interop.cluster.access import (
    ADMIN,
    GUARDED_TOPIC,
    READER,
    STRANGER,
    WRITER,
    Certificates,
)
from tests.interop.cluster.codec.test_access import Guarded, both, certificates, guarded
from tests.interop.cluster.connection import Keys
from tests.interop.cluster.connector.test_transport import PATIENT
from tests.interop.cluster.messages import GROUP
from tests.interop.cluster.processes import until
from tests.interop.rocketmq import V5

__all__ = ["both", "certificates", "guarded"]
QUEUE = MessageQueue("guarded", 0, GUARDED_TOPIC)
ConnectAs = Callable[[Keys | None], client.Cluster]


class LoneBroker(client.Cluster):
    """A cluster without a name server: the one broker has every queue."""

    def __init__(self, address: str, config: ClusterConfig, connections: Connections) -> None:
        super().__init__(config, connections)
        self._caller = RequestSender(config, connections)
        brokers = (BrokerData(QUEUE.broker_name, {0: address}),)
        self._routes = Routes(lambda _topic: TopicRouteData(brokers))


def config_for(keys: Keys | None, tls: TlsConfig | None) -> ClusterConfig:
    access = None if keys is None else AccessKeys(keys.access_key, keys.secret_key)
    return ClusterConfig((), PATIENT, PATIENT, tls, access)


@pytest.fixture
def connect_as(guarded: Guarded, certificates: Certificates) -> Iterator[ConnectAs]:
    """Yields a function that returns a user's view of a guarded broker, by the connector."""
    tls = None if guarded.tls is None else TlsConfig(ca_file=str(certificates.certificate))
    with closing(Connections()) as connections:
        yield lambda keys: LoneBroker(guarded.broker.address, config_for(keys, tls), connections)


def test_users_write_and_read_what_they_may(connect_as: ConnectAs) -> None:
    writer, reader = connect_as(WRITER), connect_as(READER)
    offset = send(writer, QUEUE, SendBatch(b"signed", 1, ""), PATIENT).answer().queue_offset
    until(lambda: max_offset(reader, QUEUE).answer() > offset, "the message", [])
    assert b"signed" in bytes(pull(reader, Pull(GROUP, QUEUE, offset), PATIENT).answer().records)
    with pytest.raises(BrokerError, match="check options accessKey and secretKey"):
        send(reader, QUEUE, SendBatch(b"refused", 1, ""), PATIENT).answer()


@pytest.mark.parametrize(
    "keys", [None, replace(WRITER, secret_key="not-so-secret"), STRANGER], ids=str
)
def test_a_refusal_names_the_options_and_no_secret(
    connect_as: ConnectAs, keys: Keys | None
) -> None:
    with pytest.raises(BrokerError, match="check options accessKey and secretKey") as caught:
        send(connect_as(keys), QUEUE, SendBatch(b"refused", 1, ""), PATIENT).answer()
    for secret in (WRITER.secret_key, STRANGER.secret_key, "not-so-secret"):
        assert secret not in repr(caught.value)


def test_a_broker_that_insists_on_tls_is_named_with_the_option(
    both: dict[str, Guarded],
) -> None:
    peer = Peer(both[V5].broker.address)
    with closing(Connections()) as connections:
        cluster = client.Cluster(config_for(ADMIN, None), connections)
        with pytest.raises(ConnectionFailedError, match=r"option tls\)") as caught:
            check_expression(cluster, peer, GROUP, "a = 1").answer()
    assert peer.address in str(caught.value)
