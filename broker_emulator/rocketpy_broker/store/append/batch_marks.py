"""What records that the broker appended by itself say of where they come from.

It lies in their field preparedTransactionOffset, which ordinary records leave 0. A record of a
decided batch has the decision's tag there, and its own number within the decision, from 1. A
message that was delivered after its delay has there, as a negative number, the physical offset of
the record that waited. So a start finds how far a batch came, and what has been delivered. Records
with transaction bits have RocketMQ's own meaning there, and are let alone. Holds no state; the
numbers are flushed, torn and cut together with their records.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.store.log.commit_log import CommitLog
from rocketpy_broker.store.log.scanner import Checksummed, LogScanner, LogSpan, Trust
from rocketpy_broker.store.queues.dispatch import KEEP_NUMBERS
from rocketpy_proto.record import RecordBlock
from rocketpy_proto.record.sys_flag import TRANSACTION_MASK, has_transactions

_NUMBER_BITS = 40
_TAG_BITS = 63 - _NUMBER_BITS


def first_number(decision: int, before: int) -> int:
    """Returns the field of the record behind `before` others of decision number `decision`.

    Decisions that are carried out at the same time have different tags.
    """
    return (decision & ((1 << _TAG_BITS) - 1)) << _NUMBER_BITS | (before + 1)


def number(block: RecordBlock, first: int) -> None:
    """Number the records of a block from `first` on, or, with 0, mark them as ordinary.

    With KEEP_NUMBERS their field says already where that lies which they were made from.
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
    """Of these fields the decision's own, as numbers within it."""
    is_own = numbers >> _NUMBER_BITS == first_number(decision, 0) >> _NUMBER_BITS
    own: NDArray[np.int64] = numbers[is_own] & ((1 << _NUMBER_BITS) - 1)
    return own


def origin_fields(physical_offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the field of records that were made from those at `physical_offsets`."""
    return ~physical_offsets


def origins_of(block: RecordBlock) -> NDArray[np.int64]:
    """Returns the physical offsets of what records were made from; below 0 for others."""
    return ~block.header["prepared_transaction_offset"].astype(np.int64)


class BatchMarks:
    """Looks into one log."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log

    def numbers_from(self, begin: int) -> Iterator[NDArray[np.int64]]:
        """Yields the numbers of records from physical offset `begin` on, in the order of the log."""
        for fields in self._fields_from(begin):
            yield fields[fields > 0]

    def origins_from(self, begin: int) -> Iterator[NDArray[np.int64]]:
        """Where those records lay that delivered ones from `begin` on were made from.

        One array, often an empty one, for each stretch of the log. Raises LogOffsetError.
        """
        for fields in self._fields_from(begin):
            yield ~fields[fields < 0]

    def _fields_from(self, begin: int) -> Iterator[NDArray[np.int64]]:
        trust = Trust(self._log.end, Checksummed.ALL)
        for item in LogScanner(self._log, trust).scan(begin):
            if isinstance(item, LogSpan):
                header = item.block.header
                is_ordinary = header["sys_flag"] & TRANSACTION_MASK == 0
                yield header["prepared_transaction_offset"][is_ordinary].astype(np.int64)
