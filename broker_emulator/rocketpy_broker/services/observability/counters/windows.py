"""Samples of counters at intervals, and the differences over windows.

A window has the last samples of each row. Minute: 7 samples, one per 10 s; hour: 7 samples, one per
10 min; day: 25 samples, one per hour. A new row begins with a sample of zeros one period before its
first sample. Sum, TPS and AVGPT are defined as in RocketMQ. In memory only; a restart begins
without samples.
Source: StatsItem, docs/design/broker_behaviour.md section 9.5.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Any, NamedTuple

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


class Figures(NamedTuple):
    """Figures of one window: the sum, its rate per second, and its mean per addition."""

    sum: int
    tps: float
    avgpt: float


def fresh_zeros(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Returns an array of zeros that takes memory page by page, as it is written.

    `np.zeros` writes the whole array when it reuses memory that the process has freed.
    """
    kind = np.dtype(dtype)
    count = int(np.prod(shape))
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, count * kind.itemsize, flags=private)
    return np.frombuffer(memory, kind).reshape(shape)


class SampleRing:
    """The samples of one window for `count` rows; the samples of a row are adjacent."""

    def __init__(self, window: Window, count: int) -> None:
        self._window = window
        self._samples = fresh_zeros((count, window.samples), COLUMNS)
        self._times_ms = [0.0] * window.samples
        self._begins = fresh_zeros((count,), np.int64)
        self._round = 0

    def add(self, counters: NDArray[np.void], now_ms: float) -> None:
        """Adds a sample of the first rows, as many as `counters` has."""
        if self._round == 0:
            self._times_ms[0] = now_ms - self._window.period_ms
        self._round += 1
        slot = self._round % self._window.samples
        self._samples[: len(counters), slot] = counters
        self._times_ms[slot] = now_ms

    def begin(self, row: int) -> None:
        """Starts a new row with a sample of zeros."""
        self._samples[row, self._round % self._window.samples] = 0
        self._begins[row] = self._round

    def figures(self, row: int, column: str) -> Figures:
        """Returns a row's growth from its first to its last sample."""
        slots = self._window.samples
        first = max(int(self._begins[row]), self._round - slots + 1) % slots
        last = self._round % slots
        before, after = self._samples[row, first], self._samples[row, last]
        total, times = int(after[column] - before[column]), int(after["times"] - before["times"])
        ms = self._times_ms[last] - self._times_ms[first]
        return Figures(total, total * 1000 / ms if ms else 0.0, total / times if times else 0.0)

    def idle(self, counters: NDArray[np.void], rows: slice) -> NDArray[np.bool_]:
        """Returns the mask of these rows without additions in a whole window."""
        slots = self._window.samples
        oldest = self._round - slots + 1
        if oldest < 0:
            return np.zeros(len(counters[rows]), np.bool_)
        same = self._samples["times"][rows, oldest % slots] == counters["times"][rows]
        is_idle: NDArray[np.bool_] = same & (self._begins[rows] <= oldest)
        return is_idle
