"""Shares of connections in a bounded resource, such as a table."""

from __future__ import annotations

from collections import Counter


class Shares:
    """The sizes that connections take, by connection and in total.

    The broker's own work has no connection and no limit.
    """

    def __init__(self, connection_max: int) -> None:
        self.connection_max = connection_max
        self.total = 0
        self._by_connection: Counter[str] = Counter()

    def of(self, connection: str) -> int:
        """Returns the size that a connection takes."""
        return self._by_connection[connection]

    def has_room(self, connection: str, size: int = 1) -> bool:
        """True if the connection may take `size` more."""
        return not connection or self.of(connection) + size <= self.connection_max

    def change(self, connection: str, size: int) -> None:
        """Adds `size`, which may be negative, to the connection's share."""
        self.total += size
        self._by_connection[connection] += size
        if not self._by_connection[connection]:
            del self._by_connection[connection]
