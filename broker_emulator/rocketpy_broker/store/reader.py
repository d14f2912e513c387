"""Reading records of one queue: the consume queue names byte ranges of the log, which are gathered.

Nothing is decoded. Ranges that lie together are handed out as views of the mapped log; scattered
ones are gathered by one Arrow `take`, without a loop over messages. Holds no state.
Source: spec/storage.md section 6.6 (statuses and next offsets).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketpy_broker.store.commit_log import CommitLog
from rocketpy_broker.store.consume_queue import BLANK_SIZE, ConsumeQueue, Units
from rocketpy_broker.store.segment import Segment
from rocketpy_broker.store.values import GetMessageResult, GetMessageStatus, QueueRange

# Below this many records per run of adjacent ones, gathering beats handing out views.
RECORDS_PER_RUN_MIN = 16


def get_message(
    log: CommitLog, queue: ConsumeQueue, offset: int, offset_end: int, bytes_max: int
) -> GetMessageResult:
    """Records [offset, offset_end) of `queue`, as many as fit `bytes_max`, but at least one.

    May end early, at the end of a queue file or log segment; `next_offset` says where to go on.
    """
    bounds = QueueRange(queue.min_offset, queue.max_offset)
    missed = _outside(bounds, offset)
    if missed is not None:
        return missed
    first = queue.units(offset, offset + 1)
    if first["size"][0] == BLANK_SIZE:
        return _removed(bounds, offset + _blank_count(queue.units(offset, bounds.max_offset)))
    segment = log.files.find(int(first["physical_offset"][0]))
    if segment is None:
        return _removed(bounds, offset + 1)
    wanted = 1 + 2 * (bytes_max // int(first["size"][0]))
    units = _fitting(queue.units(offset, min(offset_end, offset + wanted)), segment, bytes_max)
    sizes = units["size"].astype(np.int32)
    return GetMessageResult(
        GetMessageStatus.FOUND,
        offset + len(units),
        bounds.min_offset,
        bounds.max_offset,
        _gather(segment, units["physical_offset"].astype(np.int64) - segment.base, sizes),
        sizes,
    )


def _outside(bounds: QueueRange, offset: int) -> GetMessageResult | None:
    low, high = bounds.min_offset, bounds.max_offset
    if high == 0:
        return GetMessageResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
    if offset < low:
        return GetMessageResult(GetMessageStatus.OFFSET_TOO_SMALL, low, low, high)
    if offset == high:
        return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
    if offset > high:
        return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
    return None


def _removed(bounds: QueueRange, next_offset: int) -> GetMessageResult:
    return GetMessageResult(
        GetMessageStatus.MESSAGE_WAS_REMOVING, next_offset, bounds.min_offset, bounds.max_offset
    )


def _blank_count(units: Units) -> int:
    real = units["size"] != BLANK_SIZE
    return int(np.argmax(real)) if real.any() else len(units)


def _fitting(units: Units, segment: Segment, bytes_max: int) -> Units:
    """The leading units that are real, lie in `segment`, and fit `bytes_max`; at least one."""
    sizes = units["size"].astype(np.int64)
    stops = (sizes == BLANK_SIZE) | (units["physical_offset"] >= segment.end)
    stops |= np.cumsum(sizes) > bytes_max
    stops[0] = False
    return units[: int(np.argmax(stops))] if stops.any() else units


def _gather(
    segment: Segment, starts: NDArray[np.int64], sizes: NDArray[np.int32]
) -> list[memoryview | pa.Buffer]:
    """The bytes of the records at `starts`, in order."""
    ends = starts + sizes
    breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
    if (len(breaks) + 1) * RECORDS_PER_RUN_MIN <= len(starts) or len(starts) == 1:
        begins = starts[np.concatenate(([0], breaks))].tolist()
        stops = ends[np.concatenate((breaks - 1, [len(ends) - 1]))].tolist()
        return [segment.view[begin:stop] for begin, stop in zip(begins, stops, strict=True)]
    # Element 2i of this array is record i, element 2i + 1 what lies between it and the next.
    offsets = np.empty(2 * len(starts), np.int64)
    offsets[0::2], offsets[1::2] = starts, ends
    log = pa.Array.from_buffers(
        pa.large_binary(),
        len(offsets) - 1,
        [None, pa.py_buffer(offsets), pa.py_buffer(segment.view)],
    )
    return [log.take(pa.array(np.arange(0, len(offsets) - 1, 2))).buffers()[2]]
