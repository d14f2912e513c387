"""Log lines about checked transactions: one for each reason.

A client may open a hundred thousand transactions with names of 32 kB. Each is checked fifteen
times, so a line for each would fill the log. The state is in memory and lasts for one round.
"""

from __future__ import annotations

import logging
from enum import Enum

from rocketpy_broker.services.transactions.messages import HalfMessage
from rocketpy_proto.counts import counted

logger = logging.getLogger(__name__)
_GIVEN_UP = "given up and moved to TRANS_CHECK_MAX_TIME_TOPIC, as"


class CheckReason(Enum):
    """A reason: its log level, and the words after the number of its transactions."""

    DELETED = logging.WARNING, f"{_GIVEN_UP} the topic has been deleted"
    UNANSWERED = logging.WARNING, f"{_GIVEN_UP} no producer answered the checks"
    NO_PRODUCER = logging.WARNING, "no producer of the group listens for checks"
    ENDED = logging.INFO, "ended before the start"
    NOT_ASKED = logging.CRITICAL, "cannot be checked"
    LOST = logging.CRITICAL, "ended, because the half message cannot be read any more"


class TransactionLines:
    """A count of transactions by reason, with the first one of each."""

    def __init__(self) -> None:
        self._counts: dict[CheckReason, int] = {}
        self._firsts: dict[CheckReason, str] = {}

    def note(self, reason: CheckReason, half: HalfMessage | int, detail: object = "") -> None:
        """Counts a transaction for `reason`; keeps the name and `detail` of the first one."""
        if reason not in self._counts:
            self._firsts[reason] = f"{_named(half)} {detail}".rstrip()
        self._counts[reason] = self._counts.get(reason, 0) + 1

    def log(self) -> None:
        """Logs a line for each reason and resets the counts."""
        for reason, count in self._counts.items():
            level, words = reason.value
            first = self._firsts[reason]
            logger.log(level, "%s: %s; the first: %s", counted(count, "transaction"), words, first)
        self._counts.clear()
        self._firsts.clear()


def _named(half: HalfMessage | int) -> str:
    if isinstance(half, int):
        return f"half message {half}"
    return (
        f"{half.transaction_id!r:.200} of producer group {half.producer_group!r:.200} and topic "
        f"{half.real_queue.topic!r:.200}"
    )
