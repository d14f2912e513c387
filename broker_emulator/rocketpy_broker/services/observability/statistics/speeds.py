"""Rates of the store's puts and gets.

Rates are over 10 s, 60 s and 600 s. The put latencies of the last minute are here, too. Samples are
taken every 10 s, with the other statistics. In memory only; a restart begins without samples.
Source: StoreStatsService, docs/design/broker_behaviour.md section 9.5.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from rocketpy_broker.store.statistics import StoreStatistics

# Spans in samples of 10 s.
SPANS = (1, 6, 60)
MINUTE_SAMPLES = 6


@dataclass(frozen=True, slots=True)
class _Sample:
    time_ms: float
    put: int
    found: int
    miss: int
    transferred: int


@dataclass(frozen=True, slots=True)
class Speeds:
    """Rates per second: messages put, gets with and without messages, messages got.

    Each list has the rates over 10 s, 60 s and 600 s, as far as samples exist.
    """

    put: list[float]
    found: list[float]
    miss: list[float]
    transferred: list[float]


class StoreSpeeds:
    """Samples of one store's counters."""

    def __init__(self, counted: StoreStatistics, now_ms: float) -> None:
        self._counted = counted
        self._samples = deque([self._sample(now_ms)], SPANS[-1] + 1)
        self._count = 0
        self._steps_before = list(counted.put_step_counts)
        self.minute_step_counts = [0] * len(counted.put_step_counts)

    def _sample(self, now_ms: float) -> _Sample:
        counted = self._counted
        return _Sample(
            now_ms,
            counted.put_message_count,
            counted.get_found_count,
            counted.get_miss_count,
            counted.get_message_count,
        )

    def sample(self, now_ms: float) -> None:
        """Takes a sample; every sixth one ends a minute of put latencies."""
        self._samples.append(self._sample(now_ms))
        self._count += 1
        if self._count % MINUTE_SAMPLES == 0:
            steps = list(self._counted.put_step_counts)
            before = zip(steps, self._steps_before, strict=True)
            self.minute_step_counts = [now - then for now, then in before]
            self._steps_before = steps

    def speeds(self) -> Speeds:
        """Returns the rates between the last samples."""
        last = self._samples[-1]
        firsts = [self._samples[-1 - span] for span in SPANS if len(self._samples) > span]
        spans = [(first, (last.time_ms - first.time_ms) / 1000) for first in firsts]

        return Speeds(
            [(last.put - first.put) / seconds for first, seconds in spans],
            [(last.found - first.found) / seconds for first, seconds in spans],
            [(last.miss - first.miss) / seconds for first, seconds in spans],
            [(last.transferred - first.transferred) / seconds for first, seconds in spans],
        )
