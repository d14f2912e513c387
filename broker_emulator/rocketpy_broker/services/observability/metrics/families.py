"""Construction of metric families, some series per scheduler slot.

A large family is yielded in parts, which are families of the same name. Thousands of samples at
once would block the event loop twice: when they are created, and when they are freed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from rocketpy_broker.runtime.scheduler import take_slot

# Series in one scheduler slot and in one part; takes about 1 ms.
SERIES_A_TURN = 200
Series: TypeAlias = tuple[Sequence[str], float]


class MetricSource(Protocol):
    """A source of some of a broker's metrics."""

    def families(self) -> AsyncGenerator[Metric, None]:
        """Yields present families or parts of them; takes scheduler slots in between."""


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
    """Takes a scheduler slot; so series of one page are read at different times."""
    await take_slot("metrics")
