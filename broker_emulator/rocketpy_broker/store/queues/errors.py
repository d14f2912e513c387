"""Errors of queues that cannot be written or read.

See the tree in `rocketpy_broker.errors`.
"""

from __future__ import annotations

from rocketpy_broker.errors import StoreClosedError, StoreError


class QueueGrowthError(StoreClosedError):
    """A queue that cannot allocate space for its units; other queues accept messages."""


class StoreReadError(StoreError):
    """A failed read from the disk."""

    def __init__(self, path: str, error: OSError) -> None:
        super().__init__(f"{path} cannot be read ({error.strerror}); check the broker's disk")
