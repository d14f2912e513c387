"""A wall clock that ignores sudden jumps forward.

Readings *agree* when wall time and monotonic time advance by the same amount. A reading more than
AHEAD_MS_MAX ahead of the previous ones is accepted after readings have agreed with it for
CONFIRM_MS. Until then the clock continues from the accepted readings. A jump back is accepted at
once: the store times have their own guard against falling. A wrong reading would give its time to
all later messages, also after restarts. State is in memory only: the first reading after a start is
accepted, because there is none to compare it with.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from rocketpy_broker.runtime.clock import Clock, Timer
from rocketpy_broker.runtime.log_throttle import LogThrottle

logger = logging.getLogger(__name__)
# The largest drift between wall and monotonic time of readings that agree.
STEP_MS_MAX = 60_000
# The largest jump that counts as a correction of the clock.
AHEAD_MS_MAX = 3_600_000
# The time for which readings must agree before a larger jump is accepted.
CONFIRM_MS = 60_000


class StabilityTimer:
    """A measure of the time for which wall clock readings have agreed."""

    def __init__(self) -> None:
        # Wall time minus monotonic time of the readings that agree, and their first time.
        self.step_ms: float | None = None
        self._since_ms = 0.0

    def read(self, now_ms: float, monotonic_ms: float) -> float:
        """Returns the ms for which readings have agreed with this one; 0 for the first one."""
        step_ms = now_ms - monotonic_ms
        if self.step_ms is None or abs(step_ms - self.step_ms) > STEP_MS_MAX:
            self.step_ms, self._since_ms = step_ms, monotonic_ms
        return monotonic_ms - self._since_ms

    def forget(self) -> None:
        """Treats the next reading as the first."""
        self.step_ms = None


class GuardedClock:
    """A clock without the unconfirmed jumps forward of the clock that it wraps."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._step_ms: float | None = None
        self._ahead = StabilityTimer()
        self._log_throttle = LogThrottle(clock)

    def now_ms(self) -> int:
        """Returns the accepted wall time in milliseconds since 1970."""
        now_ms, monotonic_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        step_ms = now_ms - monotonic_ms
        accepted_ms = self._step_ms
        if accepted_ms is not None and step_ms - accepted_ms > AHEAD_MS_MAX:
            ahead_ms = step_ms - accepted_ms
            if self._ahead.read(now_ms, monotonic_ms) < CONFIRM_MS:
                self._log_ahead(now_ms, ahead_ms)
                return round(accepted_ms + monotonic_ms)
            logger.warning(
                "the broker accepts the clock reading %d ms since 1970, %d ms ahead",
                now_ms,
                ahead_ms,
            )
        self._ahead.forget()
        self._step_ms = step_ms
        return now_ms

    def _log_ahead(self, now_ms: int, ahead_ms: float) -> None:
        if self._log_throttle.may_log():
            logger.warning(
                "the clock reads %d ms since 1970, %d ms ahead of its earlier readings; the broker "
                "accepts this after %d ms. Check the machine's clock",
                now_ms,
                ahead_ms,
                CONFIRM_MS,
            )

    def monotonic_ms(self) -> float:
        """Returns the wrapped clock's monotonic time."""
        return self._clock.monotonic_ms()

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Returns a timer of the wrapped clock."""
        return self._clock.call_later(delay_ms, callback)
