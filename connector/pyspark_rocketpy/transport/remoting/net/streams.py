"""Sockets to one address, plain or in TLS, with one reading thread.

Any thread may write. Two threads must not use TLS's state at the same time. So a lock is held
around each call of the socket. The socket does not block: a thread waits without the lock. Nothing
is kept that a crash could lose.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Iterable

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import ConnectionFailedError, OptionError
from pyspark_rocketpy.options.tls import TLS_NAMES
from pyspark_rocketpy.transport.remoting.net.peers import Peer, Timeouts
from rocketpy_proto.tls import TlsConfig, TlsFileError, reason_of

_RECEIVE_BYTES = 256 << 10
# Pieces up to this total size are sent as one.
_JOINED_BYTES_MAX = 64 << 10
_WANTS_READ = (BlockingIOError, ssl.SSLWantReadError)


def connect(peer: Peer, timeouts: Timeouts, tls: TlsConfig | None) -> Stream:
    """Returns a connected stream. Raises ConnectionFailedError, OptionError."""
    try:
        context = None if tls is None else tls.context()
    except TlsFileError as error:
        assert tls is not None
        raise OptionError(error.text(tls, TLS_NAMES)) from error
    timeout = timeouts.ms / 1000
    try:
        plain = socket.create_connection((peer.host, peer.port), timeout)
    except TimeoutError as error:
        raise peer.failed(
            f"has not accepted a connection within {timeouts.ms} ms (option {timeouts.option})"
        ) from error
    # An invalid host name raises ValueError.
    except (OSError, ValueError) as error:
        raise peer.failed(f"cannot be reached ({reason_of(error)})") from error
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is None:
            return Stream(plain)
        name = peer.host if tls is None or tls.server_name is None else tls.server_name
        return Stream(context.wrap_socket(plain, server_hostname=name))
    except (OSError, ValueError) as error:
        plain.close()
        raise _handshake_failed(peer, error) from error


def _handshake_failed(peer: Peer, error: Exception) -> ConnectionFailedError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return peer.failed(
            f"has a certificate that is not accepted ({error.verify_message}); check option "
            "tlsCaFile and option tlsServerName, or set option tlsVerify to false",
            is_lasting=True,
        )
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        problem = f"speaks no compatible TLS ({reason_of(error)}); see option tls"
        return peer.failed(problem, is_lasting=True)
    return peer.failed(
        f"ended the TLS handshake ({reason_of(error)}); see option tls, and check that this server "
        "uses TLS"
    )


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
