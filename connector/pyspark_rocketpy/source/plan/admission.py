"""Admission: when a micro-batch begins, and how much it takes.

Keeps the time of the last batch and nothing else; after a crash the first batch does not wait.
The smallest of all limits counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark_rocketpy.clock import monotonic_ms, sleep_ms
from pyspark_rocketpy.offsets import Positions, QueueRange
from pyspark_rocketpy.options.values import SourceOptions
from pyspark_rocketpy.source.plan.task_plan import ranges_between

# No query is held for longer; a longer pollTimeout is a query that is sent again.
HOLD_MS_MAX = 30_000
# While too few messages wait for a batch, each one that arrives answers a held query; the next
# query is delayed by this much, for nobody is in a hurry.
TOO_FEW_PAUSE_MS = 100


class Admission:
    """The limits of one query; clock and pause are injected, times in ms."""

    def __init__(
        self,
        options: SourceOptions,
        *,
        now: Callable[[], int] = monotonic_ms,
        pause: Callable[[int], None] = sleep_ms,
    ) -> None:
        self._count_min = options.min_offsets_per_trigger
        self._count_max = options.max_offsets_per_trigger
        self._bytes_max = options.max_bytes_per_trigger
        self._delay_ms_max = options.max_trigger_delay
        self._poll_ms_max = min(options.poll_timeout, HOLD_MS_MAX)
        self._now = now
        self._pause = pause
        self._last_batch_ms: int | None = None
        self._too_few = False

    def hold_ms(self) -> int:
        """How long the broker may hold a query when nothing has changed."""
        left_ms = self._left_ms() if self._too_few else self._poll_ms_max
        return min(self._poll_ms_max, left_ms)

    def _left_ms(self) -> int:
        """What is left of maxTriggerDelay; 0 before the first batch."""
        if self._last_batch_ms is None:
            return 0
        return max(0, self._last_batch_ms + self._delay_ms_max - self._now())

    def put_off(self, begin: Positions, end: Positions) -> bool:
        """True if what is there has to wait for more, by minOffsetsPerTrigger."""
        if self._count_min is None:
            return False
        there = ranges_between(begin, end)
        left_ms = self._left_ms()
        self._too_few = 0 < sum(part.count for part in there) < self._count_min and left_ms > 0
        if self._too_few:
            self._pause(min(TOO_FEW_PAUSE_MS, left_ms, self._poll_ms_max))
        return self._too_few

    def admitted(self) -> None:
        """A batch begins now."""
        self._last_batch_ms = self._now()

    def limited(
        self,
        begin: Positions,
        end: Positions,
        limit_bytes: Callable[[Sequence[QueueRange], int], list[int]],
    ) -> Positions:
        """`end`, or less where a limit says so; `limit_bytes` asks the broker for sizes."""
        if self._count_max is not None:
            end = limit_positions(begin, end, self._count_max)
        ranges = ranges_between(begin, end)
        if self._bytes_max is None or not ranges:
            return end
        limited = {topic: dict(queues) for topic, queues in end.items()}
        ends = limit_bytes(ranges, self._bytes_max)
        for part, offset in zip(ranges, ends, strict=True):
            limited[part.topic][part.queue] = offset
        return limited


def limit_positions(begin: Positions, end: Positions, count_max: int) -> Positions:
    """Positions at most `count_max` messages from `begin` and not beyond `end`.

    Every queue with anything to read advances by one message, and the rest goes to them in
    proportion to what they hold. Where more queues than messages are allowed, they take turns.
    """
    ranges = _in_turn(ranges_between(begin, end), begin)
    total = sum(part.count for part in ranges)
    if total <= count_max:
        return end
    limited = {topic: {i: begin[topic][i] for i in queues} for topic, queues in end.items()}
    rest = max(0, count_max - len(ranges))
    for part in ranges[:count_max]:
        more = rest * (part.count - 1) // max(1, total - len(ranges))
        limited[part.topic][part.queue] = part.begin + 1 + more
    return limited


def _in_turn(ranges: list[QueueRange], begin: Positions) -> list[QueueRange]:
    """Returns the ranges from the queue on whose turn it is.

    The turn follows from how much has been read, so that it moves on with each batch, also over
    restarts, and comes to every queue.
    """
    queues = [(topic, i) for topic, queues in sorted(begin.items()) for i in sorted(queues)]
    if not queues:
        return ranges
    turn = queues[sum(begin[topic][i] for topic, i in queues) % len(queues)]
    cut = sum((part.topic, part.queue) < turn for part in ranges)
    return ranges[cut:] + ranges[:cut]
