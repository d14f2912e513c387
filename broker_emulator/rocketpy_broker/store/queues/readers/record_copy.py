"""Gathering the bytes of records of one segment, and seeing that they are what their units say.

Records that lie together are handed out as views of the mapped log; scattered ones are copied by
one Arrow `take`, without a loop over messages. What this process has written is looked at where it
costs least: records that lie together in the log, and copied ones in their copy, which the
processor has at hand by then. Holds no state.
"""

from __future__ import annotations

from struct import Struct

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketpy_broker.store.log.segment import Segment
from rocketpy_proto.record.layout import FIXED_BYTES, MAGIC_V1, MAGIC_V2

Parts = list[memoryview | pa.Buffer]

# Of one record, and of many: size, magic, and the physical offset at byte 28.
_ONE_PLACE = Struct(">iI20xq")
_PLACES = np.dtype(
    {
        "names": ["total_size", "magic", "physical_offset"],
        "formats": [">i4", ">u4", ">i8"],
        "offsets": [0, 4, 28],
        "itemsize": _ONE_PLACE.size,
    }
)
assert _PLACES.itemsize == 36 <= FIXED_BYTES
# Below this many records per run of adjacent ones, gathering beats handing out views.
RECORDS_PER_RUN_MIN = 16


def gather(segment: Segment, starts: NDArray[np.int64], sizes: NDArray[np.int32]) -> Parts:
    """Returns the bytes of the records at `starts`, in order."""
    ends = starts + sizes
    return _gathered(segment, starts, ends, _breaks(starts, ends))


def gather_written(
    segment: Segment, offsets: NDArray[np.int64], sizes: NDArray[np.int32]
) -> Parts | None:
    """As `gather`, by physical offset; None unless records of their sizes lie there.

    Of records that lie together the first and the last one are looked at, which is enough for what
    this process has written: a single wrong unit among them would not join its neighbours.
    """
    if sizes.min() < FIXED_BYTES:
        return None
    starts = offsets - segment.base
    ends = starts + sizes
    breaks = _breaks(starts, ends)
    if len(breaks) == 0:
        return _one_run(segment, starts, ends, sizes)
    if starts.min() < 0 or starts.max() > segment.size_bytes or ends.max() > segment.size_bytes:
        return None
    parts = _gathered(segment, starts, ends, breaks)
    if _is_copied(breaks, starts):
        copied: NDArray[np.int64] = np.zeros(len(sizes), np.int64)
        sizes[:-1].cumsum(out=copied[1:])
        places = _places(parts[0], copied)
    else:
        edges = np.concatenate(([0], breaks, breaks + 1, [len(starts) - 1]))
        offsets, sizes = offsets[edges], sizes[edges]
        places = _places(segment.view, starts[edges])
    is_here = (places["total_size"] == sizes) & (places["physical_offset"] == offsets)
    is_here &= (places["magic"] == MAGIC_V1) | (places["magic"] == MAGIC_V2)
    return parts if is_here.all() else None


def _one_run(
    segment: Segment,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    sizes: NDArray[np.int32],
) -> Parts | None:
    """As `gather_written`, of records each of which begins where the one before it ends."""
    begin, last, end = int(starts[0]), int(starts[-1]), int(ends[-1])
    # Sizes are more than 0, so what begins and ends inside lies inside.
    if not 0 <= begin <= last < end <= segment.size_bytes:
        return None
    for start, size in ((begin, int(sizes[0])), (last, int(sizes[-1]))):
        total_size, magic, physical_offset = _ONE_PLACE.unpack_from(segment.view, start)
        is_here = total_size == size and physical_offset == segment.base + start
        if not is_here or magic not in (MAGIC_V1, MAGIC_V2):
            return None
    return [segment.view[begin:end]]


def _places(memory: memoryview | pa.Buffer, starts: NDArray[np.int64]) -> NDArray[np.void]:
    """What the records at `starts` say of themselves; each has room for it."""
    count, item = len(memory) - _PLACES.itemsize + 1, f"V{_PLACES.itemsize}"
    items: NDArray[np.void] = np.ndarray((count,), item, memory, strides=(1,))
    return items[starts].view(_PLACES)


def _breaks(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.intp]:
    """Behind which records another one begins than where they end."""
    breaks: NDArray[np.intp] = (starts[1:] != ends[:-1]).nonzero()[0]
    return breaks


def _is_copied(breaks: NDArray[np.intp], starts: NDArray[np.int64]) -> bool:
    return (len(breaks) + 1) * RECORDS_PER_RUN_MIN > len(starts) > 1


def _gathered(
    segment: Segment,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    breaks: NDArray[np.intp],
) -> Parts:
    if not _is_copied(breaks, starts):
        begins = starts[np.concatenate(([0], breaks + 1))].tolist()
        stops = ends[np.concatenate((breaks, [len(ends) - 1]))].tolist()
        return [segment.view[begin:stop] for begin, stop in zip(begins, stops, strict=True)]
    # Element 2i + 1 of this array is record i, element 2i what lies between it and the one before.
    # It has all of the segment, since Arrow looks whether an array's last end is behind its first
    # begin, and units of a store that is wrong may go back in the log.
    offsets = np.empty(2 * len(starts) + 2, np.int64)
    offsets[0], offsets[1:-1:2], offsets[2:-1:2], offsets[-1] = 0, starts, ends, segment.size_bytes
    log = pa.Array.from_buffers(
        pa.large_binary(),
        len(offsets) - 1,
        [None, pa.py_buffer(offsets), pa.py_buffer(segment.view)],
    )
    return [log.take(pa.array(np.arange(1, len(offsets) - 1, 2))).buffers()[2]]
