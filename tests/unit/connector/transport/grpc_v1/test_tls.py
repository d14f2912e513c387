"""Reads and writes of a broker over TLS, and the errors if only one end uses it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_rocketpy.datasource import DefaultSource
from pyspark_rocketpy.errors import ConnectionFailedError, OptionError
from pyspark_rocketpy.transport.grpc_v1.client import GrpcClient, forget_client
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from rocketpy_broker import LocalBroker, LocalTls
from rocketpy_proto.tls import TlsConfig
from tests.support.certificates import Authority, PairFiles

SCHEMA = StructType([StructField("body", BinaryType())])
CONNECT_MS = 20_000
# Enough for a handshake on a busy machine: a failed one is repeated until then.
FAILED_MS = 1_500


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Returns the authority of the broker and its clients."""
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def client_pair(authority: Authority) -> PairFiles:
    """Returns a client's pair."""
    return authority.issue("client")


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[LocalBroker]:
    """Yields a broker that asks clients with TLS for a certificate."""
    server = authority.issue("server")
    tls = LocalTls(server.certificate, server.key, authority.path, authority.path)
    with LocalBroker(tls=tls) as local:
        yield local


def options_of(broker: LocalBroker, authority: Authority, pair: PairFiles) -> dict[str, str]:
    return {
        "endpoints": broker.tls_endpoint,
        "topic": "T",
        "tls": "true",
        "tlsCaFile": str(authority.path),
        "tlsCertFile": str(pair.certificate),
        "tlsKeyFile": str(pair.key),
    }


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_rows_are_written_and_read_over_tls(
    broker: LocalBroker, authority: Authority, client_pair: PairFiles, delivery: str
) -> None:
    topic = f"T-{delivery}"
    broker.create_topic(topic, queues=2)
    options = {**options_of(broker, authority, client_pair), "topic": topic}
    bodies = [b"%d" % number * 1_000 for number in range(50)]
    rows = pa.record_batch({"body": pa.array(bodies)})
    writer = DefaultSource({**options, "delivery": delivery}).writer(SCHEMA, overwrite=False)
    writer.commit([writer.write(iter([rows]))])
    reading = DefaultSource(options)
    reader = reading.reader(reading.schema())
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    assert sorted(body for batch in batches for body in batch["body"].to_pylist()) == sorted(bodies)


def failure(endpoint: str, tls: TlsConfig | None) -> ConnectionFailedError:
    config = ClientConfig((endpoint,), FAILED_MS, tls=tls)
    with pytest.raises(ConnectionFailedError) as caught:
        GrpcClient(config)
    forget_client(config)
    return caught.value


def test_a_failure_names_its_reason_and_the_option(
    broker: LocalBroker, authority: Authority, client_pair: PairFiles, tmp_path: Path
) -> None:
    foreign, own = Authority(tmp_path, "foreign"), authority.client(client_pair)
    secure = broker.tls_endpoint
    cases = [
        (secure, foreign.client(client_pair), "is not accepted .*; check option tlsCaFile"),
        (secure, replace(own, server_name="other"), "is not accepted .*option tlsServerName"),
        (secure, authority.client(), "refuses the client's certificate.*options tlsCertFile"),
        (secure, authority.client(foreign.issue("c")), "refuses the client's certificate"),
        (secure, None, "serves only TLS; set option tls"),
        (broker.endpoint, own, "serves no TLS; leave out option tls"),
    ]
    for endpoint, tls, reason in cases:
        error = failure(endpoint, tls)
        assert re.search(reason, str(error)), (tls, error)
        assert error.is_lasting


def test_a_broker_that_is_away_is_no_failure_of_tls(
    authority: Authority, client_pair: PairFiles
) -> None:
    error = failure("127.0.0.1:1", authority.client(client_pair))
    assert "no broker answers" in str(error)
    assert not error.is_lasting


@pytest.mark.parametrize("field", ["ca_file", "cert_file", "key_file"])
def test_a_file_that_cannot_be_used_is_an_option_error(
    broker: LocalBroker, authority: Authority, client_pair: PairFiles, field: str
) -> None:
    own = authority.client(client_pair)
    tls = replace(own, **{field: "/no/file.pem"})  # type: ignore[arg-type]
    name = {"ca_file": "tlsCaFile", "cert_file": "tlsCertFile", "key_file": "tlsKeyFile"}[field]
    with pytest.raises(OptionError, match=name):
        GrpcClient(ClientConfig((broker.tls_endpoint,), CONNECT_MS, tls=tls))
