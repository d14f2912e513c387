"""Which readings of the wall clock are believed, so that one that is wrong does no lasting harm.

Readings *agree* when wall time and monotonic time go on in step. A reading that is far ahead of
those before it is believed when others have agreed with it for a while; until then the time is what
the readings before it have led to. A clock that is behind is believed at once: who gives store
times sees to it that they do not fall. Memory only: the first reading after a start is believed,
for there is nothing to compare it with.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from rocketpy_broker.runtime.clock import Clock, Timer
from rocketpy_broker.runtime.log_throttle import LogThrottle

logger = logging.getLogger(__name__)
# Wall and monotonic time may drift apart by this much between readings that agree.
STEP_MS_MAX = 60_000
# Ahead by no more than this counts as a clock that was set, not as one that is wrong.
AHEAD_MS_MAX = 3_600_000
# For so long readings have to agree before they are believed.
CONFIRM_MS = 60_000


class StabilityTimer:
    """For how long the readings of a wall clock have agreed."""

    def __init__(self) -> None:
        # Wall time less monotonic time of the readings that agree, and since when.
        self.step_ms: float | None = None
        self._since_ms = 0.0

    def read(self, now_ms: float, monotonic_ms: float) -> float:
        """For how long readings have agreed with this one, in ms; 0 where it is the first."""
        step_ms = now_ms - monotonic_ms
        if self.step_ms is None or abs(step_ms - self.step_ms) > STEP_MS_MAX:
            self.step_ms, self._since_ms = step_ms, monotonic_ms
        return monotonic_ms - self._since_ms

    def forget(self) -> None:
        """Let the next reading be the first."""
        self.step_ms = None


class GuardedClock:
    """Another clock, but for readings that are far ahead and not believed yet."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._step_ms: float | None = None
        self._ahead = StabilityTimer()
        self._seldom = LogThrottle(clock)

    def now_ms(self) -> int:
        """Wall time, milliseconds since 1970, as far as it is believed."""
        now_ms, monotonic_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        step_ms = now_ms - monotonic_ms
        believed_ms = self._step_ms
        if believed_ms is not None and step_ms - believed_ms > AHEAD_MS_MAX:
            ahead_ms = step_ms - believed_ms
            if self._ahead.read(now_ms, monotonic_ms) < CONFIRM_MS:
                self._tell(now_ms, ahead_ms)
                return round(believed_ms + monotonic_ms)
            logger.warning("the clock is believed: it is %d, %d ms later", now_ms, ahead_ms)
        self._ahead.forget()
        self._step_ms = step_ms
        return now_ms

    def _tell(self, now_ms: int, ahead_ms: float) -> None:
        if self._seldom.may_say():
            logger.warning(
                "the clock says %d, %d ms ahead of its readings before; that is believed when it "
                "has said so for %d ms",
                now_ms,
                ahead_ms,
                CONFIRM_MS,
            )

    def monotonic_ms(self) -> float:
        """Returns the other clock's."""
        return self._clock.monotonic_ms()

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Returns the other clock's."""
        return self._clock.call_later(delay_ms, callback)
