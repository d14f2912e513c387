"""Sockets to one address, plain or in TLS, with one reading thread.

Any thread may write. The socket does not block. A thread waits outside of the lock: two threads
must not use TLS's state at the same time. Nothing is kept that a crash could lose.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Iterable
from dataclasses import dataclass

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import ConnectionFailedError, OptionError
from pyspark_rocketpy.transport.remoting.net.peers import Peer, Timeouts

_RECEIVE_BYTES = 256 << 10
# Pieces up to this total size are sent as one.
_JOINED_BYTES_MAX = 64 << 10
_WANTS_READ = (BlockingIOError, ssl.SSLWantReadError)


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """TLS files in PEM form, and verification.

    Any peer can pose as the server without verification, as in RocketMQ's default. The system's
    authorities apply without `ca_file`. Certificate and key are for servers that ask for one.
    """

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    is_verified: bool = True

    def context(self) -> ssl.SSLContext:
        """Returns the TLS context. Raises OptionError for files that cannot be used."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ValueError) as error:
            raise OptionError(f"option tlsCaFile is {self.ca_file!r}: {_reason(error)}") from error
        if not self.is_verified:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.cert_file is not None:
            try:
                # The password keeps OpenSSL from asking for one.
                context.load_cert_chain(self.cert_file, self.key_file, password="")
            except (OSError, ValueError) as error:
                raise OptionError(
                    f"options tlsCertFile and tlsKeyFile are {self.cert_file!r} and "
                    f"{self.key_file!r}: {_reason(error)}"
                ) from error
        return context


def connect(peer: Peer, timeouts: Timeouts, tls: TlsConfig | None) -> Stream:
    """Returns a connected stream. Raises ConnectionFailedError, OptionError."""
    context = None if tls is None else tls.context()
    timeout = timeouts.ms / 1000
    try:
        plain = socket.create_connection((peer.host, peer.port), timeout)
    except TimeoutError as error:
        raise peer.failed(
            f"has not accepted a connection within {timeouts.ms} ms (option {timeouts.option})"
        ) from error
    # An invalid host name raises ValueError.
    except (OSError, ValueError) as error:
        raise peer.failed(f"cannot be reached ({_reason(error)})") from error
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is None:
            return Stream(plain)
        return Stream(context.wrap_socket(plain, server_hostname=peer.host))
    except (OSError, ValueError) as error:
        plain.close()
        raise _handshake_failed(peer, error) from error


def _handshake_failed(peer: Peer, error: Exception) -> ConnectionFailedError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return peer.failed(
            f"has a certificate that is not accepted ({error.verify_message}); check option "
            "tlsCaFile, or set option tlsVerify to false",
            is_lasting=True,
        )
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        problem = f"speaks no compatible TLS ({_reason(error)}); see option tls"
        return peer.failed(problem, is_lasting=True)
    return peer.failed(
        f"ended the TLS handshake ({_reason(error)}); see option tls: rocketpy's broker has no TLS"
    )


def _reason(error: Exception) -> str:
    """Returns the text of a system error, without its number."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


class Stream:
    """A connected socket. Any thread may `end` it; the reader then closes it."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        # Held around each call of the socket: TLS has one state for both directions.
        self._lock = threading.Lock()
        self._readable = _poll(connected, select.POLLIN)

    def receive(self) -> bytes:
        """Returns the next bytes; waits for some; empty at the end. Raises OSError."""
        while True:
            try:
                with self._lock:
                    return self._socket.recv(_RECEIVE_BYTES)
            except _WANTS_READ:
                self._readable.poll()
            except ssl.SSLWantWriteError:
                _poll(self._socket, select.POLLOUT).poll()

    def send(self, pieces: Iterable[bytes | memoryview], deadline_ms: int) -> None:
        """Sends all of the pieces before the deadline. Raises TimeoutError, OSError."""
        for piece in _joined(list(pieces)):
            left = memoryview(piece)
            while left:
                try:
                    with self._lock:
                        left = left[self._socket.send(left) :]
                except ssl.SSLWantReadError:
                    self._wait(select.POLLIN, deadline_ms)
                except (BlockingIOError, ssl.SSLWantWriteError):
                    self._wait(select.POLLOUT, deadline_ms)

    def _wait(self, event: int, deadline_ms: int) -> None:
        left_ms = deadline_ms - clock.monotonic_ms()
        if left_ms <= 0 or not _poll(self._socket, event).poll(left_ms):
            raise TimeoutError

    def end(self) -> None:
        """Wakes waiting threads: there is nothing more to read or write."""
        # TLS's own shutdown would leave the reader with bytes that are not decrypted.
        try:
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        except OSError:
            return  # The peer was first, or the socket is closed.

    def close(self) -> None:
        """Closes the socket, after its last use."""
        self._socket.close()


def _poll(connected: socket.socket, event: int) -> select.poll:
    poll = select.poll()
    poll.register(connected, event)
    return poll


def _joined(pieces: list[bytes | memoryview]) -> list[bytes | memoryview]:
    is_small = sum(map(len, pieces)) <= _JOINED_BYTES_MAX
    return [b"".join(pieces)] if is_small else pieces
