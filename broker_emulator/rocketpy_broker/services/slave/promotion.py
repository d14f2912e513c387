"""The promotion of a slave whose master is gone.

An operator decides it: no broker can know whether the other one is dead or only out of reach. The
promotion is on disk before it is answered; the broker then starts again in its process, as a
master. Messages that the old master had beyond this log are not here; the old master names them
when it comes back as a slave, and `rocketpy store align` keeps them aside.
"""

from __future__ import annotations

import asyncio
import logging

from rocketpy_broker.config import BrokerRole
from rocketpy_broker.errors import BrokerError, ParameterIllegalError
from rocketpy_broker.runtime.clock import Clock, resolve
from rocketpy_broker.services.slave.state import SlaveState
from rocketpy_broker.store.files.promotion import Promotion, PromotionFile
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import admin_pb2

logger = logging.getLogger(__name__)


class PromotionRefusedError(BrokerError):
    """A broker that cannot become a master now; nothing has changed."""

    code = ResponseCode.INVALID_PARAMETER


class PromotionService:
    """The promotion of one broker; `done` ends when the broker is to start as a master."""

    def __init__(self, store: MessageStore, state: SlaveState | None, clock: Clock) -> None:
        self._store = store
        self._state = state
        self._clock = clock
        self.file = PromotionFile(store.config.folder)
        self.done: asyncio.Future[None] | None = None

    async def promote(self, request: admin_pb2.PromoteRequest) -> admin_pb2.PromoteResponse:
        """Makes a slave a master. Raises PromotionRefusedError, StoreDirectoryError, OSError."""
        state = self._state
        if state is None or self.done is None or self.done.done():
            raise PromotionRefusedError("the broker is a master already")
        if state.is_connected and not request.force:
            raise PromotionRefusedError(
                f"master {state.master} serves this slave. Two masters would take different "
                "messages: stop the master first, or promote with --force"
            )
        role = _master_role(request.broker_role)
        log_end = self._store.positions().log_end
        lag_bytes = state.lag_bytes(log_end)
        epoch = self.file.epoch + 1
        # Clients that have read beyond this log learn that other messages follow.
        self._store.recoveries.promoted(log_end)
        self.file.save(Promotion(role.value, epoch, log_end, self._clock.now_ms()))
        logger.warning(
            "the slave becomes %s: epoch %d, its log ends at %d, and its master's was %d "
            "bytes longer when it was last heard of",
            *(role.value, epoch, log_end, lag_bytes),
        )
        resolve(self.done)
        return admin_pb2.PromoteResponse(
            epoch=epoch, log_end_offset=log_end, missing_bytes=lag_bytes
        )


def _master_role(name: str) -> BrokerRole:
    """Returns the role of a promoted broker. Raises ParameterIllegalError."""
    masters = {each.value: each for each in BrokerRole if each is not BrokerRole.SLAVE}
    role = masters.get(name or BrokerRole.ASYNC_MASTER.value)
    if role is None:
        raise ParameterIllegalError("broker_role", name[:100], " or ".join(masters))
    return role
