"""Bytes of the name server's entries, and their limit."""

from __future__ import annotations

from collections.abc import Collection
from sys import getsizeof
from typing import TypeAlias

from rocketpy_broker.nameserver.errors import TooManyEntriesError

# The bytes of an entry without its texts. With its name, a topic of one broker takes about 560.
ENTRY_BYTES = 512
Texts: TypeAlias = "Collection[str | bytes]"


class EntryBytes:
    """The bytes of all entries of a kind."""

    def __init__(self, kind: str, bytes_max: int) -> None:
        self._kind = kind
        self._bytes_max = bytes_max
        self.total = 0

    def change(self, new: Texts = (), old: Texts = ()) -> None:
        """Counts an entry with the texts `new` in place of `old`; () is no entry.

        Raises TooManyEntriesError.
        """
        self.total += self.growth(new, old)

    def growth(self, new: Texts, old: Texts) -> int:
        """Returns the bytes that a change adds. Raises TooManyEntriesError beyond the limit."""
        growth = size_of(new) - size_of(old)
        if growth > 0 and self.total + growth > self._bytes_max:
            raise TooManyEntriesError(self._kind, self._bytes_max)
        return growth


def size_of(texts: Texts) -> int:
    """Returns the bytes of an entry."""
    return ENTRY_BYTES + sum(map(getsizeof, texts)) if texts else 0
