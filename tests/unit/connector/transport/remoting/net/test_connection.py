"""A connection to servers that answer well, badly, late or not at all."""

from __future__ import annotations

import gc
import socket
import struct
from collections.abc import Iterator
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.pretty import pretty_repr

from pyspark_rocketpy.errors import ConnectionFailedError
from pyspark_rocketpy.transport.remoting.net.calls import Call, Request
from pyspark_rocketpy.transport.remoting.net.connection import (
    HEADER_BYTES_MAX,
    Connection,
    OutgoingRequest,
    Pending,
)
from pyspark_rocketpy.transport.remoting.net.peers import Peer, Timeouts
from rocketpy_proto.remoting import (
    FRAME_BYTES_MAX,
    RemotingCommand,
    RequestCode,
    ResponseCode,
    Serialization,
    encode_frame,
)
from tests.support.time_limits import WAIT_SECONDS_MAX
from tests.unit.connector.transport.remoting.conftest import Peers
from tests.unit.connector.transport.remoting.scripted_peer import (
    PATIENT,
    Script,
    ScriptedPeer,
    Visit,
    answering,
    echo,
    silent,
)
from tests.unit.remoting.recorded import needs_golden, request, response

REQUEST = RemotingCommand(RequestCode.HEART_BEAT, opaque=0)


@contextmanager
def connected(peer: ScriptedPeer, *, is_name_server: bool = True) -> Iterator[Connection]:
    with closing(Connection.open(Peer(peer.address, is_name_server), PATIENT, None)) as connection:
        yield connection


def ask(connection: Connection, body: bytes = b"", timeouts: Timeouts = PATIENT) -> Pending:
    outgoing = OutgoingRequest(replace(REQUEST, body=body), timeouts, FRAME_BYTES_MAX)
    return connection.ask_all([outgoing])[0]


def failure_of(pending: Pending) -> ConnectionFailedError:
    with pytest.raises(ConnectionFailedError) as caught:
        pending.answer()
    return caught.value


def test_answers_find_their_requests_in_any_order(peers: Peers) -> None:
    def script(visit: Visit) -> None:
        requests = visit.requests()
        asked = [next(requests) for _ in range(5)]
        visit.send(*(echo(asked[number]) for number in (3, 0, 4, 2, 1)))
        visit.wait_for_end()

    with connected(peers(script)) as connection:
        pendings = [ask(connection, b"%d" % number) for number in range(5)]
        assert [bytes(pending.answer().body) for pending in pendings] == [
            b"0",
            b"1",
            b"2",
            b"3",
            b"4",
        ]
        assert connection.idle_ms >= 0


def test_many_threads_share_a_connection(peers: Peers) -> None:
    bodies = [bytes([number]) * (number << 12) for number in range(32)]
    with connected(peers(answering(echo))) as connection, ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda body: bytes(ask(connection, body).answer().body), bodies)
        assert list(answers) == bodies


@needs_golden
@pytest.mark.parametrize("exchange", ["01_get_route", "10_pull_found", "B04_binary_pull_found"])
def test_a_recorded_exchange_is_had_again(peers: Peers, exchange: str) -> None:
    asked, recorded = request(exchange), response(exchange)

    def answer(received: RemotingCommand) -> RemotingCommand:
        assert received == replace(asked, opaque=received.opaque)
        return replace(recorded, opaque=received.opaque)

    with connected(peers(answering(answer))) as connection:
        [sent] = connection.ask_all([OutgoingRequest(asked, PATIENT, FRAME_BYTES_MAX)])
        found = sent.answer()
        assert found == replace(recorded, opaque=found.opaque)


def test_frames_come_in_pieces_and_together(peers: Peers) -> None:
    def script(visit: Visit) -> None:
        requests = visit.requests()
        frames = b"".join(piece for _ in range(3) for piece in encode_frame(echo(next(requests))))
        for begin in range(0, len(frames), 7):
            visit.socket.sendall(frames[begin : begin + 7])
        visit.wait_for_end()

    with connected(peers(script)) as connection:
        pendings = [ask(connection, body) for body in (b"a", b"b" * 50, b"")]
        assert [bytes(one.answer().body) for one in pendings] == [b"a", b"b" * 50, b""]


def test_a_request_of_the_server_is_refused_and_a_notice_passed_over(peers: Peers) -> None:
    told: list[RemotingCommand] = []

    def script(visit: Visit) -> None:
        requests = visit.requests()
        asked = next(requests)
        form = Serialization.ROCKETMQ
        own = RemotingCommand(RequestCode.GET_CONSUMER_RUNNING_INFO, 0, serialization=form)
        notice = RemotingCommand(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, 0, flag=2)
        visit.send(notice, own)
        told.append(next(requests))
        visit.send(echo(asked))
        visit.wait_for_end()

    with connected(peers(script)) as connection:
        ask(connection).answer()
    assert [(one.code, one.opaque, one.flag) for one in told] == [
        (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 0, 1)
    ]


def answering_bytes(data: bytes) -> Script:
    """Reads one request, sends these bytes, and closes."""

    def script(visit: Visit) -> None:
        visit.request()
        visit.socket.sendall(data)

    return script


def frame(command: RemotingCommand) -> bytes:
    return b"".join(encode_frame(command))


ANSWER = REQUEST.answer(ResponseCode.SUCCESS, body=b"body")
HTTP2_SETTINGS = b"\0\0\x12\x04\0\0\0\0\0\0\3\x7f\xff\xff\xff\0\4\0\x10\0\0"
BAD_ANSWERS = {
    b"": "closed the connection; it may not be a RocketMQ server, or may require TLS (option "
    "tls); ",
    frame(ANSWER)[:-1]: "closed the connection within an answer;",
    frame(replace(ANSWER, opaque=1)): "the opaque 1 belongs to no request",
    frame(replace(ANSWER, opaque=-1)): "the opaque -1 belongs to no request",
    struct.pack(">i", FRAME_BYTES_MAX): "16777220 bytes",
    struct.pack(">i", -1): "3 bytes",
    struct.pack(">iI", HEADER_BYTES_MAX + 9, HEADER_BYTES_MAX + 1)
    + bytes(HEADER_BYTES_MAX + 5): "its header has 1048577 bytes, limit 1048576",
    struct.pack(">iI", 6, 2) + b"{}": "JSON header: ",
    struct.pack(">iI", 4, 9 << 24): "unknown serialization type 9",
    b"HTTP/1.1 400 Bad Request\r\n\r\n": "speaks HTTP, not RocketMQ's",
    HTTP2_SETTINGS: "speaks HTTP/2, as gRPC does, not RocketMQ's remoting protocol; a broker of "
    "rocketpy is named by option endpoints",
    b"\x15\x03\x01\x00\x02\x02\x0a": "speaks TLS; set option tls to true",
}


@pytest.mark.parametrize("data", BAD_ANSWERS, ids=range(len(BAD_ANSWERS)))
@pytest.mark.parametrize("is_name_server", [True, False])
def test_a_bad_answer_is_one_declared_error_that_names_the_place(
    peers: Peers, data: bytes, is_name_server: bool
) -> None:
    peer = peers(answering_bytes(data))
    with connected(peer, is_name_server=is_name_server) as connection:
        error = failure_of(ask(connection))
        assert BAD_ANSWERS[data] in str(error)
        assert peer.address in str(error)
        assert "option nameServer" in str(error)
        assert error.is_lasting == (data not in list(BAD_ANSWERS)[:2])
        assert not connection.is_open
        # A later request gets the same error.
        assert str(failure_of(ask(connection))) == str(error)


def test_an_answer_that_comes_twice_ends_the_connection(peers: Peers) -> None:
    def script(visit: Visit) -> None:
        requests = visit.requests()
        answer = echo(next(requests))
        visit.send(answer)
        next(requests)
        visit.send(answer)
        visit.wait_for_end()

    with connected(peers(script)) as connection:
        ask(connection).answer()
        assert "the opaque 0 belongs to no request, or was answered twice" in str(
            failure_of(ask(connection))
        )


def test_what_fails_fails_every_request_that_waits(peers: Peers) -> None:
    def script(visit: Visit) -> None:
        requests = visit.requests()
        for _ in range(3):
            next(requests)

    with connected(peers(script)) as connection:
        pendings = [ask(connection) for _ in range(3)]
        errors = [failure_of(pending) for pending in pendings]
        assert len({id(error) for error in errors}) == 3
        assert all("closed the connection" in str(error) for error in errors)


def test_an_answer_larger_than_what_was_asked_for_fails_alone(peers: Peers) -> None:
    with connected(peers(answering(echo))) as connection:
        [large] = connection.ask_all(
            [OutgoingRequest(replace(REQUEST, body=bytes(11)), PATIENT, 10)]
        )
        error = failure_of(large)
        assert "answers with 11 bytes, limit 10;" in str(error)
        assert error.is_lasting
        ask(connection).answer()


def test_closing_ends_what_waits(peers: Peers) -> None:
    connection = Connection.open(Peer(peers(silent).address), PATIENT, None)
    pending = ask(connection)
    connection.close()
    connection.close()
    assert "the client closed its connection" in str(failure_of(pending))
    assert "the client closed its connection" in str(failure_of(ask(connection)))
    gc.collect()  # A socket that is left open would cause a warning.


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("nowhere", "is not of the form host:port"),
        (":1", "is not of the form host:port"),
        ("127.0.0.1:0", "is not of the form host:port"),
        ("127.0.0.1:65536", "is not of the form host:port"),
        ("127.0.0.1:٣", "is not of the form host:port"),
        ("no\0name:1", "cannot be reached"),
        ("x" * 64 + ":1", "cannot be reached"),
    ],
)
def test_an_address_that_is_none_is_named(address: str, problem: str) -> None:
    with pytest.raises(ConnectionFailedError, match=problem) as caught:
        Connection.open(Peer(address), PATIENT, None)
    assert f"broker {address}" in str(caught.value)


def test_a_port_where_nobody_listens_is_named(peers: Peers) -> None:
    address = peers().address
    with pytest.raises(ConnectionFailedError) as caught:
        Connection.open(Peer(address, is_name_server=True), PATIENT, None)
    assert f"name server {address} cannot be reached (Connection refused)" in str(caught.value)
    assert "check option nameServer" in str(caught.value)


def test_an_address_that_takes_no_connection_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(ConnectionFailedError) as caught:
        Connection.open(Peer("10.0.0.1:1"), Timeouts(100, "connectTimeout"), None)
    assert "has not accepted a connection within 100 ms (option connectTimeout)" in str(
        caught.value
    )


def test_an_ipv6_address_stands_in_brackets() -> None:
    peer = Peer("[::1]:9876")
    assert (peer.host, peer.port) == ("::1", 9876)


def test_nothing_of_a_request_shows(peers: Peers) -> None:
    secret = replace(REQUEST, ext_fields={"SecurityToken": "hidden"})
    with connected(peers(answering(echo))) as connection:
        [pending] = connection.ask_all([OutgoingRequest(secret, PATIENT, 10)])
        pending.answer()
        call = Call(connection.peer, Request(RequestCode.HEART_BEAT, _unread), pending)
        for shown in (pending, pending.outgoing, call):
            assert "hidden" not in repr(shown)
            # rich shows local variables of a traceback like this.
            assert "hidden" not in pretty_repr(shown)


def _unread(_peer: Peer, _answer: RemotingCommand) -> None:
    """Ignores the answer."""


def test_what_is_left_is_not_waited_for_any_more(peers: Peers) -> None:
    with connected(peers(answering(echo))) as connection:
        left = ask(connection)
        left.leave()
        assert left.is_over
        assert "its answer is no longer needed" in str(failure_of(left))
        ask(connection).answer()


def test_several_are_waited_for_at_once(peers: Peers) -> None:
    def script(visit: Visit) -> None:
        requests = visit.requests()
        first, second = next(requests), next(requests)
        visit.send(echo(second))
        next(requests)
        visit.send(echo(first))
        visit.wait_for_end()

    with connected(peers(script)) as connection:
        first, second = ask(connection), ask(connection)
        done = futures.wait([first.future, second.future], WAIT_SECONDS_MAX, "FIRST_COMPLETED")
        assert done.done == {second.future}
        ask(connection).leave()
        assert not futures.wait([first.future], WAIT_SECONDS_MAX).not_done
        # The future is also done after the wait.
        assert first.future.done()


def test_a_range_that_the_garbage_collector_ends_may_leave_what_it_has_asked_for(
    peers: Peers,
) -> None:
    with connected(peers(answering(echo))) as connection:
        left = ask(connection)
        with connection._lock:  # in the middle of any work of the thread
            left.leave()
        ask(connection).answer()


class Mouth:
    """A server that answers each request with a test's bytes, and closes."""

    data = b""

    def __call__(self, visit: Visit) -> None:
        visit.request()
        visit.socket.sendall(self.data)


@given(
    body=st.binary(max_size=40),
    changes=st.lists(st.tuples(st.integers(0, 200), st.binary(max_size=3)), max_size=3),
    cut=st.integers(0, 30),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_comes_is_an_answer_or_the_declared_error(
    peers: Peers, body: bytes, changes: list[tuple[int, bytes]], cut: int
) -> None:
    data = bytearray(frame(replace(ANSWER, body=body, remark="remark", ext_fields={"a": "b"})))
    for place, change in changes:
        begin = place % len(data)
        data[begin : begin + len(change)] = change
    mouth = Mouth()
    mouth.data = bytes(data[: len(data) - cut])
    with connected(peers(mouth)) as connection, suppress(ConnectionFailedError):
        assert ask(connection).answer().opaque == 0
