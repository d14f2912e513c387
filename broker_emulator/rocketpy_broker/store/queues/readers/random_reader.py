"""Reads of records of one queue at arbitrary offsets, in any order.

Messages due together were not sent together, so their records are scattered over the log. Units are
looked up for many offsets at a time, and records are gathered by segment. There is no loop over
messages. Each record is compared with its checksum; damaged and lost ones are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketpy_broker.store.log.commit_log import CommitLog
from rocketpy_broker.store.log.filler import fillers_among
from rocketpy_broker.store.log.segment import Segment
from rocketpy_broker.store.queues.consume_queue import ConsumeQueue
from rocketpy_broker.store.queues.readers.range_reader import first_damaged
from rocketpy_broker.store.queues.readers.record_copy import gather
from rocketpy_broker.store.queues.table import ConsumeQueueTable
from rocketpy_broker.store.queues.units import BLANK_SIZE, UNIT, Units
from rocketpy_broker.store.values import Damage, QueueKey
from rocketpy_proto.record import RecordBlock, has_queue_offset

# Units at most this far apart are looked up together.
UNIT_GAP_MAX = 4_096


@dataclass(frozen=True, slots=True)
class RandomRead:
    """The existing records of the first `count` requested offsets."""

    count: int
    block: RecordBlock


class RandomReader:
    """Reader of one log; damaged records are reported to `on_damage`."""

    def __init__(
        self, log: CommitLog, queues: ConsumeQueueTable, on_damage: Callable[[Damage], None]
    ) -> None:
        self._log = log
        self._queues = queues
        self._on_damage = on_damage

    def read(self, key: QueueKey, offsets: NDArray[np.int64], bytes_max: int) -> RandomRead:
        """Returns the existing records of the first `offsets` that fit `bytes_max`, in that order.

        Covers at least one offset.
        """
        queue = self._queues.get(key)
        if queue is None or len(offsets) == 0:
            return RandomRead(len(offsets), RecordBlock.parse(b""))
        units = _units(queue, offsets)
        sizes = units["size"].astype(np.int64)
        sizes[(sizes == BLANK_SIZE) | (sizes < 0)] = 0
        count = max(int(np.searchsorted(np.cumsum(sizes), bytes_max, "right")), 1)
        starts = units["physical_offset"].astype(np.int64)[:count]
        sizes = sizes[:count]
        rows, parts = self._gathered(starts, sizes)
        records = _binary(b"".join(parts), sizes[rows]).take(pa.array(np.argsort(rows)))
        rows = np.sort(rows)
        octets = memoryview(records.buffers()[2] or b"")[: int(sizes[rows].sum())]
        block = RecordBlock.parse(octets, sizes[rows].astype(np.int32))
        is_right = block.header["queue_offset"].astype(np.int64) == offsets[rows]
        is_right &= has_queue_offset(block.header["sys_flag"]) & ~fillers_among(block.header)
        return RandomRead(count, block.filter(is_right))

    def _gathered(
        self, starts: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], list[bytes]]:
        """Returns the rows of existing records, by physical offset, and their bytes."""
        segment_bytes = self._log.files.segment_bytes
        rows = np.flatnonzero((sizes > 0) & (starts >= self._log.begin))
        rows = rows[np.argsort(starts[rows], kind="stable")]
        numbers = starts[rows] // segment_bytes
        found, parts = [np.empty(0, np.int64)], []
        for some in np.split(rows, np.flatnonzero(np.diff(numbers)) + 1):
            segment = self._log.files.find(int(starts[some[0]])) if len(some) else None
            if segment is None:
                continue
            inside = starts[some] + sizes[some] <= min(segment.end, self._log.end)
            whole = self._whole(segment, starts, sizes, some[inside])
            if len(whole):
                places = starts[whole] - segment.base
                gathered = gather(segment, places, sizes[whole].astype(np.int32))
                parts += [bytes(part) for part in gathered]
                found.append(whole)
        return np.concatenate(found), parts

    def _whole(
        self,
        segment: Segment,
        starts: NDArray[np.int64],
        sizes: NDArray[np.int64],
        rows: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Returns the rows without damaged records, and reports the damage."""
        while len(rows):
            places = starts[rows] - segment.base
            bad = first_damaged(self._log, segment, places, sizes[rows].astype(np.int32))
            if bad is None:
                break
            offset, length = int(starts[rows[bad]]), int(sizes[rows[bad]])
            reason = "the record differs from its checksum"
            self._on_damage(Damage(segment.path, offset, length, reason))
            rows = np.delete(rows, bad)
        return rows


def _binary(data: bytes, sizes: NDArray[np.int64]) -> pa.BinaryArray:
    """Returns the records that fill `data`, one element each."""
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)


def _units(queue: ConsumeQueue, offsets: NDArray[np.int64]) -> Units:
    """Returns the unit at each offset; one of zeros if there is none."""
    found = np.zeros(len(offsets), UNIT)
    order = np.argsort(offsets, kind="stable")
    rising = offsets[order]
    begin = 0
    while begin < len(rising):
        first = int(rising[begin])
        is_far = np.diff(rising[begin:], append=np.int64(1 << 62)) > UNIT_GAP_MAX
        last = int(rising[begin + int(np.argmax(is_far))])
        units = queue.units(max(first, queue.min_offset), last + 1)
        low = max(first, queue.min_offset)
        # Units end with their file; the next iteration continues in the next file.
        high = low + len(units) if len(units) else last + 1
        end = begin + int(np.searchsorted(rising[begin:], high))
        some = slice(begin + int(np.searchsorted(rising[begin:end], low)), end)
        if len(units):
            found[order[some]] = units[rising[some] - low]
        begin = end
    return found
