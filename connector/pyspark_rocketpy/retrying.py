"""Trying again: which faults pass, how often they are met in a row, how long to wait between.

Holds no state but the count of failures of one call or stream; the waits go by `clock`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pyspark_rocketpy import clock
from pyspark_rocketpy.client import BrokerClient, ClientConfig, client_for, forget_client
from pyspark_rocketpy.errors import BrokerBusyError, ConnectionFailedError

BACKOFF_MS_MAX = 5_000
# Doublings after which any wait is as long as it gets.
_DOUBLINGS_MAX = 13

T = TypeVar("T")
PassingError = ConnectionFailedError | BrokerBusyError
PASSING_ERRORS = (ConnectionFailedError, BrokerBusyError)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How patient to be; a plain value that travels to the executors."""

    times_max: int
    backoff_ms: int


class Retries:
    """The failures in a row of one call or stream."""

    def __init__(self, client: ClientConfig, policy: RetryPolicy) -> None:
        self._client = client
        self._policy = policy
        self._failures = 0

    def pause(self, error: PassingError) -> None:
        """Wait before the next try. Raises `error` where there have been too many, or none helps.

        After a broken connection the next client asks all endpoints again.
        """
        if isinstance(error, ConnectionFailedError):
            forget_client(self._client)
            if error.is_lasting:
                raise error
        if self._failures == self._policy.times_max:
            raise error
        wait_ms = self._policy.backoff_ms << min(self._failures, _DOUBLINGS_MAX)
        self._failures += 1
        clock.sleep_ms(min(wait_ms, BACKOFF_MS_MAX))

    def succeeded(self) -> None:
        """Begin to count anew."""
        self._failures = 0


def retried(client: ClientConfig, policy: RetryPolicy, call: Callable[[BrokerClient], T]) -> T:
    """What `call` returns, which must be harmless to repeat.

    Raises ConnectionFailedError, BrokerError.
    """
    retries = Retries(client, policy)
    while True:
        try:
            return call(client_for(client))
        except PASSING_ERRORS as error:
            retries.pause(error)
