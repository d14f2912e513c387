"""Lines of a log that have a reason again and again. Lives in memory."""

from __future__ import annotations

from rocketpy_broker.runtime.clock import Clock

INTERVAL_MS = 60_000


class LogThrottle:
    """Lets a line into the log once a minute, however often there is a reason for it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next_ms = -float("inf")

    def may_say(self) -> bool:
        """True if a minute has gone by since this was last true."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_ms:
            return False
        self._next_ms = now_ms + INTERVAL_MS
        return True
