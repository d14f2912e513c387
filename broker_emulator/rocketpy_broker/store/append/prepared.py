"""Prepared records in the log of older brokers, and their commit.

Batches are now staged beside the log; this module finishes batches that were decided before. A
prepared record is in the log with its topic and queue, but has no place in its queue. Its field
preparedTransactionOffset holds the token of the attempt that wrote it. A commit writes the record
again, without the prepared bit and with the commit bit. In the new record that field holds the
physical offset of the prepared one. So the log shows which prepared records have been committed,
and a crash between two of them loses nothing. This module writes nothing.
Source: docs/design/storage.md sections 2.3, 4.1, 6.1 and 14.3.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.errors import LogOffsetError
from rocketpy_broker.store.log.commit_log import CommitLog
from rocketpy_broker.store.log.filler import fillers_of
from rocketpy_broker.store.log.scanner import Checksummed, LogScanner, LogSpan, Trust
from rocketpy_broker.store.queues.table import ConsumeQueueTable
from rocketpy_broker.store.values import Damage, QueueKey
from rocketpy_proto.record import RecordBlock
from rocketpy_proto.record.sys_flag import (
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
)

logger = logging.getLogger(__name__)
# Processed in one step, so that other work can run between steps.
PART_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class PreparedRange:
    """Adjacent prepared records of one queue: physical offset and length in bytes."""

    queue: QueueKey
    offset: int
    length: int
    record_count: int

    @property
    def end(self) -> int:
        """Physical offset after the last record."""
        return self.offset + self.length


@dataclass(frozen=True, slots=True)
class Part:
    """Records of a range, ready to be appended; None for records that are lost.

    `end` is the physical offset after the prepared ones.
    """

    block: RecordBlock | None
    end: int


class PreparedRecords:
    """Reader of the prepared records of one log."""

    def __init__(self, log: CommitLog, queues: ConsumeQueueTable) -> None:
        self._log = log
        self._queues = queues

    def committed_part(self, wanted: PreparedRange, offset: int) -> Part:
        """Returns the records of the range from `offset` on, committed, in a writable buffer.

        Returns at most PART_BYTES of them, or one record. Skips records damaged since then, and
        records of a deleted topic.
        """
        if self._is_deleted(wanted):
            return Part(None, wanted.end)
        found = self._first(offset, wanted.end, trusted_end=self._log.end)
        if not isinstance(found, LogSpan):
            end = wanted.end if found is None else min(found.offset + found.length, wanted.end)
            reason = "they are gone" if found is None else found.reason
            logger.critical("decided records at %d to %d are lost: %s", offset, end, reason)
            return Part(None, end)
        filler = next(fillers_of(found.block), None)
        if filler is not None and filler.physical_offset > offset:
            before = filler.physical_offset - wanted.offset
            return self.committed_part(replace(wanted, length=before), offset)
        if filler is not None:
            logger.critical("decided records at %d were damaged: they are lost", offset)
            return Part(None, offset + filler.size)
        block = RecordBlock.parse(bytearray(found.block.data), found.block.sizes)
        flags = block.header["sys_flag"] & ~TRANSACTION_MASK
        block.header["sys_flag"] = flags | TRANSACTION_COMMIT
        block.header["prepared_transaction_offset"] = offset + block.positions
        return Part(block, offset + len(block.data))

    def committed_from(self, begin: int) -> Iterator[NDArray[np.int64]]:
        """Yields the prepared records that committed ones replace, in log order from `begin`."""
        for item in LogScanner(self._log, self._trust(self._log.end)).scan(begin):
            if isinstance(item, LogSpan):
                header = item.block.header
                committed = header["sys_flag"] & TRANSACTION_MASK == TRANSACTION_COMMIT
                yield header["prepared_transaction_offset"][committed].astype(np.int64)

    def end_of(self, offset: int) -> int:
        """Returns the physical offset after the record, or the damage, at `offset`."""
        found = self._first(offset, offset + 1, trusted_end=self._log.end)
        if isinstance(found, LogSpan):
            return offset + int(found.block.sizes[0])
        return offset + 1 if found is None else found.offset + found.length

    def _first(self, offset: int, end: int, *, trusted_end: int) -> LogSpan | Damage | None:
        bytes_max = min(PART_BYTES, end - offset)
        scanner = LogScanner(self._log, self._trust(trusted_end), bytes_max)
        with contextlib.suppress(LogOffsetError):
            return next(scanner.scan(offset), None)
        return None

    @staticmethod
    def _trust(trusted_end: int) -> Trust:
        return Trust(trusted_end, Checksummed.ALL)

    def _is_deleted(self, wanted: PreparedRange) -> bool:
        return wanted.offset < self._queues.deleted_below(wanted.queue.topic)
