"""One cluster for all tests of a session, and fixtures of each test in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.cluster.cluster import OLD, A, Cluster
from tests.interop.cluster.connection import Connection
from tests.interop.cluster.java_clients import ConnectJava, JavaClient
from tests.interop.cluster.messages import Queue
from tests.interop.cluster.processes import ServerProcess
from tests.interop.cluster.servers import Broker
from tests.interop.rocketmq import ENDS, RocketMQStore


@pytest.fixture
def ending() -> Iterator[list[ServerProcess]]:
    """Yields a list of servers to kill at the end."""
    servers: list[ServerProcess] = []
    yield servers
    for each in servers:
        each.kill()


@pytest.fixture(params=[A, OLD])
def master(request: pytest.FixtureRequest, cluster: Cluster) -> Broker:
    """Returns a master of each version."""
    return cluster.broker(request.param)


@pytest.fixture
def connection(master: Broker) -> Iterator[Connection]:
    """Yields a connection to the master."""
    with Connection(master.address) as opened:
        yield opened


@pytest.fixture
def topic(request: pytest.FixtureRequest, cluster: Cluster, master: Broker) -> str:
    """Returns a topic of this test, with two queues, at the master alone."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    cluster.create_topic(name, brokers=[master])
    return name


@pytest.fixture
def queue(topic: str) -> Queue:
    """Returns the topic's first queue."""
    return Queue(topic)


@pytest.fixture(scope="session")
def java_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RocketMQStore]]:
    """Yields a process for Java clients of the newest and of the oldest version."""
    folder = tmp_path_factory.mktemp("java-clients")
    logs = {version: folder / f"{version}.log" for version in ENDS}
    processes = {name: RocketMQStore(log, folder, name) for name, log in logs.items()}
    yield processes
    for process in processes.values():
        process.kill()


@pytest.fixture
def connect_java(cluster: Cluster, java_processes: dict[str, RocketMQStore]) -> ConnectJava:
    """Returns a function that connects a Java client to a topic; its group has the topic's name.

    The client stays connected, since its disconnection takes three seconds.
    """

    def connect(version: str, topic: str) -> JavaClient:
        return JavaClient(java_processes[version], cluster.addresses, topic, topic)

    return connect
