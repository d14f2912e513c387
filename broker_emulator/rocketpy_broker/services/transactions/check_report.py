"""What the log says of transactions that are looked at one by one: a line for each reason.

A client may open a hundred thousand, with names of 32 kB, and each is asked after fifteen times.
Lives in memory, for as long as a round.
"""

from __future__ import annotations

import logging
from enum import Enum

from rocketpy_broker.services.transactions.messages import HalfMessage

logger = logging.getLogger(__name__)
_GIVEN_UP = "are given up and lie in TRANS_CHECK_MAX_TIME_TOPIC, for"


class Told(Enum):
    """A reason, its level, and what a line says of the number of transactions that have it."""

    DELETED = logging.WARNING, f"{_GIVEN_UP} their topics have been deleted"
    UNANSWERED = logging.WARNING, f"{_GIVEN_UP} they were asked after without an answer"
    NO_PRODUCER = logging.WARNING, "have no producer of their group that listens to be asked"
    ENDED = logging.INFO, "had ended before the start"
    NOT_ASKED = logging.CRITICAL, "cannot be asked after"
    LOST = logging.CRITICAL, "are lost with their half messages, and over"


class TransactionLines:
    """Counts transactions by reason, and keeps the first one of each."""

    def __init__(self) -> None:
        self._counts: dict[Told, int] = {}
        self._firsts: dict[Told, str] = {}

    def note(self, reason: Told, half: HalfMessage | int, detail: object = "") -> None:
        """One more, by its half message or the queue offset of that; details of the first only."""
        if reason not in self._counts:
            self._firsts[reason] = f"{_named(half)} {detail}".rstrip()
        self._counts[reason] = self._counts.get(reason, 0) + 1

    def log(self) -> None:
        """Tell, and begin anew."""
        for reason, count in self._counts.items():
            level, words = reason.value
            first = self._firsts[reason]
            logger.log(level, "%d transactions %s; the first: %s", count, words, first)
        self._counts.clear()
        self._firsts.clear()


def _named(half: HalfMessage | int) -> str:
    if isinstance(half, int):
        return f"half message {half}"
    return (
        f"{half.transaction_id!r:.200} of producer group {half.producer_group!r:.200} and topic "
        f"{half.real_queue.topic!r:.200}"
    )
