"""A broker of ours with its name server, and processes of RocketMQ's Java and Go clients."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker
from tests.interop.drivers import Driver
from tests.interop.remoting.clients import Messaging
from tests.interop.rocketmq import TOP, VERSIONS, RocketMQStore


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    """Yields a broker of this test."""
    with LocalBroker() as started:
        yield started


@pytest.fixture(scope="session", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """Returns each version of RocketMQ's clients."""
    return str(request.param)


@pytest.fixture(scope="session")
def java(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQStore]:
    """Yields a process for clients of one version."""
    folder = tmp_path_factory.mktemp("messaging")
    process = RocketMQStore(folder / "java.log", folder, version)
    yield process
    process.kill()


@pytest.fixture
def messaging(broker: LocalBroker, java: RocketMQStore, version: str) -> Iterator[Messaging]:
    """Yields the Java clients of one version; their name server is the broker's."""
    clients = Messaging(java, broker.name_server, version)
    yield clients
    clients.stop_all()


@pytest.fixture
def go(broker: LocalBroker, tmp_path: Path) -> Iterator[Messaging]:
    """Yields Go clients in a process of this test, whose home has the local offsets."""
    environment = {**os.environ, "HOME": str(tmp_path), "ROCKETMQ_GO_LOG_LEVEL": "warn"}
    command = [str(TOP / ".interop" / "go" / "client")]
    with Driver(command, tmp_path / "go.log", environment) as process:
        clients = Messaging(process, broker.name_server, "go")
        yield clients
        clients.stop_all()
