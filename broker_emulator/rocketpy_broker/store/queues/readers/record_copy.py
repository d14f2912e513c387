"""Copies of the records of one segment, checked against their units.

Adjacent records are returned as views of the mapped log. One Arrow `take` copies scattered ones,
without a loop over messages. Records that this process has written are checked where that costs
least. Adjacent records are checked in the log; copied ones in their copy, which is then in the
processor's cache. Few records are returned as views, since arrays cost more than a loop over them.
"""

from __future__ import annotations

from struct import Struct

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketpy_broker.store.log.segment import Segment
from rocketpy_broker.store.queues.units import UNIT_FIELDS, Units
from rocketpy_proto.record.layout import FIXED_BYTES, MAGIC_V1, MAGIC_V2

Parts = list[memoryview | pa.Buffer]

# Size, magic and, at byte 28, physical offset: of one record, and of many.
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
# Below this many records per run of adjacent ones, a copy is faster than views.
RECORDS_PER_RUN_MIN = 16
# Up to this many records a loop is faster than arrays.
FEW_RECORDS = 64


def gather(segment: Segment, starts: NDArray[np.int64], sizes: NDArray[np.int32]) -> Parts:
    """Returns the bytes of the records at `starts`, in order."""
    ends = starts + sizes
    return _gathered(segment, starts, ends, _breaks(starts, ends))


def gather_written(
    segment: Segment, offsets: NDArray[np.int64], sizes: NDArray[np.int32]
) -> Parts | None:
    """Returns the bytes of the records at `offsets`; None if one is not there in its size.

    Of adjacent records only the first and the last one are checked. This is enough for records that
    this process has written: one wrong unit would not be adjacent to its neighbours.
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


def gather_few(segment: Segment, units: Units, bytes_max: int) -> tuple[Parts, int] | None:
    """Returns the bytes and the number of the first records within `bytes_max`, at least one.

    Returns None as `gather_written` does.
    """
    # For each run of adjacent records: its start, and the start and end of its last record.
    begins: list[int] = []
    tails: list[tuple[int, int]] = []
    count = taken = 0
    last = end = -1
    for offset, size, _ in UNIT_FIELDS.iter_unpack(units.tobytes()):
        taken += size
        if taken > bytes_max and count:
            break
        start = offset - segment.base
        if size < FIXED_BYTES:
            return None
        if start != end:
            if not _is_here(segment, start, size):
                return None
            if count:
                tails.append((last, end))
            begins.append(start)
        last, end = start, start + size
        count += 1
    tails.append((last, end))
    runs = [(begin, last, end) for begin, (last, end) in zip(begins, tails, strict=True)]
    if all(last == begin or _is_here(segment, last, end - last) for begin, last, end in runs):
        return [segment.view[begin:end] for begin, _, end in runs], count
    return None


def _is_here(segment: Segment, start: int, size: int) -> bool:
    """True if a record of this size is at this place of the segment."""
    if not 0 <= start <= segment.size_bytes - size:
        return False
    total_size, magic, physical_offset = _ONE_PLACE.unpack_from(segment.view, start)
    is_record = magic in (MAGIC_V1, MAGIC_V2)
    return is_record and total_size == size and physical_offset == segment.base + start


def _one_run(
    segment: Segment,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    sizes: NDArray[np.int32],
) -> Parts | None:
    """Returns what `gather_written` does, for records that are all adjacent."""
    begin, last, end = int(starts[0]), int(starts[-1]), int(ends[-1])
    # Sizes are positive, so a range with its start and end inside is inside.
    is_here = _is_here(segment, begin, int(sizes[0])) and _is_here(segment, last, int(sizes[-1]))
    return [segment.view[begin:end]] if is_here else None


def _places(memory: memoryview | pa.Buffer, starts: NDArray[np.int64]) -> NDArray[np.void]:
    """Returns size, magic and offset fields of the records at `starts`; each has space for them."""
    count, item = len(memory) - _PLACES.itemsize + 1, f"V{_PLACES.itemsize}"
    items: NDArray[np.void] = np.ndarray((count,), item, memory, strides=(1,))
    return items[starts].view(_PLACES)


def _breaks(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.intp]:
    """Returns the indexes of records that are not followed by an adjacent one."""
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
    # Element 2i + 1 of this array is record i, element 2i the bytes between it and the previous
    # one. The array covers the whole segment: Arrow checks that its last end is not before its
    # first start. Units of a damaged store may go back in the log.
    offsets = np.empty(2 * len(starts) + 2, np.int64)
    offsets[0], offsets[1:-1:2], offsets[2:-1:2], offsets[-1] = 0, starts, ends, segment.size_bytes
    log = pa.Array.from_buffers(
        pa.large_binary(),
        len(offsets) - 1,
        [None, pa.py_buffer(offsets), pa.py_buffer(segment.view)],
    )
    return [log.take(pa.array(np.arange(1, len(offsets) - 1, 2))).buffers()[2]]
