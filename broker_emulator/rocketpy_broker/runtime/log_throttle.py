"""A throttle for repeated log lines."""

from __future__ import annotations

from rocketpy_broker.runtime.clock import Clock

INTERVAL_MS = 60_000


class LogThrottle:
    """A permit for one log line in INTERVAL_MS."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next_ms = -float("inf")

    def may_log(self) -> bool:
        """True if INTERVAL_MS have passed since the last True."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_ms:
            return False
        self._next_ms = now_ms + INTERVAL_MS
        return True
