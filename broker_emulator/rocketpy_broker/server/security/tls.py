"""TLS on a port that also serves plaintext.

The first byte of a connection decides. `TlsPort.watch` takes a new connection's transport. A
plaintext connection keeps that transport. A TLS connection gets a `TlsTransport` on top of it. A
handshake counts as a connection: its server's limits of connections and of idle time apply.
Source: NettyRemotingServer.TlsModeHandler, docs/design/remoting.md section 1.5.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol, cast

from rocketpy_broker.config import TlsMode
from rocketpy_broker.server.security.certificates import ServerCertificates

# The first byte of a TLS handshake record.
HANDSHAKE = 0x16
READ_BYTES = 65_536
# The bytes that are encrypted at a time; each piece is handed to the socket at once.
WRITE_BYTES = 262_144


class TlsClient(Protocol):
    """A connection that gets its transport and its first bytes from the port."""

    @property
    def peer(self) -> str:
        """The peer's address, in gRPC's notation."""

    def decided(self, transport: asyncio.Transport) -> asyncio.BaseProtocol:
        """Takes the transport for all that follows, and returns the protocol of its events."""


class TlsPort:
    """The TLS of one port: its mode and its certificates."""

    def __init__(
        self, certificates: ServerCertificates, closed: Callable[[str, str], None]
    ) -> None:
        """Calls `closed` with the peer of a connection that it closes, and the reason."""
        self._certificates = certificates
        self._closed = closed
        # All connections share it: received bytes are taken out at once.
        self._buffer = memoryview(bytearray(READ_BYTES))

    @classmethod
    def of(
        cls, certificates: ServerCertificates | None, closed: Callable[[str, str], None]
    ) -> TlsPort | None:
        """Returns the TLS of a port; None without certificates."""
        return None if certificates is None else cls(certificates, closed)

    def watch(self, client: TlsClient, transport: asyncio.Transport) -> None:
        """Decides about a new connection at its first byte."""
        transport.set_protocol(_FirstBytes(self, client, transport))

    def begin(self, client: TlsClient, transport: asyncio.Transport, data: bytes) -> None:
        """Serves a connection with these first bytes, in plaintext or in TLS."""
        if data[0] == HANDSHAKE:
            tls = TlsTransport(
                transport, self._certificates.context, self._buffer, self._failed(client)
            )
            protocol = client.decided(tls)
            transport.set_protocol(tls)
            tls.begin(protocol, data)
        elif self._certificates.mode is TlsMode.ENFORCING:
            self._closed(
                client.peer, "it sent plaintext, and --tls-mode is enforcing: connect with TLS"
            )
            transport.abort()
        else:
            protocol = client.decided(transport)
            transport.set_protocol(protocol)
            deliver(protocol, data)

    def _failed(self, client: TlsClient) -> Callable[[ssl.SSLError], None]:
        return lambda error: self._closed(
            client.peer,
            f"its TLS handshake failed ({error.reason or error}); check that the client trusts "
            "this certificate and has the one that --tls-client-ca asks for",
        )


def deliver(protocol: asyncio.BaseProtocol, data: bytes) -> None:
    """Hands received bytes to a protocol of either kind."""
    if not isinstance(protocol, asyncio.BufferedProtocol):
        cast("asyncio.Protocol", protocol).data_received(data)
        return
    left = memoryview(data)
    while left:
        place = memoryview(protocol.get_buffer(len(left)))
        size = min(len(place), len(left))
        place[:size] = left[:size]
        protocol.buffer_updated(size)
        left = left[size:]


class _FirstBytes(asyncio.Protocol):
    """The events of a connection before its first byte."""

    def __init__(self, port: TlsPort, client: TlsClient, transport: asyncio.Transport) -> None:
        self._port = port
        self._client = client
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Decides about the connection."""
        self._port.begin(self._client, self._transport, data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends a connection that has sent nothing."""
        cast("asyncio.Protocol", self._client).connection_lost(exc)


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """TLS between a connection's protocol and its transport, whose events it receives.

    asyncio's own TLS cannot take bytes that were received before it was set up. Bytes written
    before the end of the handshake are sent after it.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        context: ssl.SSLContext,
        buffer: memoryview,
        failed: Callable[[ssl.SSLError], None],
    ) -> None:
        """Takes in a shared buffer; calls `failed` with the error of a failed handshake."""
        super().__init__()
        self._transport = transport
        self._failed = failed
        self._received, self._sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._sent, server_side=True)
        self._buffer = buffer
        self._protocol: asyncio.BaseProtocol
        self._unwritten: list[bytes] = []
        self._is_open = False
        self._is_paused = False
        self._is_closing = False

    def begin(self, protocol: asyncio.BaseProtocol, data: bytes) -> None:
        """Starts the handshake with the first bytes of the client."""
        self.set_protocol(protocol)
        self._received.write(data)
        self._advance()

    # --- Events of the transport below ---

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Returns the place for received bytes."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Takes received bytes, and delivers what they hold."""
        self._received.write(self._buffer[:nbytes])
        self._advance()

    def eof_received(self) -> bool:
        """Closes the connection: without a close_notify, the client's data may be cut."""
        return False

    def pause_writing(self) -> None:
        """Pauses the protocol's writes."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Resumes the protocol's writes."""
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Reports the end to the protocol."""
        self._is_closing = True
        self._protocol.connection_lost(exc)

    def _advance(self) -> None:
        try:
            if not self._is_open:
                self._tls.do_handshake()
                self._is_open = True
                unwritten, self._unwritten = self._unwritten, []
                self.writelines(unwritten)
            self._deliver()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            if not self._is_open:
                self._failed(error)
            # The alert in `_sent` gives the client the reason.
            self._flush()
            self._end()
        self._flush()

    def _deliver(self) -> None:
        """Hands decrypted bytes to the protocol. Raises ssl.SSLWantReadError after the last."""
        while not (self._is_paused or self._is_closing):
            data = self._tls.read(READ_BYTES)
            if not data:
                self.close()
                return
            deliver(self._protocol, data)

    def _flush(self) -> None:
        if self._sent.pending and not self._transport.is_closing():
            self._transport.write(self._sent.read())

    def _end(self) -> None:
        self._is_closing = True
        self._transport.close()

    # --- The transport of the protocol ---

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Sets the protocol of decrypted bytes."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Returns the protocol of decrypted bytes."""
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Returns facts of the TLS connection, or of the transport below."""
        found = {"ssl_object": self._tls, "sslcontext": self._tls.context}
        return found.get(name) or self._transport.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypts and sends bytes."""
        self.writelines([data])

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Encrypts and sends bytes, in pieces of WRITE_BYTES."""
        if self._is_closing:
            return
        if not self._is_open:
            self._unwritten += map(bytes, list_of_data)
            return
        for data in list_of_data:
            for begin in range(0, len(data), WRITE_BYTES):
                self._tls.write(memoryview(data)[begin : begin + WRITE_BYTES])
                if self._sent.pending >= WRITE_BYTES:
                    self._flush()
        self._flush()

    def can_write_eof(self) -> bool:
        """Returns False: TLS has no end of one direction alone."""
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Sets the limits of bytes that wait for the peer."""
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Returns the bytes that wait for the peer."""
        return self._transport.get_write_buffer_size() + sum(map(len, self._unwritten))

    def is_reading(self) -> bool:
        """True if reading is not paused."""
        return not (self._is_paused or self._is_closing)

    def pause_reading(self) -> None:
        """Delivers no more bytes."""
        self._is_paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Delivers bytes again, also decrypted ones that wait."""
        self._is_paused = False
        self._transport.resume_reading()
        asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        if self._is_open and not self._is_closing:
            self._advance()

    def is_closing(self) -> bool:
        """True if the connection is closing or closed."""
        return self._is_closing or self._transport.is_closing()

    def close(self) -> None:
        """Closes the connection after all written bytes are sent."""
        if self._is_open and not self._is_closing:
            with suppress(ssl.SSLError):
                self._tls.unwrap()
            self._flush()
        self._end()

    def abort(self) -> None:
        """Closes the connection at once."""
        self._is_closing = True
        self._transport.abort()
