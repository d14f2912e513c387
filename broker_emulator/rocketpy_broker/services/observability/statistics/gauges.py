"""Gauges of group lag by queue, as of the last pull.

Gauges are not summed and have no windows. All are set to 0 every five minutes, as in RocketMQ; a
key without a new value in five minutes is dropped then. A row takes 0.4 kB; `untracked` counts
values without a free row. In memory only; a restart begins without gauges.
Source: MomentStatsItemSet, docs/design/broker_behaviour.md section 9.5.
"""

from __future__ import annotations

from rocketpy_broker.services.observability.statistics.table import StatisticsTable
from rocketpy_broker.services.observability.statistics.windows import Window

PERIOD_MS = 300_000
MOMENTS_MAX = 100_000
# Two samples show the keys that were set in between.
_PERIOD = Window("five minutes", PERIOD_MS, 2)


class GaugeTable(StatisticsTable):
    """All gauges, at most MOMENTS_MAX keys."""

    has_windows = False

    def __init__(self, rows_max: int = MOMENTS_MAX) -> None:
        super().__init__(rows_max, (_PERIOD,))

    def end_period(self, number: int, now_ms: float) -> None:
        """Ends five minutes for a slab: drops idle rows and sets all values to 0."""
        slab = self.pages[number]
        slab.sample([0], now_ms)
        self.drop_idle(number, 0)
        slab.clear_values()
