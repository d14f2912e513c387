"""Rates of the store's puts and gets.

Rates are over 10 s, 60 s and 600 s. The put latencies of the last minute are here, too. Samples are
taken every 10 s, with the other statistics. In memory only; a restart begins without samples.
Source: StoreStatsService, docs/design/broker_behaviour.md section 9.5.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from rocketpy_broker.store.statistics import StoreStatistics

# Spans in samples of 10 s.
SPANS = (1, 6, 60)
MINUTE_SAMPLES = 6


class StoreSpeeds:
    """Samples of one store's counters."""

    def __init__(self, counted: StoreStatistics, now_ms: float) -> None:
        self._counted = counted
        # Each is a time in ms, and the counters at that time.
        self._samples = deque([(now_ms, self._counts())], SPANS[-1] + 1)
        self._count = 0
        self._steps_before = list(counted.put_step_counts)
        self.minute_step_counts = [0] * len(counted.put_step_counts)

    def _counts(self) -> dict[str, int]:
        """Returns the counters by the field of their rates in GetStoreStatisticsResponse."""
        counted = self._counted
        return {
            "put_tps": counted.put_message_count,
            "get_found_tps": counted.get_found_count,
            "get_miss_tps": counted.get_miss_count,
            "get_transferred_tps": counted.get_message_count,
        }

    def sample(self, now_ms: float) -> None:
        """Takes a sample; every sixth one ends a minute of put latencies."""
        self._samples.append((now_ms, self._counts()))
        self._count += 1
        if self._count % MINUTE_SAMPLES == 0:
            steps = list(self._counted.put_step_counts)
            before = zip(steps, self._steps_before, strict=True)
            self.minute_step_counts = [now - then for now, then in before]
            self._steps_before = steps

    def rates(self) -> dict[str, Any]:
        """Returns the rates per second over the last samples, one for each span that is full."""
        last_ms, last = self._samples[-1]
        firsts = [self._samples[-1 - span] for span in SPANS if len(self._samples) > span]
        return {
            name: [(now - first[name]) / ((last_ms - ms) / 1000) for ms, first in firsts]
            for name, now in last.items()
        }
