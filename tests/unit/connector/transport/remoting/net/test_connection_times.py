"""Requests that time out or cannot be sent: the ones that fail, and the ones that continue."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from pyspark_rocketpy.transport.remoting.net.peers import Timeouts
from tests.support.time_limits import WAIT_SECONDS_MAX
from tests.unit.connector.transport.remoting.conftest import Peers, Time
from tests.unit.connector.transport.remoting.net.test_connection import ask, connected, failure_of
from tests.unit.connector.transport.remoting.scripted_peer import (
    PATIENT,
    Visit,
    answering,
    echo,
    silent,
)


def test_a_silent_peer_is_given_up_and_named(peers: Peers, time: Time) -> None:
    peer = peers(silent)
    with connected(peer) as connection:
        pending, other = ask(connection, timeouts=Timeouts(3_000, "o")), ask(connection)
        time.now_ms += 3_000
        error = failure_of(pending)
        assert f"name server {peer.address} has not answered within 3000 ms; set option o" in str(
            error
        )
        assert not error.is_lasting
        # The other request would have waited longer, at a silent peer.
        assert "has not answered within 3000 ms" in str(failure_of(other))
        assert not connection.is_open


def test_a_late_answer_harms_nobody(peers: Peers, time: Time) -> None:
    is_given_up = threading.Event()

    def script(visit: Visit) -> None:
        requests = visit.requests()
        slow = next(requests)
        visit.send(echo(next(requests)))
        is_given_up.wait(WAIT_SECONDS_MAX)
        visit.send(echo(slow))
        for quick in requests:
            visit.send(echo(quick))

    with connected(peers(script)) as connection:
        slow = ask(connection, timeouts=Timeouts(3_000, "o"))
        assert bytes(ask(connection, b"quick").answer().body) == b"quick"
        time.now_ms += 3_000
        failure_of(slow)
        assert connection.is_open
        is_given_up.set()
        assert bytes(ask(connection, b"next").answer().body) == b"next"


def test_an_answer_that_was_here_in_time_is_taken_later(peers: Peers, time: Time) -> None:
    with connected(peers(answering(echo))) as connection:
        first, second = ask(connection, b"1"), ask(connection, b"2")
        second.answer()
        time.now_ms += PATIENT.ms
        assert bytes(first.answer().body) == b"1"


def test_a_peer_that_reads_nothing_is_given_up(peers: Peers) -> None:
    is_over = threading.Event()

    def script(_visit: Visit) -> None:
        is_over.wait(WAIT_SECONDS_MAX)

    with connected(peers(script)) as connection:
        pending = ask(connection, bytes(15 << 20), Timeouts(1_000, "o"))
        # The rest of the frame would be read as the next one.
        assert "accepts no more requests" in str(failure_of(pending))
        assert "accepts no more requests" in str(failure_of(ask(connection)))
        is_over.set()


def test_a_request_whose_turn_does_not_come_fails_alone(peers: Peers) -> None:
    may_read = threading.Event()

    def script(visit: Visit) -> None:
        may_read.wait(WAIT_SECONDS_MAX)
        answering(echo)(visit)

    with connected(peers(script)) as connection, ThreadPoolExecutor(1) as pool:
        large = pool.submit(ask, connection, bytes(15 << 20))
        while not connection._writing.locked():
            threading.Event().wait(0.001)
        error = failure_of(ask(connection, timeouts=Timeouts(1, "o")))
        assert "accepted only other requests for 1 ms (option o)" in str(error)
        may_read.set()
        assert len(large.result().answer().body) == 15 << 20


def test_an_interrupted_request_leaves_no_half_frame_behind(peers: Peers) -> None:
    main, is_over = threading.main_thread().ident, threading.Event()
    assert main == threading.get_ident()

    def script(visit: Visit) -> None:
        visit.socket.recv(1)
        # The rest does not fit the buffers: the client waits for room.
        signal.pthread_kill(main, signal.SIGINT)
        is_over.wait(WAIT_SECONDS_MAX)

    with connected(peers(script)) as connection:
        with pytest.raises(KeyboardInterrupt):
            ask(connection, bytes(15 << 20))
        assert "a request was interrupted" in str(failure_of(ask(connection)))
        is_over.set()
