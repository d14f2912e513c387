"""Errors of stored messages that slaves have not confirmed."""

from __future__ import annotations

from rocketpy_broker.errors import UnconfirmedError
from rocketpy_proto.counts import counted
from rocketpy_proto.model.codes import ResponseCode


class SlaveTimeoutError(UnconfirmedError):
    """Too few slaves have confirmed the block in time."""

    code = ResponseCode.FLUSH_SLAVE_TIMEOUT

    def __init__(self, slave_count: int, timeout_ms: int) -> None:
        slaves = counted(slave_count, "slave")
        super().__init__(f"stored, but not confirmed by {slaves} within {timeout_ms} ms")


class SlaveNotAvailableError(UnconfirmedError):
    """No slave is connected, or near enough to the log's end, to confirm a block in time."""

    code = ResponseCode.SLAVE_NOT_AVAILABLE

    def __init__(self, lag_bytes: int | None, lag_bytes_max: int) -> None:
        reason = "no slave is connected"
        if lag_bytes is not None:
            reason = f"the nearest slave lacks {lag_bytes} bytes of the log, limit {lag_bytes_max}"
        super().__init__(f"stored, but not confirmed by a slave: {reason}")
