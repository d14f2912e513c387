"""Shares of a number of bytes among ranges of queues.

Each range is granted its first message, the oldest first, while these messages fit. The oldest one
is granted in any case. So a large queue never starves a small one. The ranges with a granted
message share the remaining bytes in proportion to their own remaining bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Measured:
    """The measured part of a range: bytes of `count` offsets; `count_left` offsets follow.

    `first_bytes` and `first_physical_offset` are of the first message with bytes.
    """

    bytes: int = 0
    count: int = 0
    count_left: int = 0
    first_bytes: int = 0
    first_physical_offset: int = 0

    def joined(self, following: Measured) -> Measured:
        """Returns both as one; `following` starts where this one ends."""
        first = self if self.first_bytes else following
        return Measured(
            self.bytes + following.bytes,
            self.count + following.count,
            following.count_left,
            first.first_bytes,
            first.first_physical_offset,
        )

    @property
    def bytes_estimated(self) -> int:
        """Bytes of the whole range; the offsets left are assumed to be of average size."""
        return self.bytes + self.bytes * self.count_left // max(self.count, 1)


def shares(ranges: Sequence[Measured], bytes_max: int) -> list[int]:
    """Returns the bytes for each range, for ranges with more than `bytes_max` bytes in all."""
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
