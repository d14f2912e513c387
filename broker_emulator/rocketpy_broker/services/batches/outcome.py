"""The outcome of a batch, for its job."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rocketpy_broker.services.batches.ledger import NO_BATCH


class Outcome(Enum):
    """The outcome of a batch for one job."""

    COMMITTED = 1
    ALREADY_COMMITTED = 2
    IN_PROGRESS = 3
    INCOMPLETE = 4
    NOT_COMMITTED = 5


@dataclass(frozen=True, slots=True)
class BatchState:
    """The outcome, and the writer's last decided batch; -1 if the writer has none.

    `hindrance` is the reason for a delay. For an incomplete batch it names the writer and counts
    the missing messages.
    """

    outcome: Outcome
    batch_id: int = NO_BATCH
    record_count: int = 0
    record_count_decided: int = 0
    hindrance: str = ""
