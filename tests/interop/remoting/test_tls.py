"""RocketMQ's own Java and Go clients at our broker and name server over TLS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker, LocalTls
from tests.interop.cluster.java_clients import answered, row
from tests.interop.cluster.processes import configure_logs
from tests.interop.drivers import Driver, RocketMQError
from tests.interop.remoting.clients import GO, Messaging, go_process, until_consumed
from tests.interop.rocketmq import VERSIONS, RocketMQStore
from tests.support.certificates import Authority

SENT = [f"in TLS {number}" for number in range(20)]


@contextmanager
def java_process(version: str, folder: Path, *properties: str) -> Iterator[RocketMQStore]:
    """Yields a process with clients and mqadmin that use TLS."""
    folder.mkdir()
    configure_logs(folder)
    process = RocketMQStore(folder / "java.log", folder, version, ("tls.enable=true", *properties))
    try:
        yield process
    finally:
        process.kill()


def consume_sent(process: Driver, broker: LocalBroker, version: str) -> None:
    """Sends messages and consumes them. Raises RocketMQError."""
    clients = Messaging(process, broker.name_server, version)
    # An option of the Go client; that of the Java client is a property of its process.
    consumer = clients.consumer("T", tls=True)
    clients.producer(tls=True).send("T", SENT)
    until_consumed([consumer], SENT)
    clients.stop_all()


@pytest.mark.parametrize("version", [*VERSIONS, GO])
def test_a_producer_and_a_push_consumer_use_tls(version: str, tmp_path: Path) -> None:
    # RocketMQ's clients verify no server by default.
    with (
        LocalBroker(tls=True) as broker,
        go_process(tmp_path)
        if version == GO
        else java_process(version, tmp_path / "java") as process,
    ):
        broker.create_topic("T", queues=4)
        consume_sent(process, broker, version)


def test_mqadmin_uses_tls(version: str, tmp_path: Path) -> None:
    with (
        LocalBroker(tls=True) as broker,
        java_process(version, tmp_path / "java") as process,
    ):
        words = ["clusterList", "-n", broker.name_server]
        shown = answered(lambda: str(process.ask("admin", words=words)["printed"]))
        assert row(shown, "DefaultCluster", "broker-a")[3] == broker.remoting_endpoint


@pytest.mark.parametrize("is_ours", [True, False], ids=["ours", "another"])
def test_clients_verify_the_broker_and_have_a_certificate(
    version: str, tmp_path: Path, is_ours: bool
) -> None:
    authority = Authority(tmp_path)
    trusted = authority if is_ours else Authority(tmp_path, "another")
    server, client = authority.issue("server"), authority.issue("client")
    tls = LocalTls(server.certificate, server.key, authority.path, authority.path)
    properties = [
        "tls.test.mode.enable=false",
        "tls.client.authServer=true",
        f"tls.client.trustCertPath={trusted.path}",
        f"tls.client.certPath={client.certificate}",
        f"tls.client.keyPath={client.key}",
    ]
    with (
        LocalBroker(tls=tls) as broker,
        java_process(version, tmp_path / "java", *properties) as process,
    ):
        broker.create_topic("T", queues=4)
        if is_ours:
            consume_sent(process, broker, version)
        else:
            with pytest.raises(RocketMQError):
                Messaging(process, broker.name_server, version).producer().send("T", SENT)
