"""How ranges of queues share a number of bytes. Pure functions, no state.

The ranges' first messages are granted in the order in which they were stored, as far as they fit,
and the oldest in any case: so the messages of a small queue never wait for ever behind a large one.
What is left of the bytes is shared by those ranges in proportion to the bytes that they have
besides.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Measured:
    """A range as far as the broker has looked: bytes of `count` offsets, with `count_left` behind.

    The first message with bytes lies in the log where `first_physical_offset` says.
    """

    bytes: int = 0
    count: int = 0
    count_left: int = 0
    first_bytes: int = 0
    first_physical_offset: int = 0

    def joined(self, behind: Measured) -> Measured:
        """Returns both as one; `behind` goes on where this one ends."""
        first = self if self.first_bytes else behind
        return Measured(
            self.bytes + behind.bytes,
            self.count + behind.count,
            behind.count_left,
            first.first_bytes,
            first.first_physical_offset,
        )

    @property
    def bytes_estimated(self) -> int:
        """Of the whole range: those behind are taken to be as large as those before."""
        return self.bytes + self.bytes * self.count_left // max(self.count, 1)


def shares(ranges: Sequence[Measured], bytes_max: int) -> list[int]:
    """How many bytes each range may have, where they have more than `bytes_max` together."""
    budgets = [0] * len(ranges)
    full = [number for number, each in enumerate(ranges) if each.bytes]
    if not full:
        return budgets
    full.sort(key=lambda number: ranges[number].first_physical_offset)
    firsts = list(accumulate(ranges[number].first_bytes for number in full))
    count = max(bisect_right(firsts, bytes_max), 1)
    left = max(bytes_max - firsts[count - 1], 0)
    rests = {
        number: ranges[number].bytes_estimated - ranges[number].first_bytes
        for number in full[:count]
    }
    rest = sum(rests.values()) or 1
    for number, rest_bytes in rests.items():
        budgets[number] = ranges[number].first_bytes + left * rest_bytes // rest
    return budgets
