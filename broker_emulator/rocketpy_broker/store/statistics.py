"""Counters of a store: puts by topic, put latencies and gets.

State is in memory only: all counters start at zero when the store is opened. Latencies are counted
in fine steps. RocketMQ's latency classes (putMessageDistributeTime) and its percentiles are
computed from the steps. Each stored block calls `block_put`.
Source: StoreStatsService, docs/design/broker_behaviour.md section 9.5.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from rocketpy_broker.runtime.listeners import Listeners
from rocketpy_broker.store.values import PutCause, QueueKey

# Upper bounds of the latency classes in ms; the last class has none.
LATENCY_BOUNDS_MS = (0, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
# Upper bounds of the latency steps in ms; they include all class bounds.
STEP_BOUNDS_MS = (
    *range(21),
    *range(22, 51, 2),
    *range(55, 101, 5),
    *range(110, 201, 10),
    *range(250, 501, 50),
    *range(600, 1001, 100),
    *range(2000, 10_001, 1000),
)
LONGER = -1
assert set(LATENCY_BOUNDS_MS) <= set(STEP_BOUNDS_MS)


@dataclass(frozen=True, slots=True)
class PutTotal:
    """Messages and bytes put into one topic."""

    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Put:
    """The event that a block of `count` messages was stored."""

    queue: QueueKey
    count: int
    bytes: int
    latency_ms: float
    cause: PutCause


@dataclass(slots=True)
class StoreStatistics:
    """The counters of a store.

    `put_step_counts` has one element more than STEP_BOUNDS_MS.
    """

    puts: dict[str, PutTotal] = field(default_factory=dict)
    put_step_counts: list[int] = field(default_factory=lambda: [0] * (len(STEP_BOUNDS_MS) + 1))
    put_message_count: int = 0
    put_bytes: int = 0
    put_latency_max_ms: float = 0.0
    put_failed_count: int = 0
    get_found_count: int = 0
    get_miss_count: int = 0
    get_message_count: int = 0
    get_latency_max_ms: float = 0.0
    corrupt_record_count: int = 0
    block_put: Listeners[[Put]] = field(default_factory=Listeners[[Put]])

    def put(self, put: Put) -> None:
        """Counts a stored block."""
        topic = put.queue.topic
        known = self.puts.get(topic, PutTotal(0, 0))
        self.puts[topic] = PutTotal(known.count + put.count, known.bytes + put.bytes)
        self.put_step_counts[bisect_left(STEP_BOUNDS_MS, int(put.latency_ms))] += 1
        self.put_message_count += put.count
        self.put_bytes += put.bytes
        self.put_latency_max_ms = max(self.put_latency_max_ms, put.latency_ms)
        self.block_put(put)

    def put_failed(self) -> None:
        """Counts a block that was not stored."""
        self.put_failed_count += 1

    def got(self, count: int, latency_ms: float) -> None:
        """Counts a read that returned `count` messages."""
        self.get_latency_max_ms = max(self.get_latency_max_ms, latency_ms)
        if count:
            self.get_found_count += 1
            self.get_message_count += count
        else:
            self.get_miss_count += 1

    def forget_topic(self, topic: str) -> None:
        """Drops the counters of a deleted topic."""
        self.puts.pop(topic, None)


def latency_classes(step_counts: Sequence[int]) -> Mapping[int, int]:
    """Returns the number of puts by upper bound of the class in ms; LONGER is the last class."""
    classes = dict.fromkeys((*LATENCY_BOUNDS_MS, LONGER), 0)
    for bound, count in zip((*STEP_BOUNDS_MS, LONGER), step_counts, strict=True):
        index = bisect_left(LATENCY_BOUNDS_MS, bound)
        is_longer = bound == LONGER or index == len(LATENCY_BOUNDS_MS)
        classes[LONGER if is_longer else LATENCY_BOUNDS_MS[index]] += count
    return classes


def percentile_ms(step_counts: Sequence[int], share: float) -> int:
    """Returns a latency in ms that `share` of all puts do not exceed.

    Returns LONGER above the last step, and without puts.
    """
    total = sum(step_counts)
    if not total:
        return LONGER
    below = list(accumulate(step_counts))
    index = bisect_left(below, total * share)
    return STEP_BOUNDS_MS[index] if index < len(STEP_BOUNDS_MS) else LONGER
