"""Numbers that records of a decided batch carry, so that a start finds how far the batch came.

A record that is appended for a decision has in its field preparedTransactionOffset, which ordinary
records leave 0, the decision's tag and its own number within the decision, from 1. Records with
transaction bits have RocketMQ's own meaning there, and are let alone. Holds no state; the numbers
are flushed, torn and cut together with their records.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.store.log.commit_log import CommitLog
from rocketpy_broker.store.log.scanner import Checksummed, LogScanner, Stretch, Trust
from rocketpy_proto.record import RecordBlock
from rocketpy_proto.record.sys_flag import TRANSACTION_MASK

_NUMBER_BITS = 40
_TAG_BITS = 63 - _NUMBER_BITS


def first_number(decision: int, before: int) -> int:
    """The field of the record behind `before` others of decision number `decision`.

    Decisions that are carried out at the same time have different tags.
    """
    return (decision & ((1 << _TAG_BITS) - 1)) << _NUMBER_BITS | (before + 1)


def number(block: RecordBlock, first: int) -> None:
    """Number the records of a block from `first` on, or, with 0, mark them as ordinary."""
    header = block.header
    field = "prepared_transaction_offset"
    numbers = first + np.arange(len(block)) if first else np.zeros(len(block), np.int64)
    is_ordinary = header["sys_flag"] & TRANSACTION_MASK == 0
    header[field] = np.where(is_ordinary, numbers, header[field])


def numbers_of(decision: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of these fields the decision's own, as numbers within it."""
    is_own = numbers >> _NUMBER_BITS == first_number(decision, 0) >> _NUMBER_BITS
    own: NDArray[np.int64] = numbers[is_own] & ((1 << _NUMBER_BITS) - 1)
    return own


class NumberedRecords:
    """Looks into one log."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log

    def numbers_from(self, begin: int) -> Iterator[NDArray[np.int64]]:
        """The numbers of records from physical offset `begin` on, in the order of the log."""
        trust = Trust(self._log.end, 0, Checksummed.ALL)
        for item in LogScanner(self._log, trust).scan(begin):
            if isinstance(item, Stretch):
                header = item.block.header
                is_ordinary = header["sys_flag"] & TRANSACTION_MASK == 0
                numbers = header["prepared_transaction_offset"][is_ordinary].astype(np.int64)
                yield numbers[numbers != 0]
