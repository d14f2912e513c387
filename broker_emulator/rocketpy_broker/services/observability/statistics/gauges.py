"""Values of the moment by key: how far a group is behind in a queue, as its last pull found it.

They are no sums, and have no windows. Each five minutes all are set to 0, as RocketMQ does; a key
that nothing was set for in five minutes makes room then. A row takes 0.4 kB; what finds no room is
counted in `untracked`. In memory only; a restart begins with none.
Source: MomentStatsItemSet, docs/design/broker_behaviour.md section 9.5.
"""

from __future__ import annotations

from rocketpy_broker.services.observability.statistics.table import StatisticsTable
from rocketpy_broker.services.observability.statistics.windows import Window

PERIOD_MS = 300_000
MOMENTS_MAX = 100_000
# Two samples tell what was set in between.
_PERIOD = Window("five minutes", PERIOD_MS, 2)


class GaugeTable(StatisticsTable):
    """All values of the moment, MOMENTS_MAX keys at most."""

    has_windows = False

    def __init__(self, rows_max: int = MOMENTS_MAX) -> None:
        super().__init__(rows_max, (_PERIOD,))

    def end_period(self, number: int, now_ms: float) -> None:
        """Five minutes are over for a slab."""
        slab = self.pages[number]
        slab.sample([0], now_ms)
        self.drop_idle(number, 0)
        slab.clear_values()
