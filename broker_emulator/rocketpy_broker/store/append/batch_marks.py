"""Marks of origin in records that the broker appended by itself.

The mark is in the field preparedTransactionOffset, which is 0 in ordinary records. A record of a
decided batch has the decision's tag there, and its number within the decision, from 1. A delivered
delayed message has the complement of the waiting record's physical offset there, a negative number.
So a start finds the progress of each batch and the delayed messages already delivered. Records with
transaction bits keep RocketMQ's own meaning of the field. The numbers are flushed, torn and cut
together with their records.
Source: docs/design/storage.md sections 2.3 and 14.3.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.store.log.commit_log import CommitLog
from rocketpy_broker.store.log.scanner import Checksummed, LogScanner, LogSpan, Trust
from rocketpy_broker.store.queues.dispatch import KEEP_NUMBERS
from rocketpy_proto.record import RecordBlock
from rocketpy_proto.record.sys_flag import TRANSACTION_COMMIT, TRANSACTION_MASK, has_transactions

_NUMBER_BITS = 40
_TAG_BITS = 63 - _NUMBER_BITS


def first_number(decision: int, before: int) -> int:
    """Returns the mark of the record that follows `before` records of decision number `decision`.

    Decisions that are carried out at the same time have different tags.
    """
    return (decision & ((1 << _TAG_BITS) - 1)) << _NUMBER_BITS | (before + 1)


def number(block: RecordBlock, first: int) -> None:
    """Numbers the records of a block from `first` on; 0 marks them as ordinary.

    With KEEP_NUMBERS the field already has the place of the record's origin and is kept.
    """
    if first == KEEP_NUMBERS:
        return
    field = block.header["prepared_transaction_offset"]
    numbers = first + np.arange(len(block)) if first else 0
    sys_flags = block.header["sys_flag"]
    if has_transactions(sys_flags):
        field[:] = np.where(sys_flags & TRANSACTION_MASK == 0, numbers, field)
    else:
        field[:] = numbers


def numbers_of(decision: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the marks among `numbers` that belong to a decision, as numbers within it."""
    is_own = numbers >> _NUMBER_BITS == first_number(decision, 0) >> _NUMBER_BITS
    own: NDArray[np.int64] = numbers[is_own] & ((1 << _NUMBER_BITS) - 1)
    return own


def origin_fields(physical_offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the marks of records made from the records at `physical_offsets`."""
    return ~physical_offsets


def origins_of(block: RecordBlock) -> NDArray[np.int64]:
    """Returns the physical offset of each record's origin; below 0 for a record without one."""
    return ~block.header["prepared_transaction_offset"].astype(np.int64)


class BatchMarks:
    """Reader of the marks in one log."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log

    def numbers_from(self, begin: int) -> Iterator[NDArray[np.int64]]:
        """Yields the numbers of records from physical offset `begin` on, in log order."""
        for fields in self._fields_from(begin, 0):
            yield fields[fields > 0]

    def origins_from(self, begin: int) -> Iterator[NDArray[np.int64]]:
        """Yields the origins of delivered records from `begin` on, as physical offsets.

        One array, often an empty one, for each log span. Raises LogOffsetError.
        """
        for fields in self._fields_from(begin, 0):
            yield ~fields[fields < 0]

    def halves_from(self, begin: int) -> Iterator[NDArray[np.int64]]:
        """Yields the physical offsets of the half messages of committed records from `begin` on."""
        return self._fields_from(begin, TRANSACTION_COMMIT)

    def _fields_from(self, begin: int, transaction: int) -> Iterator[NDArray[np.int64]]:
        """Yields the field of the records with these transaction bits."""
        trust = Trust(self._log.end, Checksummed.ALL)
        for item in LogScanner(self._log, trust).scan(begin):
            if isinstance(item, LogSpan):
                header = item.block.header
                wanted = header["sys_flag"] & TRANSACTION_MASK == transaction
                yield header["prepared_transaction_offset"][wanted].astype(np.int64)
