"""A server on loopback that plays a test's script on each connection."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType

from pyspark_rocketpy.transport.remoting.net.peers import Timeouts
from rocketpy_broker.embedded.process import ReservedPort
from rocketpy_proto.remoting import (
    Body,
    FrameDecoder,
    Header,
    RemotingCommand,
    RequestCode,
    ResponseCode,
    encode_body,
    encode_frame,
)
from rocketpy_proto.remoting.headers import EXCHANGES
from tests.support.time_limits import WAIT_SECONDS_MAX

PATIENT = Timeouts(WAIT_SECONDS_MAX * 1000, "requestTimeoutMs")


class Visit:
    """One connection, from the server's side."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._decoder = FrameDecoder()

    def requests(self) -> Iterator[RemotingCommand]:
        """Yields the client's requests until the connection ends."""
        while data := self.socket.recv(1 << 16):
            yield from self._decoder.feed(data)

    def some_requests(self) -> list[RemotingCommand]:
        """Returns requests that arrived together; an empty list at the connection's end."""
        while data := self.socket.recv(1 << 16):
            if requests := list(self._decoder.feed(data)):
                return requests
        return []

    def request(self) -> RemotingCommand:
        return next(self.requests())

    def send(self, *commands: RemotingCommand) -> None:
        for command in commands:
            self.socket.sendall(b"".join(encode_frame(command)))

    def wait_for_end(self) -> None:
        """Waits until the client closes."""
        while self.socket.recv(1 << 16):
            pass


Script = Callable[[Visit], None]
Answers = Callable[[RemotingCommand], RemotingCommand]


def answering(answer: Answers) -> Script:
    """Answers each request."""

    def script(visit: Visit) -> None:
        for request in visit.requests():
            visit.send(answer(request))

    return script


def echo(request: RemotingCommand) -> RemotingCommand:
    return request.answer(ResponseCode.SUCCESS, ext_fields=request.ext_fields, body=request.body)


def silent(visit: Visit) -> None:
    """Reads everything and stays silent."""
    visit.wait_for_end()


def leaving(visit: Visit) -> None:
    """Reads one request and closes."""
    visit.request()


def success(
    request: RemotingCommand, header: Header | None = None, body: Body | bytes = b""
) -> RemotingCommand:
    """Returns a server's answer of success."""
    form = EXCHANGES[RequestCode(request.code)].response
    return request.answer(
        ResponseCode.SUCCESS,
        ext_fields={} if header is None else form.encode(header),
        body=encode_body(body) if isinstance(body, Body) else body,
    )


def by_code(answers: Mapping[RequestCode, Answers]) -> Answers:
    """Answers each request as the table says."""
    return lambda request: answers[RequestCode(request.code)](request)


class ScriptedPeer:
    """A server that plays a script for each connection in turn, and the last one from then on.

    Without a script it takes no connection. It keeps its port until the end of `with`: no other
    server gets a connection to a closed peer.
    """

    def __init__(self, *scripts: Script, tls: ssl.SSLContext | None = None) -> None:
        self._scripts = list(scripts)
        self._tls = tls
        self._reserved_port = ReservedPort()
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", self._reserved_port.number))
        if scripts:
            self._listener.listen()
        self.address = f"127.0.0.1:{self._reserved_port.number}"
        self.visits = 0
        self.faults: list[Exception] = []
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._listen)]
        self._threads[0].start()

    def _listen(self) -> None:
        while True:
            try:
                connected, _ = self._listener.accept()
            except OSError:
                return
            script = self._scripts[min(self.visits, len(self._scripts) - 1)]
            self.visits += 1
            self._open.append(connected)
            thread = threading.Thread(target=self._play, args=(connected, script))
            self._threads.append(thread)
            thread.start()

    def _play(self, connected: socket.socket, script: Script) -> None:
        try:
            if self._tls is not None:
                connected = self._tls.wrap_socket(connected, server_side=True)
            script(Visit(connected))
        except OSError:
            pass  # The client was faster.
        except Exception as error:
            self.faults.append(error)
        finally:
            connected.close()

    def close(self) -> None:
        """Stops listening and ends all connections."""
        with contextlib.suppress(OSError):  # It is closed already.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        for connected in self._open:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        assert self.faults == []

    def __enter__(self) -> ScriptedPeer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        self._reserved_port.close()
