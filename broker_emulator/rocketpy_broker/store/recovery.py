"""Recovery: where the commit log ends, and which of its records the queues do not know yet.

Three passes, each of which may be interrupted and run again:

1. The scan reads records from a start segment on, checks each one's form and body CRC, and ends
   at the first that is not whole.
2. While scanning, every record that a queue lacks is dispatched to it.
3. The cut drops what lies behind the end: of the log (zeroed, so that it can never pass for
   records later) and of the queues.

After a clean stop the scan begins at the last segment that the queues know of; after a crash at
the first segment, for then nothing derived is trusted to be complete.
Source: spec/storage.md sections 2.6 and 10.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.store.commit_log import CommitLog
from rocketpy_broker.store.consume_queue_table import ConsumeQueueTable
from rocketpy_broker.store.dispatch import requests_of
from rocketpy_broker.store.segment import Segment
from rocketpy_proto.record import (
    END_OF_SEGMENT_MAGIC,
    RECORD_MAGICS,
    MalformedRecordError,
    RecordBlock,
)

SIZE_AND_MAGIC = struct.Struct(">iI")
SCAN_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """What was found. Positions and lengths in bytes."""

    abnormal: bool
    begin: int
    end: int
    records_scanned: int
    units_dispatched: int
    bytes_dropped: int


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Whole records that lie together, and whether the segment goes on behind them."""

    block: RecordBlock
    length: int
    goes_on: bool


class Recovery:
    """One run over a loaded log and its loaded queues."""

    def __init__(self, log: CommitLog, queues: ConsumeQueueTable, *, abnormal: bool) -> None:
        self._log = log
        self._queues = queues
        self._abnormal = abnormal
        self._records_scanned = 0
        self._units_dispatched = 0

    def run(self) -> RecoveryResult:
        """Bring log and queues into agreement. Raises OSError; may then be run again."""
        begin = self._begin()
        end = begin
        for segment in self._log.files.segments:
            if segment.base >= begin:
                end = self._scan_segment(segment)
                if end < segment.end:
                    break
        bytes_dropped = self._log.truncate(end)
        self._queues.truncate(end)
        return RecoveryResult(
            self._abnormal,
            begin,
            end,
            self._records_scanned,
            self._units_dispatched,
            bytes_dropped,
        )

    def _begin(self) -> int:
        if self._abnormal:
            return self._log.begin
        known = [part.base for part in self._log.files.segments]
        return max(
            (base for base in known if base <= self._queues.physical_end), default=self._log.begin
        )

    def _scan_segment(self, segment: Segment) -> int:
        """Scan one segment; return the end of its records, or its own end behind a blank one."""
        position = 0
        while True:
            stretch = self._next_stretch(segment, position)
            self._dispatch(stretch.block, segment.base + position)
            position += stretch.length
            if not stretch.goes_on:
                return segment.base + position

    def _next_stretch(self, segment: Segment, position: int) -> _Stretch:
        """Walk up to SCAN_BYTES_MAX bytes, record by record: sizes are known only in order.

        The walk costs 0.2 microseconds a record; the checks behind it are whole-block ones.
        """
        sizes: list[int] = []
        start = position
        view, limit = segment.view, segment.size_bytes
        blank = False
        while position - start < SCAN_BYTES_MAX and limit - position >= SIZE_AND_MAGIC.size:
            size, magic = SIZE_AND_MAGIC.unpack_from(view, position)
            blank = magic == END_OF_SEGMENT_MAGIC and size == limit - position
            if blank or magic not in RECORD_MAGICS or not 0 < size <= limit - position:
                break
            sizes.append(size)
            position += size
        goes_on = position - start >= SCAN_BYTES_MAX
        block = self._whole_records(view[start:position], np.array(sizes, np.int32))
        if len(block) < len(sizes):
            return _Stretch(block, int(block.sizes.sum()), goes_on=False)
        return _Stretch(block, (limit if blank else position) - start, goes_on=goes_on)

    @staticmethod
    def _whole_records(view: memoryview, sizes: NDArray[np.int32]) -> RecordBlock:
        """The records up to the first that is malformed or fails its CRC."""
        while True:
            try:
                block = RecordBlock.parse(view, sizes)
                block.verify_body_crc()
            except MalformedRecordError as error:
                # Sizes and lengths fit by construction, so a fault always has its record.
                sizes = sizes[: error.index or 0]
                view = view[: int(sizes.sum())]
            else:
                return block

    def _dispatch(self, block: RecordBlock, offset: int) -> None:
        self._records_scanned += len(block)
        for request in requests_of(block, offset):
            deleted_below = self._queues.deleted_below(request.queue.topic)
            alive = request.units["physical_offset"] >= deleted_below
            first = int(np.argmax(alive)) if alive.any() else len(alive)
            self._queues.append(request.queue, request.queue_offset + first, request.units[first:])
            self._units_dispatched += len(alive) - first
