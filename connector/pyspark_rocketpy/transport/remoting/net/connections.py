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
# Servers close connections after 120 idle seconds; a request must not cross that close.
IDLE_MS_MAX = 100_000
_Key = tuple[Peer, TlsConfig | None]


@dataclass(slots=True)
class _Place:
    """An address's entry: its connection, open or being opened."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    connection: Connection | None = None
    is_gone: bool = False


class Connections:
    """Connections by address, in the order of their last use. The caller must `close` them."""

    def __init__(self, connections_max: int = CONNECTIONS_MAX) -> None:
        self._connections_max = connections_max
        self._lock = threading.Lock()
        self._places: dict[_Key, _Place] = {}

    def get(self, peer: Peer, timeouts: Timeouts, tls: TlsConfig | None) -> Connection:
        """Returns an open connection. Raises ConnectionFailedError, OptionError.

        Only callers of the same address wait while one is being opened.
        """
        while True:
            place = self._place(peer, tls)
            with place.lock:
                if not place.is_gone:
                    return self._opened(place, peer, timeouts, tls)

    def _opened(
        self, place: _Place, peer: Peer, timeouts: Timeouts, tls: TlsConfig | None
    ) -> Connection:
        found = place.connection
        if found is not None and (not found.is_open or found.idle_ms >= IDLE_MS_MAX):
            found.close()
            found = place.connection = None
        if found is None:
            found = place.connection = Connection.open(peer, timeouts, tls)
        return found

    def _place(self, peer: Peer, tls: TlsConfig | None) -> _Place:
        with self._lock:
            key = peer, tls
            place = self._places.pop(key, None)
            if place is None:
                if len(self._places) >= self._connections_max:
                    self._make_room(peer)
                place = _Place()
            self._places[key] = place
            return place

    def _make_room(self, peer: Peer) -> None:
        """Removes the least recently used connection that no caller waits on.

        Raises ConnectionFailedError if there is none.
        """
        for key, place in self._places.items():
            if place.lock.acquire(blocking=False):
                try:
                    if place.connection is None or not place.connection.is_awaited:
                        _leave(place)
                        del self._places[key]
                        return
                finally:
                    place.lock.release()
        raise peer.failed(
            f"needs one more connection, limit {self._connections_max}, and all connections wait "
            "for answers"
        )

    def close(self) -> None:
        """Ends all connections; new ones may be opened after that."""
        with self._lock:
            places, self._places = self._places, {}
        for place in places.values():
            with place.lock:
                _leave(place)

    def abandon(self) -> None:
        """Drops all connections in a forked process.

        Their threads do not exist here, and locks may be held.
        """
        places, self._places = self._places, {}
        self._lock = threading.Lock()
        for place in places.values():
            if place.connection is not None:
                place.connection.abandon()


def _leave(place: _Place) -> None:
    place.is_gone = True
    if place.connection is not None:
        place.connection.close()


SHARED = Connections()
atexit.register(SHARED.close)
os.register_at_fork(after_in_child=SHARED.abandon)
