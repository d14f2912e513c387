"""Linux's table of TCP connections, where the system has one.

A thread reads it: a line takes about 1 us, and the table has all connections of the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

# A line has: number, own address, peer's address, state.
TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = frozenset({b"01"})
# FIN_WAIT1, FIN_WAIT2, TIME_WAIT and CLOSING: this side closed first.
_CLOSED_FIRST = frozenset({b"04", b"05", b"06", b"0B"})
_MAPPED = "::ffff:"


async def connection_count(port: int) -> int:
    """Returns the number of client connections to a port of this machine."""
    return len(await asyncio.to_thread(lambda: list(_peers(port, _ESTABLISHED))))


async def closed_peers(port: int) -> set[str]:
    """Returns the peers, in gRPC's notation, of connections that this side closed first.

    Linux lists them for a minute.
    """
    return await asyncio.to_thread(lambda: set(_peers(port, _CLOSED_FIRST)))


def _peers(port: int, states: frozenset[bytes]) -> Iterator[str]:
    own_end = b":%04X" % port
    for table in TABLES:
        lines: list[bytes] = []
        with contextlib.suppress(OSError):
            lines = table.read_bytes().splitlines()[1:]
        for line in lines:
            _, own, peer, state = line.split(maxsplit=4)[:4]
            if state in states and own.endswith(own_end):
                yield _name_of(peer.decode())


def _name_of(text: str) -> str:
    """Returns a peer from the table's field: words of four bytes in the machine's order."""
    address, _, port = text.partition(":")
    words = struct.iter_unpack("=I", bytes.fromhex(address))
    packed = b"".join(struct.pack("!I", word) for (word,) in words)
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    host = socket.inet_ntop(family, packed)
    if ":" in host and not host.startswith(_MAPPED):
        return quote(f"ipv6:[{host}]:{int(port, 16)}", safe=":")
    return f"ipv4:{host.removeprefix(_MAPPED)}:{int(port, 16)}"
