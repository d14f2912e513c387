"""Ports of other programs than RocketMQ: a gRPC broker, a web server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pyspark_rocketpy.errors import ConnectionFailedError
from pyspark_rocketpy.transport.remoting.cluster.client import Cluster
from pyspark_rocketpy.transport.remoting.net.calls import ClusterConfig
from pyspark_rocketpy.transport.remoting.net.connections import Connections
from pyspark_rocketpy.transport.remoting.net.peers import Timeouts
from rocketpy_broker import LocalBroker
from rocketpy_proto.tls import TlsConfig
from tests.unit.connector.transport.remoting.scripted_peer import PATIENT


class Quiet(BaseHTTPRequestHandler):
    """A handler that logs nothing."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def web_server() -> Iterator[str]:
    """Yields the address of a web server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def failure_at(
    address: str, tls: TlsConfig | None = None, request: Timeouts = PATIENT
) -> ConnectionFailedError:
    """Returns the error of the first request about a topic."""
    connections = Connections()
    cluster = Cluster(ClusterConfig((address,), PATIENT, request, tls), connections)
    with pytest.raises(ConnectionFailedError) as caught:
        cluster.route("T")
    connections.close()
    assert f"name server {address}" in str(caught.value)
    assert "check option nameServer" in str(caught.value)
    return caught.value


def test_a_broker_of_ours_is_told_from_a_name_server(rocketpy_broker: LocalBroker) -> None:
    error = failure_at(rocketpy_broker.endpoint)
    assert "speaks HTTP/2, as gRPC does" in str(error)
    assert "named by option endpoints" in str(error)
    assert error.is_lasting


def test_a_broker_of_ours_speaks_no_tls(rocketpy_broker: LocalBroker) -> None:
    assert "see option tls" in str(failure_at(rocketpy_broker.endpoint, TlsConfig()))


def test_a_web_server_waits_for_more_and_is_given_up(web_server: str) -> None:
    error = failure_at(web_server, request=Timeouts(200, "o"))
    assert "has not answered within 200 ms" in str(error)
    assert "it may not be a RocketMQ server" in str(error)


def test_a_web_server_speaks_no_tls(web_server: str) -> None:
    error = failure_at(web_server, TlsConfig())
    assert "see option tls" in str(error)
