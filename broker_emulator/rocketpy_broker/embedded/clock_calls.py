"""LocalBroker's clock, which a test moves. State: how far it is ahead, for the next start."""

from __future__ import annotations

from datetime import datetime, timedelta

from rocketpy_broker.client import test_calls
from rocketpy_broker.client.test_calls import BrokerTime
from rocketpy_broker.embedded.calls import BrokerCalls, call
from rocketpy_broker.embedded.process import LocalBrokerError


class ClockCalls(BrokerCalls):
    """Moves the broker's clock."""

    _clock_ahead_ms = 0

    def now(self) -> datetime:
        """Returns the broker's time: the machine's, and what `advance_clock` has added; UTC."""
        return self._moved(0).now

    def advance_clock(self, seconds: float | timedelta) -> datetime:
        """Moves the broker's clock forward by so many seconds; return its time.

        What became due meanwhile has been done on return: delayed messages and retries are
        delivered, open transactions are asked after or given up, and what expired is gone. It is
        one jump, so what repeats at intervals comes once. Time-outs of calls stay as they are.
        """
        moved = self._moved(_milliseconds(seconds))
        self._clock_ahead_ms = moved.ahead_ms
        return moved.now

    @call
    def _moved(self, advance_ms: int) -> BrokerTime:
        with self._connection() as connection:
            return test_calls.advance_clock(connection, advance_ms)


def _milliseconds(seconds: float | timedelta) -> int:
    """Rounded up. Raises LocalBrokerError."""
    try:
        given = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
    except (TypeError, ValueError, OverflowError) as error:
        raise _wrong(seconds) from error
    if given < timedelta(0):
        raise _wrong(seconds)
    return -(-given // timedelta(milliseconds=1))


def _wrong(seconds: object) -> LocalBrokerError:
    return LocalBrokerError(
        f"seconds is {seconds!r}, accepted is a number or a timedelta, 0 or more"
    )
