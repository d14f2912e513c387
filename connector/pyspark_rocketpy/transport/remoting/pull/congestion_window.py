"""Congestion window of a queue: number and length of its pulls.

The window starts small. Each round doubles it for a task that reads faster than answers come, up to
the limits of options. A busy or late broker halves it, and then gets one more pull a round. Brokers
cut answers short by rules of their own (messages, bytes, fewer from disk). So the length of a pull
follows the answers. State ends with the pull of a range.

Source: docs/design/cluster.md section 2.2, item 8.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_rocketpy.transport.remoting.cluster.queue_requests import PULLED_MESSAGES_MAX

PULLS_AT_FIRST = 4
# An awaited answer that is older than this came late.
LATE_MS = 1_000
# Full answers in a row before longer pulls are tried again.
FULL_MAX = 64


@dataclass(slots=True)
class CongestionWindow:
    """Limits of one queue: pulls under way, and their approximate bytes."""

    pulls_max: int
    bytes_max: int
    _pulls: float = PULLS_AT_FIRST
    _doubled_up_to: float = float("inf")
    # Moving mean of the bytes of an answer.
    _answer_bytes: float = 0.0
    _count: int = PULLED_MESSAGES_MAX
    _count_max: int = PULLED_MESSAGES_MAX
    _full: int = 0

    @property
    def pulls(self) -> int:
        """The number of pulls that may be under way."""
        fitting = (
            int(self.bytes_max // self._answer_bytes) if self._answer_bytes else self.pulls_max
        )
        return max(1, min(int(self._pulls), fitting, self.pulls_max))

    @property
    def count(self) -> int:
        """The number of messages to request with a pull."""
        return self._count

    def answered(self, byte_count: int, waited_ms: int | None) -> None:
        """Adjusts to an answer; `waited_ms` is its age if the task waited for it, else None."""
        self._answer_bytes += (byte_count - self._answer_bytes) / (4 if self._answer_bytes else 1)
        if waited_ms is None:
            return
        if waited_ms >= LATE_MS:
            self.halve()
        elif self._pulls < self.pulls_max:
            is_steep = self._pulls < self._doubled_up_to
            self._pulls += 1 if is_steep else 1 / self._pulls

    def halve(self) -> None:
        """Halves the number of pulls: the broker is overloaded."""
        self._pulls = self._doubled_up_to = max(1.0, min(self._pulls, self.pulls_max) / 2)

    def first(self, count: int) -> None:
        """Learns from the first answer, of `count` messages, how many this broker gives."""
        self._count_max = max(self._count_max, count)
        self._count = max(count, 1)

    def short(self, count: int) -> None:
        """Shortens pulls after an answer with only `count` of the requested messages."""
        self._count = max(count, 1)
        self._full = 0

    def full(self) -> None:
        """Counts an answer with all requested messages; lengthens pulls after FULL_MAX of them."""
        self._full += 1
        if self._full > FULL_MAX and self._count < self._count_max:
            self._count = min(self._count + self._count // 4 + 1, self._count_max)
            self._full = 0
