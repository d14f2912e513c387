"""Samples of counters at intervals, and the differences over windows.

A window has the last samples of a slab of rows. Minute: 7 samples, one per 10 s; hour: 7 samples,
one per 10 min; day: 25 samples, one per hour. A new row begins with a sample of zeros one period
before its first sample. Sum, TPS and AVGPT are defined as in RocketMQ. In memory only; a restart
begins without samples.
Source: StatsItem, docs/design/broker_behaviour.md section 9.5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Messages, bytes, ms, and the number of additions.
COLUMNS = np.dtype([("nums", "i8"), ("size", "i8"), ("latency_ms", "i8"), ("times", "i8")])


@dataclass(frozen=True, slots=True)
class Window:
    """A window: the number of samples, and the ms between two of them."""

    name: str
    period_ms: int
    samples: int


WINDOWS = (
    Window("minute", 10_000, 7),
    Window("hour", 600_000, 7),
    Window("day", 3_600_000, 25),
)


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one window: the sum, its rate per second, and its mean per addition."""

    sum: int
    tps: float
    avgpt: float


@dataclass(frozen=True, slots=True)
class Differences:
    """The growth of each column in some rows, and the ms between the two samples."""

    grown: NDArray[np.void]
    ms: NDArray[np.float64]

    def figures(self, index: int, column: str) -> Figures:
        """Returns the figures of one row; zeros without growth."""
        total, times = int(self.grown[column][index]), int(self.grown["times"][index])
        ms = float(self.ms[index])
        tps, avgpt = total * 1000 / ms if ms else 0.0, total / times if times else 0.0
        return Figures(total, tps, avgpt)


class SampleRing:
    """The samples of one window for `count` rows."""

    def __init__(self, window: Window, count: int, now_ms: float) -> None:
        self._window = window
        self._samples = np.zeros((window.samples, count), COLUMNS)
        self._times_ms = np.full(window.samples, now_ms)
        self._begins = np.zeros(count, np.int64)
        self._round = 0

    def add(self, counters: NDArray[np.void], now_ms: float) -> None:
        """Adds a sample of all rows."""
        if self._round == 0:
            self._times_ms[0] = now_ms - self._window.period_ms
        self._round += 1
        slot = self._round % self._window.samples
        self._samples[slot] = counters
        self._times_ms[slot] = now_ms

    def begin(self, row: int) -> None:
        """Starts a new row with a sample of zeros."""
        self._samples[self._round % self._window.samples, row] = 0
        self._begins[row] = self._round

    def differences(self, rows: NDArray[np.int64]) -> Differences:
        """Returns the differences between the first and the last sample of each row."""
        slots = self._window.samples
        first = np.maximum(self._begins[rows], self._round - slots + 1) % slots
        last = self._round % slots
        before, after = self._samples[first, rows], self._samples[last, rows]
        grown = np.zeros(len(rows), COLUMNS)
        for name in COLUMNS.names or ():
            grown[name] = after[name] - before[name]
        return Differences(grown, self._times_ms[last] - self._times_ms[first])

    def idle(self, counters: NDArray[np.void]) -> NDArray[np.bool_]:
        """Returns the mask of rows without additions in a whole window."""
        oldest = self._round - self._window.samples + 1
        if oldest < 0:
            return np.zeros(len(counters), np.bool_)
        same = self._samples["times"][oldest % self._window.samples] == counters["times"]
        is_idle: NDArray[np.bool_] = same & (self._begins <= oldest)
        return is_idle
