"""Connections of the HTTP server, and their limits.

At most CONNECTIONS_MAX are open at a time, and CONNECTIONS_OF_HOST of one address; more are closed
at once. A connection is closed, whether its client reads or not:

- REQUEST_SECONDS after it was opened, without a whole request;
- MAKING_SECONDS after a request, without a reply;
- REPLY_SECONDS after a reply that was not read;
- IDLE_SECONDS after a reply that was read;
- after more than AHEAD_BYTES_MAX that came before all earlier requests were answered. Such bytes
  are headers without end, requests whose replies are not read, or a body that no handler takes.

A body that a handler takes does not count. Beside the handler's part, aiohttp holds at most twice
PIECE_BYTES of it, and one read from the socket.

A lost connection counts until its running request has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import cast

from aiohttp import StreamReader, web

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.shares import Shares
from rocketpy_broker.server.calls.failure_log import ConnectionLog
from rocketpy_broker.server.security.attempts import host_of
from rocketpy_broker.server.security.tls import HANDSHAKE, TlsPort

CONNECTIONS_MAX, CONNECTIONS_OF_HOST = 64, 32
REQUEST_SECONDS = 10
# A reply may need many bytes from a slow disk.
MAKING_SECONDS = 120
REPLY_SECONDS = 30
# Prometheus reuses its connection, usually each 15 to 60 seconds.
IDLE_SECONDS = 75
# More than twice the longest line of a request.
AHEAD_BYTES_MAX = 32_768
# Received bytes that are parsed at a time; of a body twice as many are read ahead.
PIECE_BYTES = 16_384


class HttpConnections:
    """The open HTTP connections, each with a protocol that `make` returns."""

    def __init__(
        self, make: Callable[[], web.RequestHandler], clock: Clock, tls: TlsPort | None = None
    ) -> None:
        self.tls = tls
        self._log = ConnectionLog(clock)
        self._make = make
        self._clock = clock
        self._of: dict[web.RequestHandler, HttpConnection] = {}
        self._shares = Shares(CONNECTIONS_OF_HOST, CONNECTIONS_MAX)
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[HttpConnection]:
        return iter([*self._of.values()])

    def new(self) -> HttpConnection:
        """Returns the connection of an accepted socket."""
        return HttpConnection(self)

    def abort_old(self) -> None:
        """Closes connections past their end time; drops their unread replies."""
        now_ms = self._clock.monotonic_ms()
        for each in self:
            if each.end_ms <= now_ms:
                each.abort()

    def abort_all(self) -> None:
        """Closes all connections and refuses new ones."""
        self._is_closed = True
        for each in self:
            each.abort()

    # --- Events of requests ---

    def begins(self, protocol: web.RequestHandler, body: StreamReader | None) -> None:
        """Starts the time for a reply: a request was received; its handler takes `body`."""
        found = self._of.get(protocol)
        if found is not None:
            found.is_busy, found.body = True, body
            self._allow(found, MAKING_SECONDS)

    def replies(self, protocol: web.RequestHandler) -> None:
        """Starts the time for the client to read: the reply is ready."""
        found = self._of.get(protocol)
        if found is not None:
            self._allow(found, REPLY_SECONDS)

    def ends(self, protocol: web.RequestHandler) -> None:
        """Starts the idle time: the reply is written, or in the system's buffers."""
        found = self._of.get(protocol)
        if found is not None:
            found.is_busy, found.body = False, None
            # Some versions of aiohttp queue any number of requests that a client sends ahead.
            if not protocol._messages:  # noqa: SLF001 (there is no other way to count them)
                found.ahead_bytes = 0
            self._allow(found, IDLE_SECONDS)
            self.leave_if_over(found)

    def received_tls(self, connection: HttpConnection) -> None:
        """Closes a connection that sent TLS to a port without it."""
        self._log.closed(
            connection.peer,
            "it sent TLS, which this HTTP port does not serve: use http://, or start the broker "
            "with --tls-certificate or --tls-self-signed",
        )
        connection.abort()

    # --- Events of connections ---

    def enter(self, connection: HttpConnection) -> web.RequestHandler | None:
        """Returns a new connection's protocol; None beyond a limit or after `abort_all`."""
        if self._is_closed or not self._shares.has_space(connection.host):
            return None
        protocol = self._make()
        self._shares.change(connection.host, 1)
        self._of[protocol] = connection
        self._allow(connection, REQUEST_SECONDS)
        return protocol

    def leave_if_over(self, connection: HttpConnection) -> None:
        """Removes a lost connection without a running request."""
        protocol, is_over = connection.protocol, connection.is_lost and not connection.is_busy
        if protocol is not None and is_over and self._of.pop(protocol, None) is not None:
            self._shares.change(connection.host, -1)

    def _allow(self, connection: HttpConnection, seconds: float) -> None:
        connection.end_ms = self._clock.monotonic_ms() + seconds * 1_000


class HttpConnection(asyncio.Protocol):
    """A connection that counts received bytes and forwards all events to the HTTP protocol."""

    def __init__(self, connections: HttpConnections) -> None:
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self.protocol: web.RequestHandler | None = None
        # False until the first byte has come, at a port with TLS.
        self._is_decided = False
        self.peer = self.host = ""
        self.end_ms = 0.0
        # Received since all requests were answered, without the running request's body.
        self.ahead_bytes = 0
        self.body: StreamReader | None = None
        self.is_busy = False
        self.is_lost = False

    @property
    def unread_bytes(self) -> int:
        """The bytes in this process that wait for the client to read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def abort(self) -> None:
        """Closes the connection at once; `close` would wait for the client to read."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Starts the protocol, or closes a connection beyond the limit."""
        self._transport = cast("asyncio.Transport", transport)
        host, port = transport.get_extra_info("peername")[:2]
        self.peer = f"{host}:{port}"
        self.host = host_of(f"http:{self.peer}")
        self.protocol = self._connections.enter(self)
        if self.protocol is None:
            self.abort()
        elif self._connections.tls is not None:
            self._connections.tls.watch(self, self._transport)
        else:
            self.decided(self._transport)

    def decided(self, transport: asyncio.Transport) -> HttpConnection:
        """Starts the protocol with the transport for all that follows."""
        assert self.protocol is not None
        self._is_decided, self._transport = True, transport
        self.protocol.connection_made(transport)
        return self

    def connection_lost(self, error: Exception | None) -> None:
        """Marks the connection as lost; either side may have closed it."""
        self.is_lost, self._transport = True, None
        if self.protocol is not None:
            if self._is_decided:
                self.protocol.connection_lost(error)
            self._connections.leave_if_over(self)

    def data_received(self, data: bytes) -> None:
        """Forwards `data`; closes the connection beyond AHEAD_BYTES_MAX."""
        if self._connections.tls is None and data[0] == HANDSHAKE and not self.ahead_bytes:
            self._connections.received_tls(self)
            return
        for begin in range(0, len(data), PIECE_BYTES):
            piece = data[begin : begin + PIECE_BYTES]
            self.ahead_bytes += 0 if self._is_in_body() else len(piece)
            if self.protocol is None or self.ahead_bytes > AHEAD_BYTES_MAX:
                self.abort()
                return
            self.protocol.data_received(piece)

    def _is_in_body(self) -> bool:
        """True if the next bytes are of a body that a handler takes, or may yet take."""
        # Requests that were received, and that no handler has yet.
        waiting = self.protocol._messages if self.protocol is not None else ()  # noqa: SLF001
        body = waiting[-1][1] if waiting else self.body
        return body is not None and not body.is_eof()

    def eof_received(self) -> None:
        """Forwards the end of the client's data; the client may still read."""
        if self.protocol is not None:
            self.protocol.eof_received()

    def pause_writing(self) -> None:
        """Pauses the protocol's writes: the client reads slowly."""
        if self.protocol is not None:
            self.protocol.pause_writing()

    def resume_writing(self) -> None:
        """Resumes the protocol's writes: the client has read."""
        if self.protocol is not None:
            self.protocol.resume_writing()
