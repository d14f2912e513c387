"""The table of counters that statistics and metrics show.

An addition is a look-up and some sums. The arrays have their full size, but the system gives memory
only to rows that were in use. A row takes 1.3 kB with all windows, 0.4 kB with one. `untracked`
counts events without a free row. In memory only; a restart begins at zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rocketpy_broker.services.observability.counters.names import Key
from rocketpy_broker.services.observability.counters.windows import (
    COLUMNS,
    WINDOWS,
    SampleRing,
    Window,
    fresh_zeros,
)

ROWS_MAX = 100_000


class CounterTable:
    """Counters by key and their samples, at most `rows_max` rows."""

    def __init__(self, windows: Sequence[Window] = WINDOWS, rows_max: int = ROWS_MAX) -> None:
        self._rows_max = rows_max
        self._rows: dict[Key, int] = {}
        # By row; a free row has None.
        self.keys: list[Key | None] = []
        self._free: list[int] = []
        self.counters = fresh_zeros((rows_max,), COLUMNS)
        self.rings = [SampleRing(window, rows_max) for window in windows]
        self._nums, self._size = self.counters["nums"], self.counters["size"]
        self._latency_ms, self._times = self.counters["latency_ms"], self.counters["times"]
        self.untracked = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: Key) -> bool:
        return key in self._rows

    def find(self, key: Key) -> int | None:
        """Returns the row of a key, or None."""
        return self._rows.get(key)

    def add(self, key: Key, nums: int, size: int = 0, latency_ms: int = 0) -> None:
        """Counts one more event of a key."""
        row = self._row(key)
        if row is None:
            return
        self._nums[row] += nums
        # Single additions in numpy are slow, and many events have neither value.
        if size:
            self._size[row] += size
        if latency_ms:
            self._latency_ms[row] += latency_ms
        self._times[row] += 1

    def set(self, key: Key, size: int, latency_ms: int | None) -> None:
        """Replaces the values of a key; None leaves the latency."""
        row = self._row(key)
        if row is None:
            return
        self._size[row] = size
        if latency_ms is not None:
            self._latency_ms[row] = latency_ms
        self._times[row] += 1

    def _row(self, key: Key) -> int | None:
        """Returns the row of a key, created if missing; None if no row is free."""
        row = self._rows.get(key)
        if row is not None:
            return row
        if len(self._rows) >= self._rows_max:
            self.untracked += 1
            return None
        if not self._free:
            self._free.append(len(self.keys))
            self.keys.append(None)
        row = self._rows[key] = self._free.pop()
        self.keys[row] = key
        self.counters[row] = 0
        for ring in self.rings:
            ring.begin(row)
        return row

    def clear_values(self) -> None:
        """Sets all columns to 0, except the number of additions."""
        for column in (self._nums, self._size, self._latency_ms):
            column[: len(self.keys)] = 0

    def sample(self, window: int, now_ms: float) -> None:
        """Adds a sample of all rows to a window; takes some ms."""
        self.rings[window].add(self.counters[: len(self.keys)], now_ms)

    @property
    def is_tight(self) -> bool:
        """True if more than three quarters of the rows are taken."""
        return len(self._rows) * 4 > self._rows_max * 3

    def drop_idle(self, window: int, rows: slice) -> None:
        """Drops the rows of a slice that were idle for a window."""
        for index in np.flatnonzero(self.rings[window].idle(self.counters, rows)).tolist():
            self._drop(rows.start + index)

    def drop_if(self, is_gone: Callable[[Key], bool], rows: slice) -> None:
        """Drops the rows of a slice with a key for which `is_gone` is true."""
        for row, key in enumerate(self.keys[rows], rows.start):
            if key is not None and is_gone(key):
                self._drop(row)

    def _drop(self, row: int) -> None:
        key = self.keys[row]
        if key is not None:
            self.keys[row] = None
            del self._rows[key]
            self._free.append(row)
