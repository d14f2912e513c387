"""Connections of this process: one for each address, shared by all threads.

Their number is at most CONNECTIONS_MAX. A closed connection is replaced at its next use. So is one
that its server is about to close as idle. A forked process starts without connections: the parent
continues to use its own. Nothing is kept that a crash could lose.
"""

from __future__ import annotations

import atexit
import os
import threading
from dataclasses import dataclass, field

from pyspark_rocketpy.transport.remoting.net.connection import Connection
from pyspark_rocketpy.transport.remoting.net.peers import Peer, Timeouts
from rocketpy_proto.tls import TlsConfig

CONNECTIONS_MAX = 256
# Servers close connections after 120 idle seconds. A request sent at that moment would be lost.
IDLE_MS_MAX = 100_000
_Key = tuple[Peer, TlsConfig | None]


@dataclass(slots=True)
class _Entry:
    """An address's entry: its connection, open or being opened."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    connection: Connection | None = None
    is_gone: bool = False


class Connections:
    """Connections by address, in the order of their last use. The caller must `close` them."""

    def __init__(self, connections_max: int = CONNECTIONS_MAX) -> None:
        self._connections_max = connections_max
        self._lock = threading.Lock()
        self._entries: dict[_Key, _Entry] = {}

    def get(self, peer: Peer, timeouts: Timeouts, tls: TlsConfig | None) -> Connection:
        """Returns an open connection. Raises ConnectionFailedError, OptionError.

        Only callers of the same address wait while one is being opened.
        """
        while True:
            entry = self._entry(peer, tls)
            with entry.lock:
                if not entry.is_gone:
                    return self._opened(entry, peer, timeouts, tls)

    def _opened(
        self, entry: _Entry, peer: Peer, timeouts: Timeouts, tls: TlsConfig | None
    ) -> Connection:
        found = entry.connection
        if found is not None and (not found.is_open or found.idle_ms >= IDLE_MS_MAX):
            found.close()
            found = entry.connection = None
        if found is None:
            found = entry.connection = Connection.open(peer, timeouts, tls)
        return found

    def _entry(self, peer: Peer, tls: TlsConfig | None) -> _Entry:
        with self._lock:
            key = peer, tls
            entry = self._entries.pop(key, None)
            if entry is None:
                if len(self._entries) >= self._connections_max:
                    self._make_room(peer)
                entry = _Entry()
            self._entries[key] = entry
            return entry

    def _make_room(self, peer: Peer) -> None:
        """Removes the least recently used connection that no caller waits on.

        Raises ConnectionFailedError if there is none.
        """
        for key, entry in self._entries.items():
            if entry.lock.acquire(blocking=False):
                try:
                    if entry.connection is None or not entry.connection.is_awaited:
                        _leave(entry)
                        del self._entries[key]
                        return
                finally:
                    entry.lock.release()
        raise peer.failed(
            "gets no connection, because all connections of this process wait for answers, limit "
            f"{self._connections_max}"
        )

    def close(self) -> None:
        """Ends all connections; new ones may be opened after that."""
        with self._lock:
            entries, self._entries = self._entries, {}
        for entry in entries.values():
            with entry.lock:
                _leave(entry)

    def abandon(self) -> None:
        """Drops all connections in a forked process.

        Their threads do not exist here, and locks may be held.
        """
        entries, self._entries = self._entries, {}
        self._lock = threading.Lock()
        for entry in entries.values():
            if entry.connection is not None:
                entry.connection.abandon()


def _leave(entry: _Entry) -> None:
    entry.is_gone = True
    if entry.connection is not None:
        entry.connection.close()


SHARED = Connections()
atexit.register(SHARED.close)
os.register_at_fork(after_in_child=SHARED.abandon)
