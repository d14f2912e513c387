"""A histogram that takes many values at once; prometheus_client's takes one at a time.

Lives in memory. Python's lock makes each step whole for the thread that renders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector


class BulkHistogram(Collector):
    """Counts by `label` and bucket. `bounds` are the buckets' upper ones, the last has none."""

    def __init__(self, name: str, documentation: str, label: str, bounds: Sequence[float]) -> None:
        self._name, self._documentation, self._label = name, documentation, label
        self._bounds = np.array(bounds, np.float64)
        self._texts = [*(f"{bound:.1f}" for bound in bounds), "+Inf"]
        self._series: dict[str, tuple[NDArray[np.int64], float]] = {}

    def observe(self, value: str, observed: NDArray[np.float64]) -> None:
        """Counts these, for one value of the label."""
        counts, total = self._series.get(value, (np.zeros(len(self._texts), np.int64), 0.0))
        places = np.searchsorted(self._bounds, observed, side="left")
        found = np.bincount(places, minlength=len(self._texts))
        self._series[value] = counts + found, total + float(observed.sum())

    def remove(self, *labels: str) -> None:
        """Removes a series, if there is one."""
        self._series.pop(labels[0], None)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Yields all series, as they are now."""
        family = HistogramMetricFamily(self._name, self._documentation, labels=[self._label])
        for value, (counts, total) in [*self._series.items()]:
            buckets = zip(self._texts, np.cumsum(counts).tolist(), strict=True)
            family.add_metric([value], list(buckets), total)
        yield family
