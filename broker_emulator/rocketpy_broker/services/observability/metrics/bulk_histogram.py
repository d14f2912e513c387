"""Histogram for arrays of values; prometheus_client's takes one value per call.

Lives in memory. Python's lock makes each step atomic for the rendering thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector


class BulkHistogram(Collector):
    """Counts by `label` and bucket; `bounds` are upper bounds, the last bucket has none."""

    def __init__(self, name: str, documentation: str, label: str, bounds: Sequence[float]) -> None:
        self._name, self._documentation, self._label = name, documentation, label
        self._bounds = np.array(bounds, np.float64)
        self._texts = [*(f"{bound:.1f}" for bound in bounds), "+Inf"]
        self._series: dict[str, tuple[NDArray[np.int64], float]] = {}

    def observe(self, value: str, observed: NDArray[np.float64]) -> None:
        """Counts the observed values for one label value."""
        counts, total = self._series.get(value, (np.zeros(len(self._texts), np.int64), 0.0))
        places = np.searchsorted(self._bounds, observed, side="left")
        found = np.bincount(places, minlength=len(self._texts))
        self._series[value] = counts + found, total + float(observed.sum())

    def remove(self, *labels: str) -> None:
        """Removes a series if it exists."""
        self._series.pop(labels[0], None)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Yields one family of all present series."""
        family = HistogramMetricFamily(self._name, self._documentation, labels=[self._label])
        for value, (counts, total) in [*self._series.items()]:
            buckets = zip(self._texts, np.cumsum(counts).tolist(), strict=True)
            family.add_metric([value], list(buckets), total)
        yield family
