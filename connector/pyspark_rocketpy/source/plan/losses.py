"""Messages lost before a query has read them.

A loss raises an error, or is counted and skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark_rocketpy.errors import DataLossError, loss_advice
from pyspark_rocketpy.offsets import BrokerQueue
from rocketpy_proto.counts import counted

logger = logging.getLogger(__name__)
# Losses of one batch with a log line of their own; a topic may have 65,536 queues.
LINES_MAX = 20


@dataclass(frozen=True, slots=True)
class Loss:
    """Messages [begin, end) of one queue, as far as known, and their fate."""

    topic: str
    queue: BrokerQueue
    begin: int
    end: int
    what: str
    going_on: str = "skipped"

    @property
    def count(self) -> int:
        """The number of messages that are known to be lost."""
        return max(0, self.end - self.begin)

    def __str__(self) -> str:
        known = f"[{self.begin}, {self.end})" if self.count else f"from {self.begin} on"
        return f"offsets {known} of {self.queue} of topic {self.topic!r} {self.what}"


def refuse(losses: Sequence[Loss], advice: str = "") -> None:
    """Raises DataLossError for the first loss."""
    if losses:
        others = f" (and of {counted(len(losses) - 1, 'more queue')})" if len(losses) > 1 else ""
        raise DataLossError(f"{losses[0]}{others}{advice}")


def raise_or_log(losses: Sequence[Loss], *, fail_on_data_loss: bool) -> None:
    """Logs the losses with their counts, or raises DataLossError for the first."""
    if fail_on_data_loss:
        refuse(losses, f"; {loss_advice()}")
    for loss in losses[:LINES_MAX]:
        known = "an unknown number of messages is"
        if loss.count:
            known = counted(loss.count, "message is", "messages are")
        logger.warning("%s; %s %s", loss, known, loss.going_on)
    if others := losses[LINES_MAX:]:
        count = sum(loss.count for loss in others)
        logger.warning(
            "%s such losses, with %s",
            counted(len(others), "more queue has", "more queues have"),
            counted(count, "known message"),
        )
