"""Samples of counters at intervals, and what a window between the first and the last of them says.

A window holds the last samples of a slab of rows: 7 of the minute, one each 10 s; 7 of the hour,
one each 10 min; 25 of the day, one each hour. A row that is new begins with a sample of zeros one
period before its first. Sum, TPS and AVGPT are RocketMQ's. In memory only; a restart begins anew.
Source: StatsItem, docs/design/broker_behaviour.md section 9.5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Messages, bytes, ms, and how often something was added.
COLUMNS = np.dtype([("nums", "i8"), ("size", "i8"), ("latency_ms", "i8"), ("times", "i8")])


@dataclass(frozen=True, slots=True)
class Window:
    """How many samples are kept, one each `period_ms`."""

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
    """Of one window: what was added, how much a second, and how much at a time."""

    sum: int
    tps: float
    avgpt: float


@dataclass(frozen=True, slots=True)
class Differences:
    """Of some rows: what each column has grown by, and the time that took."""

    grown: NDArray[np.void]
    ms: NDArray[np.float64]

    def figures(self, index: int, column: str) -> Figures:
        """Those of one row; zeros where nothing has grown."""
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
        """Takes a sample of all rows."""
        if self._round == 0:
            self._times_ms[0] = now_ms - self._window.period_ms
        self._round += 1
        slot = self._round % self._window.samples
        self._samples[slot] = counters
        self._times_ms[slot] = now_ms

    def begin(self, row: int) -> None:
        """The row is new; its last sample is of zeros."""
        self._samples[self._round % self._window.samples, row] = 0
        self._begins[row] = self._round

    def differences(self, rows: NDArray[np.int64]) -> Differences:
        """Between the first and the last sample of each row."""
        slots = self._window.samples
        first = np.maximum(self._begins[rows], self._round - slots + 1) % slots
        last = self._round % slots
        before, after = self._samples[first, rows], self._samples[last, rows]
        grown = np.zeros(len(rows), COLUMNS)
        for name in COLUMNS.names or ():
            grown[name] = after[name] - before[name]
        return Differences(grown, self._times_ms[last] - self._times_ms[first])

    def idle(self, counters: NDArray[np.void]) -> NDArray[np.bool_]:
        """Which rows have not been added to since a first sample as old as the window."""
        oldest = self._round - self._window.samples + 1
        if oldest < 0:
            return np.zeros(len(counters), np.bool_)
        same = self._samples["times"][oldest % self._window.samples] == counters["times"]
        is_idle: NDArray[np.bool_] = same & (self._begins <= oldest)
        return is_idle
