"""Retries of passing errors, limited by number or time.

State is the count of failures of one call or stream. The waits use `clock`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import BrokerBusyError, BrokerError, ConnectionFailedError
from pyspark_rocketpy.transport.values import RetryPolicy

T = TypeVar("T")
BACKOFF_MS_MAX = 5_000
# Doublings after which any wait has reached its limit.
_DOUBLINGS_MAX = 13
OUTAGE_OPTION = "brokerUnavailableTimeout"

RetriableError = ConnectionFailedError | BrokerBusyError
RETRIABLE_ERRORS = (ConnectionFailedError, BrokerBusyError)


def backoff_ms(first_ms: int, failures: int) -> int:
    """Returns the wait after `failures` failures in a row: it doubles, up to a limit."""
    return min(first_ms << min(failures, _DOUBLINGS_MAX), BACKOFF_MS_MAX)


def _ignore() -> None:
    """Keeps the connection, which is shared."""


class Retries:
    """Failures in a row of one call or stream; `disconnect` drops a broken connection."""

    def __init__(self, policy: RetryPolicy, disconnect: Callable[[], None] = _ignore) -> None:
        self._policy = policy
        self._disconnect = disconnect
        self._failures = 0

    def pause(self, error: BrokerError | ConnectionFailedError) -> None:
        """Waits before the next try. Raises `error` after too many failures, or if no retry helps.

        The next try after a broken connection asks all endpoints again.
        """
        clock.sleep_ms(self.wait_ms(error))

    def wait_ms(self, error: BrokerError | ConnectionFailedError) -> int:
        """Returns the wait of `pause` without waiting; raises as `pause`."""
        if isinstance(error, ConnectionFailedError):
            self._disconnect()
            if error.is_lasting:
                raise error
        if self._failures == self._policy.times_max:
            raise error
        wait_ms = backoff_ms(self._policy.backoff_ms, self._failures)
        self._failures += 1
        return wait_ms

    def succeeded(self) -> None:
        """Resets the count of failures."""
        self._failures = 0


class Outage(Retries):
    """Failures in a row of a pull from a broker that is away, busy or lags.

    Their time limit starts with the first. `place` returns the unread offsets, for the error.
    """

    def __init__(self, timeout_ms: int, backoff_ms: int, place: Callable[[], str]) -> None:
        super().__init__(RetryPolicy(sys.maxsize, backoff_ms))
        self._timeout_ms = timeout_ms
        self._place = place
        self._since_ms = 0

    def wait_ms(self, error: BrokerError | ConnectionFailedError) -> int:
        """Returns the wait until the next try.

        Raises `error` if no retry helps; ConnectionFailedError after the time limit.
        """
        now_ms = clock.monotonic_ms()
        if not self._failures:
            self._since_ms = now_ms
        wait_ms = super().wait_ms(error)
        left_ms = self._since_ms + self._timeout_ms - now_ms
        if left_ms <= 0:
            raise ConnectionFailedError(
                f"{self._place()} could not be read for {now_ms - self._since_ms} ms, limit "
                f"{self._timeout_ms} ms (option {OUTAGE_OPTION}); the last problem: {error}"
            ) from error
        return min(wait_ms, left_ms)


def retried(
    policy: RetryPolicy,
    call: Callable[[], T],
    retriable: tuple[type[RetriableError], ...] = RETRIABLE_ERRORS,
    disconnect: Callable[[], None] = _ignore,
) -> T:
    """Returns the result of `call`, which must be harmless to repeat.

    Raises other errors, and the last retriable one after the retries.
    """
    retries = Retries(policy, disconnect)
    while True:
        try:
            return call()
        except retriable as error:
            retries.pause(error)
