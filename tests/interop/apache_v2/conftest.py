"""A kind of client at a server: each test runs at each of its places."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker
from tests.interop.answered_calls import until_answered
from tests.interop.apache_v2.clients import JAVA, JAVA_SDK, OWN, PYTHON, PYTHON_SDK, Clients
from tests.interop.apache_v2.servers import APACHE, OURS, PROXY, ApacheServer, OwnServer, Server
from tests.project.documents.compatibility import rpcs_of

# A kind of client and a server.
Place = tuple[str, str]
# Starts clients of the place in another process.
NewClients = Callable[[], Clients]
SDKS_AT_OURS: list[Place] = [(JAVA, OURS), (PYTHON, OURS)]
ALL_AT_OURS: list[Place] = [(OWN, OURS), *SDKS_AT_OURS]
SDKS: list[Place] = [*SDKS_AT_OURS, (JAVA, APACHE), (PYTHON, APACHE)]
ALL: list[Place] = [(OWN, OURS), *SDKS]
_numbers = itertools.count(1)


def at(places: list[Place]) -> pytest.MarkDecorator:
    """Returns the mark of a test that runs at these places."""
    return pytest.mark.parametrize("place", places, ids="-".join, indirect=True)


@pytest.fixture(autouse=True, scope="session")
def _jars() -> None:
    """Checks for the SDKs and for the proxy."""
    if not all(each.exists() for each in (PYTHON_SDK, JAVA_SDK / "compiled", PROXY)):
        pytest.fail("RocketMQ's SDKs are not here: run `make interop`", pytrace=False)


@pytest.fixture(scope="session")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheServer]:
    """Yields Apache's proxy and broker for the session."""
    started = ApacheServer(tmp_path_factory.mktemp("apache") / "server")
    try:
        started.serve()
        yield started
    finally:
        started.kill()


@pytest.fixture(params=SDKS, ids="-".join)
def place(request: pytest.FixtureRequest) -> Place:
    """Returns a kind of client and a server: by default each SDK at each server."""
    found: Place = request.param
    return found


@pytest.fixture
def server(place: Place, request: pytest.FixtureRequest) -> Iterator[Server]:
    """Yields a broker of ours for this test, or Apache's servers of the session."""
    if place[1] == APACHE:
        yield request.getfixturevalue("apache")
        return
    with LocalBroker(http_port=0) as broker:
        yield OwnServer(broker)


@pytest.fixture
def new_clients(
    place: Place, server: Server, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[NewClients]:
    """Yields a function that starts another process of the place's clients.

    Our broker must answer each RPC that the table of clients names for the test, while they run.
    """
    with ExitStack() as stack:

        def start() -> Clients:
            started = Clients(place[0], server, tmp_path)
            stack.callback(started.kill)
            return started

        yield start
        # The broker does not count streams; SDKs get checks of transactions by this one.
        named = rpcs_of(request.node.nodeid) - {"Telemetry"}
        if isinstance(server, OwnServer) and named:
            until_answered(server.broker.http_endpoint, {*map(_call_of, named)})


def _call_of(rpc: str) -> str:
    """Returns an RPC's name as the broker's metrics have it."""
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", rpc).lower()


@pytest.fixture
def clients(new_clients: NewClients) -> Clients:
    """Returns the clients of the place."""
    return new_clients()


@pytest.fixture
def topic() -> str:
    """Returns the name of a topic for this test alone."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def group() -> str:
    """Returns the name of a group for this test alone."""
    return f"group-{next(_numbers)}"
