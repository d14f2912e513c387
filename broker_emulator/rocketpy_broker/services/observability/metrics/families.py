"""How families of series are put together, some series in each turn of the loop. No state.

A large family comes in parts, that are families of its name: thousands of samples at once would
hold everybody up not only when they are made, but also when they are freed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from rocketpy_broker.runtime.scheduler import take_slot

# Made in one turn, and in one part: about a millisecond.
SERIES_A_TURN = 200
Series: TypeAlias = tuple[Sequence[str], float]


class MetricSource(Protocol):
    """What tells some of a broker's metrics."""

    def families(self) -> AsyncGenerator[Metric, None]:
        """Families as they are now, or parts of them; others have turns in between."""


def gauge(
    name: str, documentation: str, value: float, labels: dict[str, str] | None = None
) -> Metric:
    """Returns a gauge of one series."""
    family = GaugeMetricFamily(name, documentation, labels=[*(labels or {})])
    family.add_metric([*(labels or {}).values()], value)
    return family


def counter(name: str, documentation: str, value: float) -> Metric:
    """Returns a counter of one series; `name` ends without `_total`."""
    return CounterMetricFamily(name, documentation, value)


async def turn() -> None:
    """Let others go on; what is told is a snapshot for each series, not of all of them."""
    await take_slot("metrics")
