"""A connection of the broker to another server.

The server, such as a name server, may be slow, hostile or gone. So each step has a time limit, and
an answer beyond its limit ends the connection. A daemon thread resolves names: it delays neither
the event loop nor the end of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
import threading

from rocketpy_broker.config import SigningUser
from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.clock import Clock, within
from rocketpy_broker.runtime.listeners import Listeners
from rocketpy_broker.server.bind_address import system_text
from rocketpy_broker.server.remoting.connection import (
    READ_BYTES,
    NoAnswerError,
    RemotingConnection,
    unsupported,
)
from rocketpy_proto.model.codes import RequestCode
from rocketpy_proto.record import Host
from rocketpy_proto.remoting import (
    EXCHANGES,
    Header,
    RemotingCommand,
    RemotingFormatError,
    signed,
)
from rocketpy_proto.tls import TlsConfig

CONNECT_MS_MAX = 5_000
# RocketMQ's brokers give a registration 24 s.
ANSWER_MS_MAX = 10_000
ANSWER_BYTES_MAX = 4 << 20
# Requests of the server at a time; this client refuses all of them.
RUNNING_MAX = 1


class NotConnectedError(BrokerError):
    """A server that cannot be reached, or a connection that has ended."""


class RemotingClient:
    """One server; `connect` opens the connection again after its end."""

    def __init__(
        self,
        host: str,
        port: int,
        clock: Clock,
        tls: TlsConfig | None = None,
        user: SigningUser | None = None,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
    ) -> None:
        """Takes in `tls` for a server that is reached by TLS; its files are read now.

        `user` signs the requests. Raises TlsFileError.
        """
        self._answer_bytes_max = answer_bytes_max
        self._host = host
        self._port = port
        self._context = None if tls is None else tls.context()
        self._server_name = host if tls is None or tls.server_name is None else tls.server_name
        self._user = user
        self._clock = clock
        self._buffer = bytearray(READ_BYTES)
        self._connection: RemotingConnection | None = None
        self._failure: RemotingFormatError | None = None
        self._resolution: asyncio.Future[list[str]] | None = None
        # Called when the connection has ended.
        self.ended = Listeners[[]]()

    async def connect(self) -> None:
        """Opens the connection. Raises NotConnectedError."""
        self.close()
        self._failure = None
        try:
            await within(self._clock, CONNECT_MS_MAX, self._connect())
        except (OSError, UnicodeError) as error:
            raise NotConnectedError(_reason(error, CONNECT_MS_MAX)) from error

    async def _connect(self) -> None:
        loop, failure = asyncio.get_running_loop(), OSError("the name has no address")
        for address in await self._addresses():
            try:
                _, connection = await loop.create_connection(
                    self._protocol,
                    address,
                    self._port,
                    ssl=self._context,
                    server_hostname=None if self._context is None else self._server_name,
                )
            except OSError as error:
                failure = error
            else:
                self._connection = connection
                return
        raise failure

    def _protocol(self) -> RemotingConnection:
        return RemotingConnection(self, self._buffer, RUNNING_MAX, self._answer_bytes_max)

    async def _addresses(self) -> list[str]:
        """Returns the addresses of the host's name; one thread at a time resolves it."""
        if self._resolution is None or self._resolution.done():
            self._resolution = _resolved(self._host)
        return await asyncio.shield(self._resolution)

    @property
    def local_host(self) -> Host:
        """The address of this end. Raises NotConnectedError."""
        return self._open_connection().local_host

    @property
    def peer_host(self) -> Host:
        """The address of the server. Raises NotConnectedError."""
        return self._open_connection().peer_host

    def _open_connection(self) -> RemotingConnection:
        if self._connection is None or not self._connection.is_open:
            raise NotConnectedError(f"the connection has ended{self._why()}")
        return self._connection

    def _why(self) -> str:
        return "" if self._failure is None else f": {self._failure!s:.200}"

    async def ask(
        self, code: RequestCode, header: Header, body: bytes = b"", limit_ms: float = ANSWER_MS_MAX
    ) -> RemotingCommand:
        """Returns the answer to a request, with any code.

        Raises NotConnectedError. The connection ends if there is no answer within `limit_ms`.
        """
        connection = self._open_connection()
        fields = EXCHANGES[code].request.encode(header)
        command = RemotingCommand(code, 0, ext_fields=fields, body=body)
        if self._user is not None:
            command = signed(command, self._user.access_key, self._user.secret_key)
        try:
            return await connection.ask(command, self._clock, limit_ms)
        except NoAnswerError as error:
            self.close()
            raise NotConnectedError(_late(limit_ms)) from error
        except BrokerError as error:
            raise NotConnectedError(f"{error}{self._why()}") from error

    def close(self) -> None:
        """Ends the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    # --- Events of the connection ---

    def opened(self, _connection: RemotingConnection) -> bool:
        """Accepts the connection."""
        return True

    def received(
        self, connection: RemotingConnection, command: RemotingCommand, _size: int
    ) -> None:
        """Takes an answer; refuses a request of the server."""
        if command.is_response:
            connection.answered(command)
        elif not command.is_one_way:
            connection.send(unsupported(command))

    def malformed(self, _connection: RemotingConnection, error: RemotingFormatError) -> None:
        """Keeps the reason for which the connection ends."""
        self._failure = error

    def large_frame(self, _connection: RemotingConnection) -> bool:
        """Accepts a large answer."""
        return True

    def small_frame(self, connection: RemotingConnection) -> None:
        """Ignores the end of a large answer."""

    def has_time(self) -> bool:
        """Sets no limit."""
        return True

    def closed(self, connection: RemotingConnection) -> None:
        """Reports the end of the connection in use."""
        if connection is self._connection:
            self.ended()


def _resolved(host: str) -> asyncio.Future[list[str]]:
    """Returns the addresses of a host; a thread of its own resolves a name."""
    loop = asyncio.get_running_loop()
    addresses: asyncio.Future[list[str]] = loop.create_future()
    # An event loop resolves the zone of an address in a thread that delays the process' end.
    with contextlib.suppress(ValueError):
        if "%" not in host:
            addresses.set_result([str(ipaddress.ip_address(host))])
            return addresses

    def set_result(found: list[str], error: Exception | None) -> None:
        if error is not None:
            addresses.set_exception(error)
            # Marks the error as read: the caller may have given up.
            addresses.exception()
        else:
            addresses.set_result(found)

    def resolve() -> None:
        found, failure = list[str](), None
        try:
            entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            found = [*dict.fromkeys(str(entry[4][0]) for entry in entries)]
        except (OSError, UnicodeError) as error:
            failure = error
        # The loop may have ended meanwhile.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(set_result, found, failure)

    threading.Thread(target=resolve, name="rocketpy-names", daemon=True).start()
    return addresses


def _reason(error: Exception, limit_ms: float) -> str:
    if isinstance(error, TimeoutError) and error.errno is None:
        return _late(limit_ms)
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not accepted ({error.verify_message}); check "
            "--name-server-tls-ca, or --tls-ca of `rocketpy store align`"
        )
    if isinstance(error, ssl.SSLError):
        return f"the TLS handshake failed ({error.reason}); check that it serves TLS"
    if isinstance(error, ConnectionResetError) and not error.errno:
        return "it has closed the connection in the TLS handshake; check that it serves TLS"
    return system_text(error) if isinstance(error, OSError) else str(error)


def _late(limit_ms: float) -> str:
    return f"it has not answered within {limit_ms / 1_000:g} s"
