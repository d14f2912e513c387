"""A fixture that provides each transport in turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyspark_rocketpy.transport.grpc_v1.client import forget_client
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.grpc_v1.transport import GrpcTransport
from pyspark_rocketpy.transport.values import RetryPolicy
from rocketpy_broker import LocalBroker
from tests.unit.connector.transport.contract import Setup
from tests.unit.connector.transport.scripted import MemoryBroker, ScriptedTransport


@pytest.fixture(params=["grpc_v1", "scripted"])
def setup(request: pytest.FixtureRequest) -> Iterator[Setup]:
    """Yields each transport in turn."""
    if request.param == "scripted":
        broker = MemoryBroker()
        yield Setup(
            ScriptedTransport(broker),
            broker.create_topic,
            lambda: broker.recoveries.add(broker.topics),
            broker.readable.__setitem__,
        )
        return
    local: LocalBroker = request.getfixturevalue("rocketpy_broker")
    client = ClientConfig((local.endpoint,), 10_000)

    def restart() -> None:
        local.kill()
        local.start()

    def show(topic: str, queues: int) -> None:
        local.update_topic(topic, queues=queues)

    yield Setup(GrpcTransport(client, RetryPolicy(3, 10)), local.create_topic, restart, show)
    forget_client(client)
