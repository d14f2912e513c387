"""Calls that only a broker for tests serves."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.runtime.time_format import EPOCH
from rocketpy_proto.rocketpy.v1 import testing_pb2

# The broker does all work that became due before it answers.
ADVANCE_SECONDS_MAX = 300.0


@dataclass(frozen=True, slots=True)
class BrokerTime:
    """The broker's time, and its lead over the machine's clock."""

    now: datetime
    ahead_ms: int


def advance_clock(connection: BrokerConnection, advance_ms: int) -> BrokerTime:
    """Moves the broker's clock. Raises UnreachableError, RefusedError."""
    request = testing_pb2.AdvanceClockRequest(advance_ms=advance_ms)
    response: testing_pb2.AdvanceClockResponse = connection.ask(
        lambda: connection.testing.AdvanceClock(request, timeout=ADVANCE_SECONDS_MAX)
    )
    return BrokerTime(EPOCH + timedelta(milliseconds=response.now_ms), response.ahead_ms)


def forget_writers(connection: BrokerConnection) -> None:
    """Removes the state of batch writers and transactions that were given up.

    Raises UnreachableError, RefusedError.
    """
    request = testing_pb2.ForgetWritersRequest()
    connection.ask(lambda: connection.testing.ForgetWriters(request, timeout=ADVANCE_SECONDS_MAX))
