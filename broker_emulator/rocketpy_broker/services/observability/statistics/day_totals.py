"""Messages put and got until the last two midnights, by local time.

Samples are taken every 10 s, with the other statistics. In memory only: a restart begins at zero.
Source: BrokerStats, docs/design/broker_behaviour.md section 9.5.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from rocketpy_broker.store.statistics import StoreStatistics

DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class Totals:
    """Messages since the broker's start."""

    put_count: int = 0
    get_count: int = 0


class DayTotals:
    """The totals of one store at the midnights before yesterday, before today, and now."""

    def __init__(self, counted: StoreStatistics, now_ms: int) -> None:
        self._counted = counted
        self._day = _day(now_ms)
        self.yesterday_morning = self.today_morning = Totals()

    @property
    def now(self) -> Totals:
        """The present totals."""
        return Totals(self._counted.put_message_count, self._counted.get_message_count)

    def sample(self, now_ms: int) -> None:
        """Keeps the present totals if another day has begun since the last sample."""
        day = _day(now_ms)
        if day <= self._day:
            return
        # After more than a day without samples, nothing was counted yesterday.
        is_next = day == self._day + 1
        self.yesterday_morning = self.today_morning if is_next else self.now
        self.today_morning, self._day = self.now, day


def _day(now_ms: int) -> int:
    """Returns the number of a time's day, by local time."""
    seconds = now_ms // 1000
    return (seconds + time.localtime(seconds).tm_gmtoff) // DAY_SECONDS
