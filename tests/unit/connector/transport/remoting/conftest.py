"""Servers that play a test's script, and a check for threads that are left."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from pyspark_rocketpy import clock
from pyspark_rocketpy.transport.remoting.cluster.client import Cluster
from pyspark_rocketpy.transport.remoting.net.access_keys import AccessKeys
from pyspark_rocketpy.transport.remoting.net.calls import ClusterConfig
from pyspark_rocketpy.transport.remoting.net.connections import Connections
from pyspark_rocketpy.transport.remoting.net.peers import Timeouts
from tests.unit.connector.transport.remoting.pull_setup import PullSetup, Waits
from tests.unit.connector.transport.remoting.scripted_cluster import Knowledge
from tests.unit.connector.transport.remoting.scripted_peer import (
    PATIENT,
    Script,
    ScriptedPeer,
    answering,
)

Peers = Callable[..., ScriptedPeer]
Clusters = Callable[..., Cluster]


class Time:
    """A clock that only a test advances."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    """Replaces the connector's clock by one that stands still."""
    standing = Time()
    monkeypatch.setattr(clock, "monotonic_ms", standing)
    return standing


@pytest.fixture
def peers() -> Iterator[Peers]:
    """Yields a function that starts a server that plays scripts."""
    with ExitStack() as stack:

        def start(*scripts: Script, tls: ssl.SSLContext | None = None) -> ScriptedPeer:
            return stack.enter_context(ScriptedPeer(*scripts, tls=tls))

        yield start


@pytest.fixture
def clusters() -> Iterator[Clusters]:
    """Yields a function that makes a cluster of name servers; closes its connections afterwards."""
    connections = Connections()

    def make(
        *name_servers: ScriptedPeer, request: Timeouts = PATIENT, access: AccessKeys | None = None
    ) -> Cluster:
        addresses = tuple(peer.address for peer in name_servers)
        return Cluster(ClusterConfig(addresses, PATIENT, request, access=access), connections)

    yield make
    connections.close()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    """Replaces the connector's clock by one that only its pauses advance."""
    found = Waits()
    now = [0]

    def sleep(duration_ms: int) -> None:
        assert len(found.ms) < 1_000, "it waits for ever"
        found.ms.append(duration_ms)
        now[0] += duration_ms
        found.then()

    monkeypatch.setattr(clock, "sleep_ms", sleep)
    monkeypatch.setattr(clock, "monotonic_ms", lambda: 1_000_000 + now[0])
    return found


@pytest.fixture
def pulls(peers: Peers, clusters: Clusters, waits: Waits) -> PullSetup:
    """Returns a cluster for pulls of one queue, which has no route yet."""
    names = Knowledge()
    return PullSetup(clusters(peers(answering(names.answer))), names, peers)


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = [
        thread
        for thread in set(threading.enumerate()) - before
        if thread.name.startswith("rocketpy ")
    ]
    assert left == []
