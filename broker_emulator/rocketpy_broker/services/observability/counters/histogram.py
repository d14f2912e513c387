"""Histograms by label values, for single values and for arrays.

prometheus_client's histogram takes one value per call. In memory only; a restart begins at zero.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Labels = tuple[str, ...]


@dataclass(slots=True)
class Distribution:
    """Counts of values by bucket, and the sum of all values."""

    counts: list[int]
    sum: float = 0.0


class Histogram:
    """A metric's distributions by label values.

    `bounds` are the upper bounds of the buckets; the last bucket has none. Without bounds the sum
    alone is of use, as a counter.
    """

    def __init__(self, name: str, *bounds: float) -> None:
        self.name = name
        self.bounds = bounds
        self.series: dict[Labels, Distribution] = {}

    def of(self, labels: Labels) -> Distribution:
        """Returns the distribution of these label values, created if missing."""
        found = self.series.get(labels)
        if found is None:
            found = self.series[labels] = Distribution([0] * (len(self.bounds) + 1))
        return found

    def observe(self, labels: Labels, value: float) -> None:
        """Counts a value."""
        series = self.of(labels)
        series.counts[bisect_left(self.bounds, value)] += 1
        series.sum += value

    def observe_all(self, labels: Labels, values: NDArray[np.float64]) -> None:
        """Counts the values of an array."""
        series = self.of(labels)
        places = np.searchsorted(np.array(self.bounds), values, side="left")
        found = np.bincount(places, minlength=len(series.counts)).tolist()
        series.counts = [old + new for old, new in zip(series.counts, found, strict=True)]
        series.sum += float(values.sum())

    def forget_topic(self, topic: str) -> None:
        """Removes the series with the topic as first label value."""
        for labels in [each for each in self.series if each[:1] == (topic,)]:
            del self.series[labels]
