"""What a store has counted since it was opened: puts by topic, how long they took, gets.

Kept in memory only: a restart begins at zero. Latencies are counted in RocketMQ's classes.
Source: StoreStatsService; row S13.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

# Upper bounds of the classes in ms; the last class has none.
LATENCY_BOUNDS_MS = (0, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)


@dataclass(frozen=True, slots=True)
class PutTotal:
    """Messages and bytes put into one topic."""

    count: int
    bytes: int


@dataclass(slots=True)
class StoreStatistics:
    """The counters. `put_latency_counts` has one more class than LATENCY_BOUNDS_MS has bounds."""

    puts: dict[str, PutTotal] = field(default_factory=dict)
    put_latency_counts: list[int] = field(
        default_factory=lambda: [0] * (len(LATENCY_BOUNDS_MS) + 1)
    )
    put_failed_count: int = 0
    get_found_count: int = 0
    get_miss_count: int = 0
    get_message_count: int = 0
    corrupt_record_count: int = 0

    def put(self, topic: str, count: int, size_bytes: int, latency_ms: float) -> None:
        """A block of `count` messages was stored."""
        known = self.puts.get(topic, PutTotal(0, 0))
        self.puts[topic] = PutTotal(known.count + count, known.bytes + size_bytes)
        self.put_latency_counts[bisect_left(LATENCY_BOUNDS_MS, int(latency_ms))] += 1

    def got(self, count: int) -> None:
        """A read gave `count` messages."""
        if count:
            self.get_found_count += 1
            self.get_message_count += count
        else:
            self.get_miss_count += 1

    def put_latencies(self) -> Mapping[int, int]:
        """Count of puts by upper bound in ms; -1 stands for "longer than all"."""
        return dict(zip((*LATENCY_BOUNDS_MS, -1), self.put_latency_counts, strict=True))
