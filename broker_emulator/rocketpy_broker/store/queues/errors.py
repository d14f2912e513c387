"""Errors of queues that cannot be written or read; see the tree in `rocketpy_broker.errors`."""

from __future__ import annotations

from rocketpy_broker.errors import StoreClosedError, StoreError


class QueueGrowthError(StoreClosedError):
    """A queue has no room for its units: its own messages are refused."""


class StoreReadError(StoreError):
    """The disk does not give what lies on it."""

    def __init__(self, path: str, error: OSError) -> None:
        super().__init__(f"{path} cannot be read ({error.strerror}); see to the broker's disk")
