"""Backoff of a delivery that the store refuses, and its log lines.

A failed store refuses until a restart. The pauses double, so that trying costs little. A busy store
accepts more in a moment. The same words are logged once a minute. The state is in memory.
"""

from __future__ import annotations

import logging

from rocketpy_broker.errors import StoreBusyError, StoreError
from rocketpy_broker.runtime.clock import Clock

logger = logging.getLogger(__name__)
PAUSE_MS_MIN, PAUSE_MS_MAX = 100, 1_000
LOG_EVERY_MS = 60_000


class Backoff:
    """The pauses of one delivery."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._pause_ms = PAUSE_MS_MIN
        self._logged: tuple[str, float] | None = None

    def refused(self, error: StoreError) -> int:
        """Returns the pause after the store refused, in ms."""
        words, now_ms = str(error), self._clock.monotonic_ms()
        if self._logged is None or self._logged[0] != words or now_ms >= self._logged[1]:
            self._logged = words, now_ms + LOG_EVERY_MS
            logger.warning("%s wait: %s", self._name, words)
        if isinstance(error, StoreBusyError):
            return PAUSE_MS_MIN
        pause_ms, self._pause_ms = self._pause_ms, min(2 * self._pause_ms, PAUSE_MS_MAX)
        return pause_ms

    def succeeded(self) -> None:
        """Resets the pause after a delivery, or when nothing was due."""
        self._pause_ms = PAUSE_MS_MIN
