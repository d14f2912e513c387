"""How many bytes connections have received and sent, as Linux counts them. Lives in memory.

gRPC tells nothing of a request that is on its way. Its sockets are this process's: they are found
by their peer's address, and only looked at. No descriptor is duplicated, which could keep a
connection open, and whose it is gets asked each time: gRPC may have closed it, and the number may
be another's. All of it is done in a thread: to look at a connection takes 5 us, to find it as long
for each that is open.
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
# A search takes no more than its share of the time.
SEARCH_SHARE = 20
# struct tcp_info: 8 bytes, 24 numbers of 4 and 2 of 8 before tcpi_bytes_acked; <linux/tcp.h>.
_TRAFFIC = struct.Struct("=120xQQ")
_MAPPED = "::ffff:"
# The system's tables of connections. A line has: number, own address, peer's address, state.
TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
# FIN_WAIT1, FIN_WAIT2, TIME_WAIT and CLOSING: this side closed first.
_CLOSED_FIRST = frozenset({b"04", b"05", b"06", b"0B"})


class Traffic(NamedTuple):
    """What a connection has sent and seen acknowledged, and what it has received, in bytes."""

    sent: int
    received: int


class ConnectionTraffic:
    """Knows the sockets of connections; those of others cost a search."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._descriptors: dict[str, int] = {}
        self._search_ms = 0.0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="traffic")

    async def of(self, peers: Iterable[str]) -> dict[str, Traffic]:
        """Of the connections with these peers, as gRPC writes them, without those gone."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self.look, peers)

    async def count(self, port: int) -> int:
        """How many connections clients have with this process's port."""
        counting = asyncio.get_running_loop().run_in_executor(self._thread, _count_of, port)
        return await counting

    async def closed(self, port: int) -> set[str]:
        """Returns the peers of connections with this port that this side closed first.

        The system forgets them after a minute. Empty where it has no such table.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, _closed_of, port)

    def close(self) -> None:
        """Waits for what is under way, and end the thread."""
        self._thread.shutdown(wait=True)

    def look(self, peers: Iterable[str]) -> dict[str, Traffic]:
        """Returns the same in this thread."""
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
        """Adds what is known; return the others."""
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
    """It stays gRPC's, which closes it. Raises OSError for what is no socket."""
    # The family that has room for the addresses of both.
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
    """Returns the other end as the table has it: words of four bytes in the machine's order."""
    address, _, port = text.decode().partition(":")
    words = struct.iter_unpack("=I", bytes.fromhex(address))
    packed = b"".join(struct.pack("!I", word) for (word,) in words)
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    return _name_of(socket.inet_ntop(family, packed), int(port, 16))


def _peer(connection: socket.socket) -> str:
    """Returns the other end as gRPC writes it; empty where it has no address. Raises OSError."""
    address = connection.getpeername()
    if not isinstance(address, tuple):
        return ""
    return _name_of(*address[:2])


def _name_of(host: str, port: int) -> str:
    if ":" in host and not host.startswith(_MAPPED):
        return f"ipv6:[{host}]:{port}"
    return f"ipv4:{host.removeprefix(_MAPPED)}:{port}"


async def untold(_peers: Iterable[str]) -> dict[str, Traffic]:
    """Of no connection, where the system does not tell."""
    return {}


def is_told(clock: Clock) -> bool:
    """True if this system tells, tried on a connection of our own."""
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
