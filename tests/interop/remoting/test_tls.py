"""RocketMQ's own Java clients at our broker and name server over TLS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker, LocalTls
from tests.interop.cluster.processes import configure_logs
from tests.interop.drivers import RocketMQError
from tests.interop.remoting.clients import Messaging, until_consumed
from tests.interop.rocketmq import RocketMQStore
from tests.support.certificates import Authority

SENT = [f"in TLS {number}" for number in range(20)]


@contextmanager
def java_clients(
    broker: LocalBroker, version: str, folder: Path, *properties: str
) -> Iterator[Messaging]:
    """Yields clients that use TLS, in a process of their own."""
    folder.mkdir()
    configure_logs(folder)
    process = RocketMQStore(folder / "java.log", folder, version, ("tls.enable=true", *properties))
    try:
        clients = Messaging(process, broker.name_server, version)
        yield clients
        clients.stop_all()
    finally:
        process.kill()


def test_a_producer_and_a_push_consumer_use_tls_by_default(version: str, tmp_path: Path) -> None:
    # RocketMQ's clients verify no server by default.
    with LocalBroker(tls=True) as broker:
        broker.create_topic("T", queues=4)
        with java_clients(broker, version, tmp_path / "java") as clients:
            consumer = clients.consumer("T")
            clients.producer().send("T", SENT)
            until_consumed([consumer], SENT)


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
    with LocalBroker(tls=tls) as broker:
        broker.create_topic("T", queues=4)
        with java_clients(broker, version, tmp_path / "java", *properties) as clients:
            if not is_ours:
                with pytest.raises(RocketMQError):
                    clients.producer().send("T", SENT)
                return
            consumer = clients.consumer("T")
            clients.producer().send("T", SENT)
            until_consumed([consumer], SENT)
