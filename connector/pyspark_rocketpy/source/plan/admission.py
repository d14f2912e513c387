"""Admission of micro-batches: their start and their size.

The only state is the time of the last batch; after a crash the first batch does not wait. The
smallest of all limits counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark_rocketpy.clock import monotonic_ms, sleep_ms
from pyspark_rocketpy.offsets import Positions, QueueRange
from pyspark_rocketpy.options.values import SourceOptions
from pyspark_rocketpy.source.plan.task_plan import ranges_between

# The longest time for which the broker holds a request; with a longer pollTimeout, more follow.
HOLD_MS_MAX = 30_000
# While there are too few messages for a batch, each new message ends a held request. The next
# request is delayed by this time, which does not delay the batch.
TOO_FEW_PAUSE_MS = 100


class AdmissionControl:
    """The limits of one Spark query; clock and pause are injected, times in ms."""

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
        self._delay_ms_max = options.max_trigger_delay_ms
        self._poll_ms_max = min(options.poll_timeout_ms, HOLD_MS_MAX)
        self._now = now
        self._pause = pause
        self._last_batch_ms: int | None = None
        self._too_few = False

    def hold_ms(self) -> int:
        """Returns the time for which the broker may hold a request while nothing changes."""
        left_ms = self._left_ms() if self._too_few else self._poll_ms_max
        return min(self._poll_ms_max, left_ms)

    def _left_ms(self) -> int:
        """Returns the rest of maxTriggerDelay; 0 before the first batch."""
        if self._last_batch_ms is None:
            return 0
        return max(0, self._last_batch_ms + self._delay_ms_max - self._now())

    def put_off(self, begin: Positions, end: Positions) -> bool:
        """True if the batch has to wait for more messages, because of minOffsetsPerTrigger."""
        if self._count_min is None:
            return False
        there = ranges_between(begin, end)
        left_ms = self._left_ms()
        self._too_few = 0 < sum(part.count for part in there) < self._count_min and left_ms > 0
        if self._too_few:
            self._pause(min(TOO_FEW_PAUSE_MS, left_ms, self._poll_ms_max))
        return self._too_few

    def admitted(self) -> None:
        """Records the start of a batch."""
        self._last_batch_ms = self._now()

    def limited(
        self,
        begin: Positions,
        end: Positions,
        limit_bytes: Callable[[Sequence[QueueRange], int], list[int]],
    ) -> Positions:
        """Returns `end`, or less for a limit; `limit_bytes` requests sizes from the broker."""
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
    """Returns positions at most `count_max` messages from `begin` and not beyond `end`.

    Every queue with unread messages advances by one message. The rest is shared in proportion to
    their unread messages. If there are more queues than allowed messages, the queues alternate.
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
    """Returns the ranges, rotated to the next queue.

    The sum of all positions in `begin` selects this queue. So it changes with each batch, also over
    restarts, and reaches every queue.
    """
    queues = [(topic, i) for topic, queues in sorted(begin.items()) for i in sorted(queues)]
    if not queues:
        return ranges
    turn = queues[sum(begin[topic][i] for topic, i in queues) % len(queues)]
    cut = sum((part.topic, part.queue) < turn for part in ranges)
    return ranges[cut:] + ranges[:cut]
