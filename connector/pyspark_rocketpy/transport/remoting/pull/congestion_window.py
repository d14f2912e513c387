"""How much of a queue is on its way at once: how many pulls, of how many messages each.

Begins small. Who reads faster than answers come has twice as many pulls on their way with each
round, up to the bounds of options; a broker that is busy or late halves that, and then gets one
more a round. Brokers cut answers short by rules of their own (messages, bytes, fewer from disk), so
the length of a pull follows what came. Plain numbers, which end with the pull.
Source: docs/design/cluster.md 2.2 item 8.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_rocketpy.transport.remoting.cluster.queue_requests import PULLED_MESSAGES_MAX

PULLS_AT_FIRST = 4
# An answer that was waited for and is older than this came late.
LATE_MS = 1_000
# Full answers in a row, until longer pulls are tried again.
FULL_MAX = 64


@dataclass(slots=True)
class CongestionWindow:
    """What one queue may have on its way: at most so many pulls, and about so many bytes."""

    pulls_max: int
    bytes_max: int
    _pulls: float = PULLS_AT_FIRST
    _doubled_up_to: float = float("inf")
    # Of an answer; a mean that follows the last ones.
    _answer_bytes: float = 0.0
    _count: int = PULLED_MESSAGES_MAX
    _count_max: int = PULLED_MESSAGES_MAX
    _full: int = 0

    @property
    def pulls(self) -> int:
        """How many pulls may be on their way."""
        fitting = (
            int(self.bytes_max // self._answer_bytes) if self._answer_bytes else self.pulls_max
        )
        return max(1, min(int(self._pulls), fitting, self.pulls_max))

    @property
    def count(self) -> int:
        """How many messages a pull is to ask for."""
        return self._count

    def answered(self, byte_count: int, waited_ms: int | None) -> None:
        """An answer came; if it was waited for, so long after it was asked for."""
        self._answer_bytes += (byte_count - self._answer_bytes) / (4 if self._answer_bytes else 1)
        if waited_ms is None:
            return
        if waited_ms >= LATE_MS:
            self.halve()
        elif self._pulls < self.pulls_max:
            is_steep = self._pulls < self._doubled_up_to
            self._pulls += 1 if is_steep else 1 / self._pulls

    def halve(self) -> None:
        """The broker has too much to do."""
        self._pulls = self._doubled_up_to = max(1.0, min(self._pulls, self.pulls_max) / 2)

    def first(self, count: int) -> None:
        """So many messages came of more than brokers give: it may give more than others."""
        self._count_max = max(self._count_max, count)
        self._count = max(count, 1)

    def short(self, count: int) -> None:
        """An answer had only so many messages, of more that there are."""
        self._count = max(count, 1)
        self._full = 0

    def full(self) -> None:
        """An answer had all that it was asked for."""
        self._full += 1
        if self._full > FULL_MAX and self._count < self._count_max:
            self._count = min(self._count + self._count // 4 + 1, self._count_max)
            self._full = 0
