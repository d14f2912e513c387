"""Calls that only a broker for tests serves."""

from __future__ import annotations

from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_proto.rocketpy.v1 import testing_pb2

# The broker does all work that became due before it answers.
ADVANCE_SECONDS_MAX = 300.0


def advance_clock(
    connection: BrokerConnection, advance_ms: int, seconds_max: float = ADVANCE_SECONDS_MAX
) -> testing_pb2.AdvanceClockResponse:
    """Moves the broker's clock; returns its time.

    Raises UnreachableError, CallFailedError, RefusedError.
    """
    request = testing_pb2.AdvanceClockRequest(advance_ms=advance_ms)
    answer: testing_pb2.AdvanceClockResponse = connection.ask(
        connection.testing.AdvanceClock, request, seconds_max
    )
    return answer


def forget_writers(connection: BrokerConnection) -> None:
    """Removes the broker's batch writers, staged blocks and abandoned transactions.

    Raises UnreachableError, CallFailedError, RefusedError.
    """
    request = testing_pb2.ForgetWritersRequest()
    connection.ask(connection.testing.ForgetWriters, request, ADVANCE_SECONDS_MAX)
