"""Connections of the HTTP door, and what one client may cost.

CONNECTIONS_MAX are open at a time, more are closed at once. A connection is closed, read or not,
REQUEST_SECONDS after it was opened without a whole request, MAKING_SECONDS after a request without
a reply, REPLY_SECONDS after a reply that was not read, and IDLE_SECONDS after one that was. Who
sends more than AHEAD_BYTES_MAX before the next reply is closed, too: it is a body, headers without
end, or requests whose replies nobody reads. One whose client has gone counts until its request is
over. Lives in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import cast

from aiohttp import web

from rocketpy_broker.runtime.clock import Clock

CONNECTIONS_MAX = 64
REQUEST_SECONDS = 10
# A snapshot may have to read much from a slow disk.
MAKING_SECONDS = 120
REPLY_SECONDS = 30
# Prometheus asks again on the same connection, mostly each 15 to 60 seconds.
IDLE_SECONDS = 75
# Twice the longest line of a request that is looked at, and more.
AHEAD_BYTES_MAX = 32_768


class HttpConnections:
    """The open ones, each in front of a protocol that `make` gives."""

    def __init__(self, make: Callable[[], web.RequestHandler], clock: Clock) -> None:
        self._make = make
        self._clock = clock
        self._of: dict[web.RequestHandler, HttpConnection] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[HttpConnection]:
        return iter([*self._of.values()])

    def new(self) -> HttpConnection:
        """For a socket that was accepted."""
        return HttpConnection(self)

    def abort_old(self) -> None:
        """Closes those whose time is over. What they have not read is dropped."""
        now_ms = self._clock.monotonic_ms()
        for each in self:
            if each.end_ms <= now_ms:
                each.abort()

    def abort_all(self) -> None:
        """Closes them, and take no more."""
        self._is_closed = True
        for each in self:
            each.abort()

    # --- Told by requests ---

    def begins(self, protocol: web.RequestHandler) -> None:
        """A request has come, and its reply is to be made."""
        found = self._of.get(protocol)
        if found is not None:
            found.is_busy = True
            self._allow(found, MAKING_SECONDS)

    def replies(self, protocol: web.RequestHandler) -> None:
        """The reply is made, and is to be read."""
        found = self._of.get(protocol)
        if found is not None:
            self._allow(found, REPLY_SECONDS)

    def ends(self, protocol: web.RequestHandler) -> None:
        """It is answered, but for what the system holds."""
        found = self._of.get(protocol)
        if found is not None:
            found.is_busy, found.ahead_bytes = False, 0
            self._allow(found, IDLE_SECONDS)
            self.leave_if_over(found)

    # --- Told by connections ---

    def enter(self, connection: HttpConnection) -> web.RequestHandler | None:
        """Returns the protocol of a new connection; None where it is one too many."""
        if self._is_closed or len(self._of) >= CONNECTIONS_MAX:
            return None
        protocol = self._make()
        self._of[protocol] = connection
        self._allow(connection, REQUEST_SECONDS)
        return protocol

    def leave_if_over(self, connection: HttpConnection) -> None:
        """Forgets one that is lost, and has no request that goes on."""
        if connection.protocol is not None and connection.is_lost and not connection.is_busy:
            self._of.pop(connection.protocol, None)

    def _allow(self, connection: HttpConnection, seconds: float) -> None:
        connection.end_ms = self._clock.monotonic_ms() + seconds * 1_000


class HttpConnection(asyncio.Protocol):
    """Hands everything on to the protocol of HTTP, and counts what comes."""

    def __init__(self, connections: HttpConnections) -> None:
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self.protocol: web.RequestHandler | None = None
        self.end_ms = 0.0
        # What has come since the last reply.
        self.ahead_bytes = 0
        self.is_busy = False
        self.is_lost = False

    @property
    def unread_bytes(self) -> int:
        """What waits in this process for the client to read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def abort(self) -> None:
        """Closes it at once: a mere close would wait for a client that does not read."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins, or close what is one too many."""
        self._transport = cast("asyncio.Transport", transport)
        self.protocol = self._connections.enter(self)
        if self.protocol is None:
            self.abort()
        else:
            self.protocol.connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        """It is closed, by whomever."""
        self.is_lost, self._transport = True, None
        if self.protocol is not None:
            self.protocol.connection_lost(error)
            self._connections.leave_if_over(self)

    def data_received(self, data: bytes) -> None:
        """Something has come."""
        self.ahead_bytes += len(data)
        if self.protocol is None or self.ahead_bytes > AHEAD_BYTES_MAX:
            self.abort()
        else:
            self.protocol.data_received(data)

    def eof_received(self) -> None:
        """The client sends no more; it may read yet."""
        if self.protocol is not None:
            self.protocol.eof_received()

    def pause_writing(self) -> None:
        """The client reads slowly."""
        if self.protocol is not None:
            self.protocol.pause_writing()

    def resume_writing(self) -> None:
        """It has read something."""
        if self.protocol is not None:
            self.protocol.resume_writing()
