"""The servicer of rocketpy.v1.Testing, only in brokers for tests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc

from rocketpy_broker.errors import BrokerError, ParameterIllegalError
from rocketpy_broker.runtime.movable_clock import MovableClock
from rocketpy_broker.server.rocketpy_v1 import status
from rocketpy_broker.server.rocketpy_v1.handlers import all_bounded
from rocketpy_broker.services.admin.topic_admin_service import TopicAdminService
from rocketpy_broker.services.batches.wiring import Batches
from rocketpy_proto.rocketpy.v1 import testing_pb2

SERVICE_NAME = testing_pb2.DESCRIPTOR.services_by_name["Testing"].full_name
# A year is enough for any expiry, and times stay in the calendar.
ADVANCE_MS_MAX = 366 * 86_400_000


@dataclass(frozen=True, slots=True)
class TestingServices:
    """The services that the testing servicer calls.

    `flushed` waits until all stored messages can be read.
    """

    clock: MovableClock
    flushed: Callable[[], Awaitable[None]]
    admin: TopicAdminService
    batches: Batches
    request_bytes_max: int


class TestingServicer:
    """The methods for the broker's clock and for state that tests leave in a broker."""

    def __init__(self, services: TestingServices) -> None:
        self._to = services

    async def advance_clock(
        self, request: testing_pb2.AdvanceClockRequest, _context: status.Context
    ) -> testing_pb2.AdvanceClockResponse:
        """Moves the clock and waits until all due work is done."""
        clock, delta_ms = self._to.clock, request.advance_ms
        if not 0 <= delta_ms <= ADVANCE_MS_MAX:
            error = ParameterIllegalError("advance_ms", delta_ms, f"0 to {ADVANCE_MS_MAX}")
            return testing_pb2.AdvanceClockResponse(status=status.failure(error))
        if delta_ms:
            await clock.advance(delta_ms)
            try:
                await self._to.flushed()
            except BrokerError as error:
                return testing_pb2.AdvanceClockResponse(status=status.failure(error))
        return testing_pb2.AdvanceClockResponse(
            status=status.success(), now_ms=clock.now_ms(), ahead_ms=clock.ahead_ms
        )

    async def forget_writers(
        self, _request: testing_pb2.ForgetWritersRequest, _context: status.Context
    ) -> testing_pb2.ForgetWritersResponse:
        """Removes writers, staged blocks and half messages of abandoned transactions.

        No other call can remove them all.
        """
        try:
            await self._to.batches.commits.forget_writers()
            await self._to.batches.saver.save()
            await self._to.admin.remove_given_up()
        except BrokerError as error:
            return testing_pb2.ForgetWritersResponse(status=status.failure(error))
        return testing_pb2.ForgetWritersResponse(status=status.success())

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """Returns the handlers by method name."""
        methods: dict[str, Callable[..., Any]] = {
            "AdvanceClock": self.advance_clock,
            "ForgetWriters": self.forget_writers,
        }
        return all_bounded(testing_pb2, methods, self._to.request_bytes_max)
