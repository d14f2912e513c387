"""Time limit for a broker that is away, busy or lags.

State is its start. Source: docs/design/cluster.md sections 2.4 and 2.5.
"""

from __future__ import annotations

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import BrokerError, ConnectionFailedError
from pyspark_rocketpy.transport.retries import backoff_ms

ABSENCE_OPTION = "brokerAbsenceTimeout"


class Outage:
    """Failures in a row of one pull; their time limit starts with the first."""

    def __init__(self, timeout_ms: int, backoff_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._backoff_ms = backoff_ms
        self._since_ms: int | None = None
        self._failures = 0

    def pause(self, place: str, error: ConnectionFailedError | BrokerError) -> None:
        """Waits before the next try.

        Raises `error` if no retry helps; ConnectionFailedError after the time limit.
        """
        if isinstance(error, ConnectionFailedError) and error.is_lasting:
            raise error
        now_ms = clock.monotonic_ms()
        if self._since_ms is None:
            self._since_ms = now_ms
        left_ms = self._since_ms + self._timeout_ms - now_ms
        if left_ms <= 0:
            raise ConnectionFailedError(
                f"{place} could not be read for {now_ms - self._since_ms} ms, longer than option "
                f"{ABSENCE_OPTION} allows ({self._timeout_ms} ms); the last problem: {error}"
            ) from error
        wait_ms = backoff_ms(self._backoff_ms, self._failures)
        self._failures += 1
        clock.sleep_ms(min(wait_ms, left_ms))

    def is_over(self) -> None:
        """Resets the failures: the broker is back."""
        self._since_ms = None
        self._failures = 0
