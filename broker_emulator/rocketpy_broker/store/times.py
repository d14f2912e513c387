"""Store times: what the next record gets, and where in the log they fell.

They never fall while the clock is no more than an hour behind the last record: that is stored once
more. Where the clock is further behind, the records were stored by one that was wrong. Then too
the last time is given, until readings of the clock have agreed with each other for a minute; from
there on its own time is. So a clock that was mended mends store times, also after a restart.

Where they fell is kept, as physical offsets, for those who search by time. A crash loses it; it is
in the manifest as far as that reaches, and recovery finds the rest in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.guarded_clock import (
    AHEAD_MS_MAX,
    CONFIRM_MS,
    STEP_MS_MAX,
    StabilityTimer,
)
from rocketpy_broker.runtime.log_throttle import LogThrottle

logger = logging.getLogger(__name__)
# The newest are kept; each takes a look more of a search by time.
FALLS_MAX = 64


class StoreTimes:
    """The store times of one log. `last_ms` is that of the last record, 0 before the first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._agreement = StabilityTimer()
        self._seldom = LogThrottle(clock)
        self.last_ms = 0
        # Physical offsets of records whose time is lower than that of the one before; ascending.
        self.falls: list[int] = []

    def recovered(self, last_ms: int, falls: Iterable[int]) -> None:
        """Goes on from what a start has found."""
        self.last_ms, self.falls = last_ms, list(falls)
        self.next_ms()

    def next_ms(self) -> int:
        """Returns the time for what is stored now."""
        now_ms = self._clock.now_ms()
        ahead_ms = self.last_ms - now_ms
        if ahead_ms <= AHEAD_MS_MAX:
            self._agreement.forget()
            return max(now_ms, self.last_ms)
        if self._agreement.read(now_ms, self._clock.monotonic_ms()) >= CONFIRM_MS:
            return now_ms
        if self._seldom.may_say():
            logger.warning(
                "the last message was stored %d ms ahead of the clock; others get its time until "
                "the clock has gone on evenly for %d ms",
                ahead_ms,
                CONFIRM_MS,
            )
        return self.last_ms

    def stored(self, physical_offset: int, time_ms: int) -> None:
        """Records with this time, which `next_ms` gave, lie in the log from there on."""
        if time_ms < self.last_ms:
            logger.warning(
                "store times fall from %d to %d: the clock was ahead", self.last_ms, time_ms
            )
            self.falls.append(physical_offset)
            del self.falls[:-FALLS_MAX]
        self.last_ms = time_ms

    def falls_below(self, physical_end: int) -> list[int]:
        """Where they fell in the log below that."""
        return [offset for offset in self.falls if offset < physical_end]


class TimesSeen:
    """Where store times fall in a log that is read in order, and the last one."""

    def __init__(self) -> None:
        self.last_ms = 0
        self.falls: list[int] = []
        self._previous_ms: int | None = None

    def go_on(self, last_ms: int, falls: Iterable[int], begin: int, end: int) -> None:
        """Begins at `begin`, with what is known of the records below `end`."""
        self.last_ms = last_ms
        self.falls = [offset for offset in falls if offset < begin]
        self._previous_ms = last_ms if begin == end else None

    def see(self, times_ms: NDArray[np.int64], physical_offsets: NDArray[np.int64]) -> None:
        """The next records, one at least. Another broker's may fall by little; that is passed over.

        What is known of later ones than a fall says nothing of the last time.
        """
        first = int(times_ms[0]) if self._previous_ms is None else self._previous_ms
        fell = np.flatnonzero(np.diff(times_ms, prepend=first) < -STEP_MS_MAX)
        self._previous_ms = int(times_ms[-1])
        if len(fell):
            self.falls = [*self.falls, *physical_offsets[fell[-FALLS_MAX:]].tolist()][-FALLS_MAX:]
            self.last_ms = int(times_ms[fell[-1] :].max())
        else:
            self.last_ms = max(self.last_ms, int(times_ms.max()))
