"""Options of TLS, which are the same for a broker of rocketpy and for clusters."""

from __future__ import annotations

import pickle

import pytest

from pyspark_rocketpy.errors import OptionError
from pyspark_rocketpy.options.retry_options import RetryOptions
from pyspark_rocketpy.options.tls import TLS_OPTIONS
from pyspark_rocketpy.options.values import SinkOptions, SourceOptions
from pyspark_rocketpy.transport.grpc_v1.source import GrpcSource
from pyspark_rocketpy.transport.grpc_v1.transport import GrpcTransport
from rocketpy_proto.tls import TlsConfig

BROKER = {"endpoints": "h:1", "topic": "T"}
FILES = {"tlsCaFile": "/ca", "tlsCertFile": "/c", "tlsKeyFile": "/k", "tlsServerName": "broker"}
EXPECTED = TlsConfig("/ca", "/c", "/k", server_name="broker")


def test_the_options_lead_to_the_client_of_a_broker() -> None:
    given = {**BROKER, "tls": "true", **FILES}
    source, sink = SourceOptions.parse(given), SinkOptions.parse(given)
    retry = RetryOptions.parse({"endpoints": "h:1", "consumerGroup": "G", "tls": True, **FILES})
    clients = [
        GrpcSource.of_source(source).client,
        GrpcTransport.of_sink(sink).client,
        GrpcTransport.of_retry(retry).client,
    ]
    assert [client.tls for client in clients] == [EXPECTED] * 3
    assert pickle.loads(pickle.dumps(source)) == source


def test_without_the_option_a_client_uses_plaintext() -> None:
    assert SourceOptions.parse(BROKER).tls is None
    assert SinkOptions.parse({**BROKER, "tls": "false"}).tls is None


def test_a_cluster_has_the_same_tls() -> None:
    given = {"nameServer": "ns:1", "topic": "T", "tls": "true", **FILES}
    options = SourceOptions.parse(given)
    assert options.cluster is not None
    assert options.cluster.tls == options.tls == EXPECTED


@pytest.mark.parametrize("name", [spec.name for spec in TLS_OPTIONS[1:]])
def test_an_option_without_tls_is_refused(name: str) -> None:
    given = {**BROKER, **FILES, "tlsVerify": "true"}
    given = {**BROKER, "tlsCertFile": "/c", "tlsKeyFile": "/k", name: given[name]}
    with pytest.raises(OptionError, match=r"is set, but tls is not true; set tls to true"):
        SourceOptions.parse(given)


def test_verification_cannot_be_left_out_for_a_broker() -> None:
    with pytest.raises(OptionError, match=r"gRPC always verifies the broker.*set tlsCaFile"):
        SourceOptions.parse({**BROKER, "tls": "true", "tlsVerify": "false"})
