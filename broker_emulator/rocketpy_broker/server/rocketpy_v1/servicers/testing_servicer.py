"""The servicer of rocketpy.v1.Testing, only in brokers for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.runtime.movable_clock import MovableClock
from rocketpy_broker.server.rocketpy_v1.handlers import all_bounded
from rocketpy_broker.services.admin.topic_admin_service import TopicAdminService
from rocketpy_broker.services.batches.wiring import Batches
from rocketpy_broker.services.flush.group_commit import GroupCommit
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_proto.rocketpy.v1 import testing_pb2

# A year is enough for any expiry, and times stay in the calendar.
ADVANCE_MS_MAX = 366 * 86_400_000


class TestingServicer:
    """The methods for the broker's clock and for state that tests leave in a broker."""

    def __init__(
        self,
        clock: MovableClock,
        store: MessageStore,
        group_commit: GroupCommit,
        admin: TopicAdminService,
        batches: Batches,
    ) -> None:
        self._clock = clock
        self._store = store
        self._group_commit = group_commit
        self._admin = admin
        self._batches = batches

    async def advance_clock(
        self, request: testing_pb2.AdvanceClockRequest
    ) -> testing_pb2.AdvanceClockResponse:
        """Moves the clock and waits until all due work is done."""
        clock, delta_ms = self._clock, request.advance_ms
        if not 0 <= delta_ms <= ADVANCE_MS_MAX:
            raise ParameterIllegalError("advance_ms", delta_ms, f"0 to {ADVANCE_MS_MAX}")
        if delta_ms:
            await clock.advance(delta_ms)
            # All stored messages can then be read.
            await self._group_commit.wait(self._store.positions().log_end)
        return testing_pb2.AdvanceClockResponse(now_ms=clock.now_ms(), ahead_ms=clock.ahead_ms)

    async def forget_writers(self, _request: testing_pb2.ForgetWritersRequest) -> None:
        """Removes batch writers, staged blocks and half messages of abandoned transactions.

        No other call can remove them all.
        """
        await self._batches.commits.forget_writers()
        await self._batches.saver.save()
        await self._admin.remove_given_up()

    def handlers(self, bytes_max: int) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """Returns the handlers by method name."""
        methods: dict[str, Callable[..., Any]] = {
            "AdvanceClock": self.advance_clock,
            "ForgetWriters": self.forget_writers,
        }
        return all_bounded(testing_pb2, methods, bytes_max)
