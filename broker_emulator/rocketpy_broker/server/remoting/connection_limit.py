"""A limit for open connections that leaves places for each address."""

from __future__ import annotations

from rocketpy_broker.runtime.shares import Shares
from rocketpy_broker.server.security.attempts import host_of

# Connections of all addresses, and further ones of each address, up to twice the first number in
# all. So one address cannot keep out the other ones.
CONNECTIONS_MAX, CONNECTIONS_OF_HOST = 1_000, 8


class ConnectionLimit:
    """The number of open connections, by address."""

    def __init__(self) -> None:
        self._shares = Shares(CONNECTIONS_OF_HOST, 2 * CONNECTIONS_MAX)

    def enter(self, peer: str) -> bool:
        """Counts a connection until `leave`; False beyond the limit."""
        host = host_of(peer)
        if self._shares.total >= CONNECTIONS_MAX and not self._shares.has_space(host):
            return False
        self._shares.change(host, 1)
        return True

    def leave(self, peer: str) -> None:
        """Ends a connection's count."""
        self._shares.change(host_of(peer), -1)
