"""The process's connections: shared, replaced, left, and not used by a forked process."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pyspark_rocketpy.errors import ConnectionFailedError
from pyspark_rocketpy.transport.remoting.net.connection import Connection
from pyspark_rocketpy.transport.remoting.net.connections import IDLE_MS_MAX, Connections
from pyspark_rocketpy.transport.remoting.net.peers import Peer
from rocketpy_proto.tls import TlsConfig
from tests.support.time_limits import WAIT_SECONDS_MAX
from tests.unit.connector.transport.remoting.conftest import Peers, Time
from tests.unit.connector.transport.remoting.net.test_connection import ask, failure_of
from tests.unit.connector.transport.remoting.net.test_tls import BELIEVING, server_context
from tests.unit.connector.transport.remoting.scripted_peer import (
    PATIENT,
    ScriptedPeer,
    Visit,
    answering,
    echo,
    silent,
)


@pytest.fixture
def connections() -> Iterator[Connections]:
    """Yields connections with a limit of two."""
    made = Connections(2)
    yield made
    made.close()


def get(connections: Connections, peer: ScriptedPeer, tls: TlsConfig | None = None) -> Connection:
    return connections.get(Peer(peer.address), PATIENT, tls)


def test_threads_that_ask_for_an_address_share_one_connection(
    peers: Peers, connections: Connections
) -> None:
    peer = peers(answering(echo))
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: get(connections, peer), range(16)))
    assert len(found) == 1
    ask(found.pop(), b"once").answer()
    assert peer.visits == 1


def test_plain_and_tls_are_two(peers: Peers, connections: Connections) -> None:
    def plain(visit: Visit) -> None:
        visit.wait_for_end()

    peer = peers(plain)
    secured = peers(answering(echo), tls=server_context())
    get(connections, peer)
    ask(get(connections, secured, BELIEVING)).answer()
    assert get(connections, secured, BELIEVING) is get(connections, secured, BELIEVING)
    assert get(connections, peer) is not get(connections, secured, BELIEVING)


def test_one_that_has_gone_is_replaced(peers: Peers, connections: Connections) -> None:
    peer = peers(lambda visit: visit.send(echo(visit.request())), answering(echo))
    first = get(connections, peer)
    ask(first).answer()
    while first.is_open:  # The server closes it.
        threading.Event().wait(0.001)
    ask(get(connections, peer)).answer()
    assert peer.visits == 2


def test_one_that_the_server_is_about_to_close_is_replaced(
    peers: Peers, connections: Connections, time: Time
) -> None:
    peer = peers(silent)
    waiting = get(connections, peer)
    pending = ask(waiting)
    time.now_ms += IDLE_MS_MAX
    # An answer is pending.
    assert get(connections, peer) is waiting
    other = peers(answering(echo))
    idle = get(connections, other)
    time.now_ms += IDLE_MS_MAX - 1
    assert get(connections, other) is idle
    time.now_ms += 1
    assert get(connections, other) is not idle
    assert not idle.is_open
    waiting.close()
    failure_of(pending)


def test_the_one_used_least_lately_makes_room(peers: Peers, connections: Connections) -> None:
    first, second, third = (peers(answering(echo)) for _ in range(3))
    old, kept = get(connections, first), get(connections, second)
    get(connections, first)
    get(connections, third)
    assert old.is_open
    assert not kept.is_open


def test_one_that_is_waited_for_is_not_left(peers: Peers, connections: Connections) -> None:
    pendings = [ask(get(connections, peers(silent))) for _ in range(2)]
    third = peers(silent)
    with pytest.raises(ConnectionFailedError, match="wait for answers, limit 2") as caught:
        get(connections, third)
    assert third.address in str(caught.value)
    assert not caught.value.is_lasting
    connections.close()
    for pending in pendings:
        failure_of(pending)


def test_a_slow_address_holds_up_no_other(peers: Peers, connections: Connections) -> None:
    is_over = threading.Event()

    def slow(_visit: Visit) -> None:
        is_over.wait(WAIT_SECONDS_MAX)  # The server does not take part in the handshake.

    with ThreadPoolExecutor(1) as pool:
        stuck = peers(slow)
        waiting = pool.submit(get, connections, stuck, BELIEVING)
        while not stuck.visits:
            threading.Event().wait(0.001)
        ask(get(connections, peers(answering(echo)))).answer()
        assert not waiting.done()
        is_over.set()
        with pytest.raises(ConnectionFailedError, match="ended the TLS handshake"):
            waiting.result()


# Python 3.12 warns about locks of other threads, which is what this test is about.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_leaves_the_parents_connection_alone(
    peers: Peers, connections: Connections
) -> None:
    peer = peers(answering(echo))
    kept = get(connections, peer)
    child = os.fork()
    if not child:
        status = 1
        try:
            connections.abandon()
            own = get(connections, peer)
            is_own = own is not kept and bytes(ask(own, b"child").answer().body) == b"child"
            own.close()
            status = 0 if is_own else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert get(connections, peer) is kept
    assert bytes(ask(kept, b"parent").answer().body) == b"parent"
    gc.collect()


def test_an_address_that_failed_is_tried_again(connections: Connections, peers: Peers) -> None:
    gone = peers(silent)
    gone.close()
    for _ in range(2):
        with pytest.raises(ConnectionFailedError, match="cannot be reached"):
            get(connections, gone)
    ask(get(connections, peers(answering(echo)))).answer()
