"""LocalBroker's clock, which tests move.

State: how far the clock is ahead, for the next start.
"""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta

from rocketpy_broker.client import test_calls
from rocketpy_broker.client.calls.base import BrokerCalls, call
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.embedded.process import LocalBrokerError
from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.time_format import EPOCH

# The limit for reading the lead of a broker that is about to end; then the earlier lead is kept.
LEAD_SECONDS_MAX = 30.0


class ClockCalls(BrokerCalls):
    """Calls that read and move the broker's clock."""

    _clock_ahead_ms = 0

    def _born_ms(self, connection: BrokerConnection) -> int:
        """Returns the broker's time, from which it counts a transaction's age."""
        return test_calls.advance_clock(connection, 0).now_ms

    def now(self) -> datetime:
        """Returns the broker's time in UTC: the machine's, plus all calls of `advance_clock`."""
        return self._moved(0)[0]

    def advance_clock(self, seconds: float | timedelta) -> datetime:
        """Moves the broker's clock forward by `seconds` and returns its new time.

        All work that became due is done on return. Delayed messages and retries are delivered.
        Open transactions are checked or given up. Expired data is removed. The clock jumps once,
        so periodic work runs once. Timeouts of calls do not change.
        """
        now, self._clock_ahead_ms = self._moved(_milliseconds(seconds))
        return now

    def _read_lead(self) -> None:
        """Reads the clock's lead, which a copy of this broker may have changed."""
        with contextlib.suppress(BrokerError):
            _, self._clock_ahead_ms = self._moved(0, LEAD_SECONDS_MAX)

    @call
    def _moved(
        self, advance_ms: int, seconds_max: float = test_calls.ADVANCE_SECONDS_MAX
    ) -> tuple[datetime, int]:
        """Returns the broker's time, and its lead over the machine's clock in ms."""
        with self._connection() as connection:
            moved = test_calls.advance_clock(connection, advance_ms, seconds_max)
            return EPOCH + timedelta(milliseconds=moved.now_ms), moved.ahead_ms


def _milliseconds(seconds: float | timedelta) -> int:
    """Returns the milliseconds, rounded up. Raises LocalBrokerError."""
    try:
        given = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
        milliseconds = -(-given // timedelta(milliseconds=1))
    except (TypeError, ValueError, OverflowError) as error:
        raise _wrong(seconds) from error
    if milliseconds < 0:
        raise _wrong(seconds)
    return milliseconds


def _wrong(seconds: object) -> LocalBrokerError:
    return LocalBrokerError(
        f"seconds is {seconds!r}, accepted is a number or a timedelta, 0 or more"
    )
