"""Bytes that connections have received and sent, as Linux counts them.

gRPC reports nothing of a request before it is complete. Its sockets belong to this process: this
module finds them by the peer's address and only reads their counters. It duplicates no descriptor,
because a duplicate could keep a connection open. It checks the peer each time: gRPC may have closed
the descriptor, and its number may belong to another file. All of this runs in a thread of its own:
to read a connection's counters takes 5 us, to find it 5 us per open descriptor.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from rocketpy_broker.runtime.clock import Clock

DESCRIPTORS = Path("/proc/self/fd")
# The next search starts after this many times the duration of the last one.
SEARCH_SHARE = 20
# struct tcp_info: 8 bytes, 24 numbers of 4 and 2 of 8 before tcpi_bytes_acked; <linux/tcp.h>.
_TRAFFIC = struct.Struct("=120xQQ")
_MAPPED = "::ffff:"
# Linux's tables of connections. A line has: number, own address, peer's address, state.
TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
# FIN_WAIT1, FIN_WAIT2, TIME_WAIT and CLOSING: this side closed first.
_CLOSED_FIRST = frozenset({b"04", b"05", b"06", b"0B"})


class Traffic(NamedTuple):
    """The bytes that a connection has sent (and the peer acknowledged) and received."""

    sent: int
    received: int


class ConnectionTraffic:
    """A cache of the connections' descriptors; an unknown connection costs a search."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._descriptors: dict[str, int] = {}
        self._search_ms = 0.0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="traffic")

    async def of(self, peers: Iterable[str]) -> dict[str, Traffic]:
        """Returns the traffic of the connections with `peers`, in gRPC's notation.

        Closed connections are missing in the result.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, self.look, peers)

    async def count(self, port: int) -> int:
        """Returns the number of client connections with this process's port."""
        counting = asyncio.get_running_loop().run_in_executor(self._thread, _count_of, port)
        return await counting

    async def closed(self, port: int) -> set[str]:
        """Returns the peers of connections with this port that this side closed first.

        Linux lists them for a minute. Empty where the system has no such table.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, _closed_of, port)

    def close(self) -> None:
        """Waits for running work and ends the thread."""
        self._thread.shutdown(wait=True)

    def look(self, peers: Iterable[str]) -> dict[str, Traffic]:
        """Returns the same as `of`, in the calling thread."""
        found: dict[str, Traffic] = {}
        missing = self._look(peers, found)
        began_ms = self._clock.monotonic_ms()
        if missing and self._search_ms <= began_ms:
            self._descriptors = dict(_connections())
            ended_ms = self._clock.monotonic_ms()
            self._search_ms = ended_ms + SEARCH_SHARE * (ended_ms - began_ms)
            self._look(missing, found)
        return found

    def _look(self, peers: Iterable[str], found: dict[str, Traffic]) -> list[str]:
        """Adds the traffic of known peers to `found`; returns the other peers."""
        missing = []
        for peer in peers:
            traffic = self._known(peer)
            if traffic is None:
                missing.append(peer)
            else:
                found[peer] = traffic
        return missing

    def _known(self, peer: str) -> Traffic | None:
        name = unquote(peer)
        descriptor = self._descriptors.get(name)
        if descriptor is None:
            return None
        with contextlib.suppress(OSError, struct.error), _borrowed(descriptor) as connection:
            if _peer(connection) == name:
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TRAFFIC.size)
                return Traffic(*_TRAFFIC.unpack(info))
        return None


@contextlib.contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """Yields a socket object for gRPC's descriptor, which gRPC closes.

    Raises OSError for a descriptor that is no socket.
    """
    # AF_INET6's address buffer also holds IPv4 addresses.
    connection = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, fileno=descriptor)
    try:
        yield connection
    finally:
        connection.detach()


def _connections() -> Iterator[tuple[str, int]]:
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = os.listdir(DESCRIPTORS)  # noqa: PTH208 (names are all)
    for name in names:
        with contextlib.suppress(OSError), _borrowed(int(name)) as connection:
            yield _peer(connection), int(name)


def _count_of(port: int) -> int:
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = os.listdir(DESCRIPTORS)  # noqa: PTH208 (names are all)
    count = 0
    for name in names:
        with contextlib.suppress(OSError), _borrowed(int(name)) as connection:
            count += bool(_peer(connection)) and connection.getsockname()[1] == port
    return count


def _closed_of(port: int) -> set[str]:
    own_end = b":%04X" % port
    closed: set[str] = set()
    for table in TABLES:
        lines: list[bytes] = []
        with contextlib.suppress(OSError):
            lines = table.read_bytes().splitlines()[1:]
        for line in lines:
            _, own, peer, state = line.split(maxsplit=4)[:4]
            if state in _CLOSED_FIRST and own.endswith(own_end):
                closed.add(quote(_peer_of_table(peer), safe=":"))
    return closed


def _peer_of_table(text: bytes) -> str:
    """Returns the peer from a table's field: words of four bytes in the machine's order."""
    address, _, port = text.decode().partition(":")
    words = struct.iter_unpack("=I", bytes.fromhex(address))
    packed = b"".join(struct.pack("!I", word) for (word,) in words)
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    return _name_of(socket.inet_ntop(family, packed), int(port, 16))


def _peer(connection: socket.socket) -> str:
    """Returns the peer in gRPC's notation; empty without an address. Raises OSError."""
    address = connection.getpeername()
    if not isinstance(address, tuple):
        return ""
    return _name_of(*address[:2])


def _name_of(host: str, port: int) -> str:
    if ":" in host and not host.startswith(_MAPPED):
        return f"ipv6:[{host}]:{port}"
    return f"ipv4:{host.removeprefix(_MAPPED)}:{port}"


async def untold(_peers: Iterable[str]) -> dict[str, Traffic]:
    """Returns no traffic; used where the system does not report it."""
    return {}


def is_told(clock: Clock) -> bool:
    """True if this system reports traffic, tried on a connection of this process to itself."""
    with contextlib.suppress(OSError, AttributeError), contextlib.ExitStack() as closing:
        server = closing.enter_context(socket.create_server(("127.0.0.1", 0)))
        client = closing.enter_context(socket.create_connection(server.getsockname()))
        client.sendall(b"?")
        connection = closing.enter_context(server.accept()[0])
        connection.recv(1)
        peer = _peer(connection)
        traffic = ConnectionTraffic(clock).look([peer]).get(peer)
        return traffic is not None and traffic.received == 1
    return False
