"""A broker of ours with its name server, and processes of RocketMQ's Java and Go clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker
from tests.interop.answered_calls import until_answered
from tests.interop.cluster.java_clients import answered
from tests.interop.cluster.processes import configure_logs
from tests.interop.remoting.clients import GO, Messaging, go_process
from tests.interop.rocketmq import VERSIONS, RocketMQStore
from tests.project.documents.request_codes import codes_of

# Runs a command of mqadmin with these words, and returns what it prints.
Tool = Callable[..., str]
# Returns the process of a version.
JavaOf = Callable[[str], RocketMQStore]


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[LocalBroker]:
    """Yields a broker of this test, which must answer each request that the table names for it."""
    with LocalBroker(http_port=0) as started:
        yield started
        if named := codes_of(request.node.nodeid):
            until_answered(started.http_endpoint, named)


@pytest.fixture(scope="session", params=[*VERSIONS, GO])
def client(request: pytest.FixtureRequest) -> str:
    """Returns each version of RocketMQ's Java client, and GO."""
    return str(request.param)


@pytest.fixture(scope="session")
def java_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaOf]:
    """Yields a function that returns the process of a version; each starts once."""
    with ExitStack() as stack:

        @cache
        def java_process(version: str) -> RocketMQStore:
            folder = tmp_path_factory.mktemp("messaging")
            configure_logs(folder)
            return stack.enter_context(RocketMQStore(folder / "java.log", folder, version))

        yield java_process


@pytest.fixture
def messaging(
    broker: LocalBroker,
    client: str,
    java_of: JavaOf,
    tmp_path: Path,
) -> Iterator[Messaging]:
    """Yields the clients of one kind; their name server is the broker's.

    Go clients are in a process of this test.
    """
    with ExitStack() as stack:
        process = stack.enter_context(go_process(tmp_path)) if client == GO else java_of(client)
        clients = Messaging(process, broker.name_server, client)
        stack.callback(clients.stop_all)
        yield clients


@pytest.fixture
def tool(broker: LocalBroker, client: str, java_of: JavaOf) -> Tool:
    """Returns a function that runs commands of one version's mqadmin, by our name server."""

    def run(command: str, *words: str) -> str:
        arguments = [command, "-n", broker.name_server, *words]
        process = java_of(client)
        return answered(lambda: str(process.ask("admin", words=arguments)["printed"]))

    return run
