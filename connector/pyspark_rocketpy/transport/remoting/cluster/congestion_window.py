"""Congestion windows: trials of how many requests a broker takes at once.

In a round, each request of a window is answered once. A window of sends starts small, and gets one
more send a round. A window of pulls doubles each round while the task waits for answers. A window
of sends halves after an error, a window of pulls after a busy or late answer. Both then get one
more request a round. Brokers shorten answers to pulls by rules of their own (messages, bytes, fewer
from disk). So the length of a pull follows the answers. State ends with the task.

Source: docs/design/cluster.md section 2.2, item 8, docs/design/batches.md section 10.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_rocketpy.transport.remoting.cluster.queue_requests import PULLED_MESSAGES_MAX

SENDS_AT_FIRST, SENDS_MAX = 2.0, 32
PULLS_AT_FIRST = 4.0
# An awaited answer that is older than this came late.
LATE_MS = 1_000
# Full answers in a row before longer pulls are tried again.
FULL_MAX = 64


@dataclass(slots=True)
class CongestionWindow:
    """Requests under way, and their limit, which doubles each round up to `doubled_up_to`."""

    size_max: int = SENDS_MAX
    size: float = SENDS_AT_FIRST
    doubled_up_to: float = 0.0
    in_flight: int = 0

    def grow(self) -> None:
        """Adds to the limit for an answer."""
        step = 1 if self.size < self.doubled_up_to else 1 / self.size
        self.size = min(self.size + step, self.size_max)

    def halve(self) -> None:
        """Halves the limit: the broker is overloaded."""
        self.size = self.doubled_up_to = max(1.0, self.size / 2)


@dataclass(slots=True)
class PullWindow(CongestionWindow):
    """Limits of one queue: pulls under way, their approximate bytes, and their messages."""

    size: float = PULLS_AT_FIRST
    doubled_up_to: float = float("inf")
    bytes_max: int = 0
    # Moving mean of the bytes of an answer.
    _answer_bytes: float = 0.0
    _count: int = PULLED_MESSAGES_MAX
    _count_max: int = PULLED_MESSAGES_MAX
    _full: int = 0

    @property
    def pulls(self) -> int:
        """The number of pulls that may be under way."""
        fitting = int(self.bytes_max // self._answer_bytes) if self._answer_bytes else self.size_max
        return max(1, min(int(self.size), fitting, self.size_max))

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
        else:
            self.grow()

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
