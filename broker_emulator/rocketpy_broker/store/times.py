"""Store timestamps of new records, and their falls in the log.

A fall is a record with a lower timestamp than its predecessor. Timestamps never fall while the last
record is at most an hour ahead of the clock: the last timestamp is then used again. If it is
further ahead, an earlier clock was wrong. The last timestamp is used until clock readings have
agreed for a minute; then the clock's own time is used. A corrected clock thus corrects store
timestamps, also after a restart.

The physical offsets of the falls are kept for searches by time. A crash loses them; the manifest
has the falls below its end, and recovery finds the rest in the log.
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
# The newest falls are kept; each one costs a search by time one more look-up.
FALLS_MAX = 64


class StoreTimes:
    """The store timestamps of one log.

    `last_ms` is the timestamp of the last record, 0 before the first.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stability = StabilityTimer()
        self._log_throttle = LogThrottle(clock)
        self.last_ms = 0
        # Physical offsets of records with a lower timestamp than their predecessor, ascending.
        self.falls: list[int] = []

    def recovered(self, last_ms: int, falls: Iterable[int]) -> None:
        """Continues from the results of recovery."""
        self.last_ms, self.falls = last_ms, list(falls)
        self.next_ms()

    def next_ms(self) -> int:
        """Returns the timestamp for a record that is stored now."""
        now_ms = self._clock.now_ms()
        ahead_ms = self.last_ms - now_ms
        if ahead_ms <= AHEAD_MS_MAX:
            self._stability.forget()
            return max(now_ms, self.last_ms)
        if self._stability.read(now_ms, self._clock.monotonic_ms()) >= CONFIRM_MS:
            return now_ms
        if self._log_throttle.may_log():
            logger.warning(
                "the last message was stored %d ms ahead of the clock. New messages get that "
                "message's store time until the clock has run evenly for %d ms",
                ahead_ms,
                CONFIRM_MS,
            )
        return self.last_ms

    def stored(self, physical_offset: int, time_ms: int) -> None:
        """Registers that records from `physical_offset` on have this timestamp of `next_ms`."""
        if time_ms < self.last_ms:
            logger.warning(
                "store times fall from %d ms to %d ms: the clock was ahead", self.last_ms, time_ms
            )
            self.falls.append(physical_offset)
            del self.falls[:-FALLS_MAX]
        self.last_ms = time_ms

    def copied(self, times_ms: NDArray[np.int64], physical_offsets: NDArray[np.int64]) -> None:
        """Registers records that another broker has stored, at least one."""
        begin, scan = int(physical_offsets[0]), TimestampScan()
        scan.resume(self.last_ms, self.falls, begin, begin)
        scan.add(times_ms, physical_offsets)
        self.last_ms, self.falls = scan.last_ms, scan.falls

    def falls_below(self, physical_end: int) -> list[int]:
        """Returns the falls below `physical_end` in the log."""
        return [offset for offset in self.falls if offset < physical_end]


class TimestampScan:
    """The falls of store timestamps and the last timestamp, in a log that is read in order."""

    def __init__(self) -> None:
        self.last_ms = 0
        self.falls: list[int] = []
        self._previous_ms: int | None = None

    def resume(self, last_ms: int, falls: Iterable[int], begin: int, end: int) -> None:
        """Starts at `begin`, with the known values of the records below `end`."""
        self.last_ms = last_ms
        self.falls = [offset for offset in falls if offset < begin]
        self._previous_ms = last_ms if begin == end else None

    def add(self, times_ms: NDArray[np.int64], physical_offsets: NDArray[np.int64]) -> None:
        """Adds the next records, at least one.

        Another broker's timestamps may fall by up to STEP_MS_MAX; such falls are ignored. After a
        fall, earlier timestamps no longer count for `last_ms`.
        """
        first = int(times_ms[0]) if self._previous_ms is None else self._previous_ms
        fell = np.flatnonzero(np.diff(times_ms, prepend=first) < -STEP_MS_MAX)
        self._previous_ms = int(times_ms[-1])
        if len(fell):
            self.falls = [*self.falls, *physical_offsets[fell[-FALLS_MAX:]].tolist()][-FALLS_MAX:]
            self.last_ms = int(times_ms[fell[-1] :].max())
        else:
            self.last_ms = max(self.last_ms, int(times_ms.max()))
