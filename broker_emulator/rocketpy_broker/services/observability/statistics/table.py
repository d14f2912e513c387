"""Rows of statistics: counters by key, in slabs.

A slab is sampled as a whole. An addition is a look-up and some sums, for any number of rows. A row
takes 1.3 kB. A row without additions for a day is dropped. If three quarters of the rows are taken,
an hour is enough. `untracked` counts events without a free row. In memory only; a restart begins at
zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.services.observability.statistics.names import Key
from rocketpy_broker.services.observability.statistics.windows import (
    COLUMNS,
    WINDOWS,
    SampleRing,
    Window,
)

SLAB_ROWS = 2_048
ROWS_MAX = 100_000
MINUTE, HOUR, DAY = range(3)
assert [window.name for window in WINDOWS] == ["minute", "hour", "day"]


class CounterPage:
    """A slab of rows: keys, counters and samples."""

    def __init__(self, now_ms: float, windows: Sequence[Window] = WINDOWS) -> None:
        self.keys: list[Key | None] = [None] * SLAB_ROWS
        self.counters = np.zeros(SLAB_ROWS, COLUMNS)
        self.rings = [SampleRing(window, SLAB_ROWS, now_ms) for window in windows]
        self._nums, self._size = self.counters["nums"], self.counters["size"]
        self._latency_ms, self._times = self.counters["latency_ms"], self.counters["times"]

    def begin(self, row: int, key: Key) -> None:
        """Assigns a free row to a key."""
        self.keys[row] = key
        self.counters[row] = 0
        for ring in self.rings:
            ring.begin(row)

    def add(self, row: int, nums: int, size: int, latency_ms: int) -> None:
        """Counts one more event."""
        self._nums[row] += nums
        # Single additions in numpy are slow, and many events have neither value.
        if size:
            self._size[row] += size
        if latency_ms:
            self._latency_ms[row] += latency_ms
        self._times[row] += 1

    def set(self, row: int, size: int, latency_ms: int | None) -> None:
        """Replaces the values of a row; None leaves the latency."""
        self._size[row] = size
        if latency_ms is not None:
            self._latency_ms[row] = latency_ms
        self._times[row] += 1

    def clear_values(self) -> None:
        """Sets all columns to 0, except the number of additions."""
        for column in (self._nums, self._size, self._latency_ms):
            column[:] = 0

    def sample(self, windows: list[int], now_ms: float) -> None:
        """Adds a sample to each of these windows."""
        for window in windows:
            self.rings[window].add(self.counters, now_ms)

    def idle_rows(self, window: int) -> NDArray[np.intp]:
        """Returns the rows without additions in the window."""
        return np.flatnonzero(self.rings[window].idle(self.counters))


class StatisticsTable:
    """All rows of one table, at most `rows_max`."""

    has_windows = True

    def __init__(self, rows_max: int = ROWS_MAX, windows: Sequence[Window] = WINDOWS) -> None:
        self._rows_max = rows_max
        self._windows = windows
        self._rows: dict[Key, int] = {}
        self._free: list[int] = []
        self.pages: list[CounterPage] = []
        self.untracked = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: Key) -> bool:
        return key in self._rows

    def add(self, key: Key, now_ms: float, nums: int, size: int = 0, latency_ms: int = 0) -> None:
        """Counts one more event of a key."""
        place = self._place(key, now_ms)
        if place is not None:
            place[0].add(place[1], nums, size, latency_ms)

    def set(self, key: Key, now_ms: float, size: int, latency_ms: int | None) -> None:
        """Replaces the values of a key; None leaves the latency."""
        place = self._place(key, now_ms)
        if place is not None:
            place[0].set(place[1], size, latency_ms)

    def _place(self, key: Key, now_ms: float) -> tuple[CounterPage, int] | None:
        """Returns the slab and the row of a key; None without a free row."""
        index = self._rows.get(key)
        if index is None:
            index = self._begin(key, now_ms)
            if index is None:
                self.untracked += 1
                return None
        slab, row = divmod(index, SLAB_ROWS)
        return self.pages[slab], row

    def _begin(self, key: Key, now_ms: float) -> int | None:
        if len(self._rows) >= self._rows_max:
            return None
        if not self._free:
            first = len(self.pages) * SLAB_ROWS
            self.pages.append(CounterPage(now_ms, self._windows))
            self._free = list(range(first + SLAB_ROWS - 1, first - 1, -1))
        index = self._free.pop()
        slab, row = divmod(index, SLAB_ROWS)
        self.pages[slab].begin(row, key)
        self._rows[key] = index
        return index

    def _drop(self, index: int) -> None:
        slab, row = divmod(index, SLAB_ROWS)
        key = self.pages[slab].keys[row]
        if key is not None:
            self.pages[slab].keys[row] = None
            del self._rows[key]
            self._free.append(index)

    @property
    def is_tight(self) -> bool:
        """True if three quarters of the rows are taken."""
        return len(self._rows) * 4 > self._rows_max * 3

    def drop_idle(self, number: int, window: int) -> None:
        """Drops the rows of a slab that were idle for a window; call it after a sample."""
        for row in self.pages[number].idle_rows(window).tolist():
            self._drop(number * SLAB_ROWS + row)

    def drop(self, number: int, is_gone: Callable[[Key], bool]) -> None:
        """Drops the rows of a slab with a key for which `is_gone` is true."""
        for row, key in enumerate(self.pages[number].keys):
            if key is not None and is_gone(key):
                self._drop(number * SLAB_ROWS + row)

    def keys_from(self, slab: int, row: int) -> Iterator[tuple[int, Key]]:
        """Yields rows and keys of a slab from `row` on."""
        for number, key in enumerate(self.pages[slab].keys[row:], row):
            if key is not None:
                yield number, key
