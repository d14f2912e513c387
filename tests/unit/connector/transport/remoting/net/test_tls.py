"""TLS: trusted and untrusted peers, and the errors if only one end uses it."""

from __future__ import annotations

import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pyspark_rocketpy.errors import ConnectionFailedError, OptionError
from pyspark_rocketpy.transport.remoting.net.connection import Connection
from pyspark_rocketpy.transport.remoting.net.peers import Peer, Timeouts
from rocketpy_proto.tls import TlsConfig
from tests.unit.connector.transport.remoting.conftest import Peers
from tests.unit.connector.transport.remoting.net.test_connection import (
    answering_bytes,
    ask,
    failure_of,
)
from tests.unit.connector.transport.remoting.scripted_peer import (
    PATIENT,
    ScriptedPeer,
    Visit,
    answering,
    echo,
)

CERTIFICATES = Path(__file__).parent / "certificates"
# Self-signed, so it is its own authority; valid for 127.0.0.1 until 2126.
CERTIFICATE, KEY = str(CERTIFICATES / "server.pem"), str(CERTIFICATES / "server.key")
BELIEVING = TlsConfig(ca_file=CERTIFICATE)
CONFIGS = {
    "verified": BELIEVING,
    "with a certificate of the client": replace(BELIEVING, cert_file=CERTIFICATE, key_file=KEY),
    "not verified": TlsConfig(is_verified=False),
}


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, KEY)
    return context


def server(peers: Peers) -> ScriptedPeer:
    return peers(answering(echo), tls=server_context())


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_large_frames_go_both_ways_at_a_time(
    peers: Peers, config: TlsConfig, version: ssl.TLSVersion
) -> None:
    context = server_context()
    context.minimum_version = context.maximum_version = version
    if config.cert_file is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(CERTIFICATE)
    peer = peers(answering(echo), tls=context)
    bodies = [bytes([number]) * (1 << 19) for number in range(12)]
    with (
        closing(Connection.open(Peer(peer.address), PATIENT, config)) as connection,
        ThreadPoolExecutor(4) as pool,
    ):
        pendings = list(pool.map(lambda body: ask(connection, body), bodies))
        assert [bytes(pending.answer().body) for pending in pendings] == bodies


def test_a_cut_connection_is_declared(peers: Peers) -> None:
    peer = peers(Visit.request, tls=server_context())
    with closing(Connection.open(Peer(peer.address), PATIENT, BELIEVING)) as connection:
        assert "closed the connection" in str(failure_of(ask(connection)))


def test_an_unknown_certificate_is_refused(peers: Peers) -> None:
    peer = server(peers)
    with pytest.raises(ConnectionFailedError, match="has a certificate that is not accepted") as e:
        Connection.open(Peer(peer.address, is_name_server=True), PATIENT, TlsConfig())
    assert peer.address in str(e.value)
    assert "option tlsCaFile" in str(e.value)
    assert e.value.is_lasting


def test_a_certificate_for_another_host_is_refused(peers: Peers) -> None:
    port = server(peers).address.rpartition(":")[2]
    with pytest.raises(ConnectionFailedError, match="certificate that is not accepted"):
        Connection.open(Peer(f"localhost:{port}"), PATIENT, BELIEVING)


def test_a_server_without_tls_is_told(peers: Peers) -> None:
    def script(visit: Visit) -> None:
        visit.socket.recv(1)
        visit.socket.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with pytest.raises(ConnectionFailedError, match="speaks no compatible TLS") as caught:
        Connection.open(Peer(peers(script).address), PATIENT, BELIEVING)
    assert "see option tls" in str(caught.value)
    assert caught.value.is_lasting


def test_a_server_that_closes_at_a_greeting_is_told(peers: Peers) -> None:
    with pytest.raises(ConnectionFailedError, match="ended the TLS handshake") as caught:
        Connection.open(Peer(peers(lambda visit: None).address), PATIENT, BELIEVING)
    assert not caught.value.is_lasting


def test_a_handshake_that_stands_still_is_given_up(peers: Peers) -> None:
    peer = peers(Visit.wait_for_end)
    with pytest.raises(ConnectionFailedError, match="ended the TLS handshake"):
        Connection.open(Peer(peer.address), Timeouts(50, "connectTimeout"), BELIEVING)


def test_a_client_without_tls_is_told(peers: Peers) -> None:
    peer = peers(answering_bytes(b"\x15\x03\x03\x00\x02\x02\x28"))
    with closing(Connection.open(Peer(peer.address), PATIENT, None)) as connection:
        assert "set option tls to true" in str(failure_of(ask(connection)))


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (TlsConfig(ca_file="nowhere.pem"), "option tlsCaFile is 'nowhere.pem'"),
        (TlsConfig(ca_file=__file__), "option tlsCaFile is"),
        (replace(BELIEVING, cert_file="nowhere.pem"), "options tlsCertFile and tlsKeyFile"),
        (replace(BELIEVING, cert_file=CERTIFICATE), "options tlsCertFile and tlsKeyFile"),
    ],
)
def test_a_file_that_is_none_is_an_option_error(config: TlsConfig, options: str) -> None:
    with pytest.raises(OptionError, match=options):
        Connection.open(Peer("127.0.0.1:1"), PATIENT, config)
