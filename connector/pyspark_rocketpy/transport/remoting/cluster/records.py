"""Records of answers: their sizes, offsets and checks.

One step checks a field of all records, without a loop over them.

Source: docs/design/storage.md section 2.1, docs/design/remoting.md section 3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rocketpy_proto.record import UnexpectedRecordsError, scan_sizes
from rocketpy_proto.record.layout import HEADER_V4, MAGIC_V1, MAGIC_V2

# A record has the same layout up to its queue offset, for all kinds of hosts.
_HEAD = np.dtype([(name, HEADER_V4[name]) for name in (HEADER_V4.names or ())[:6]])


@dataclass(frozen=True, slots=True)
class Records:
    """Records back to back; their sizes in bytes, and their queue offsets, which rise."""

    data: memoryview
    sizes: NDArray[np.int32]
    offsets: NDArray[np.int64]

    def is_in(self, begin: int, end: int, *, is_gapless: bool) -> bool:
        """True if all offsets are within [begin, end); if gapless, none of it may be missing."""
        is_within = int(self.offsets[0]) >= begin and int(self.offsets[-1]) < end
        return is_within and (not is_gapless or len(self.offsets) == end - begin)

    def within(self, begin: int, end: int) -> Records:
        """Returns the records of the offsets [begin, end)."""
        first, last = np.searchsorted(self.offsets, (begin, end)).tolist()
        return self.part(first, last)

    def part(self, first: int, last: int) -> Records:
        """Returns the records [first, last), by their index."""
        ahead, size = int(self.sizes[:first].sum()), int(self.sizes[first:last].sum())
        place = slice(first, last)
        return Records(self.data[ahead : ahead + size], self.sizes[place], self.offsets[place])

    def runs(self) -> list[tuple[int, int]]:
        """Returns the index ranges of records with consecutive offsets."""
        if not len(self.offsets):
            return []
        ends = (np.flatnonzero(np.diff(self.offsets) != 1) + 1).tolist()
        return list(zip([0, *ends], [*ends, len(self.offsets)], strict=True))


def records_of(bodies: Sequence[memoryview], queue_id: int) -> Records:
    """Returns the records of consecutive answers, none of which is empty.

    Raises RecordError unless they are records of this queue, in rising order.
    """
    data = bodies[0] if len(bodies) == 1 else memoryview(b"".join(bodies))
    sizes = scan_sizes(data)
    positions = np.cumsum(sizes, dtype=np.int64) - sizes
    octets = np.frombuffer(data, np.uint8)
    items: NDArray[np.void] = np.ndarray(
        (len(octets) - _HEAD.itemsize + 1,), f"V{_HEAD.itemsize}", octets, strides=(1,)
    )
    heads = items[positions].view(_HEAD)
    _require(heads, queue_id)
    return Records(data, sizes, heads["queue_offset"].astype(np.int64))


def _require(heads: NDArray[np.void], queue_id: int) -> None:
    magics = heads["magic"]
    if ((magics != MAGIC_V1) & (magics != MAGIC_V2)).any():
        raise UnexpectedRecordsError("data other than records")
    if (heads["queue_id"] != queue_id).any():
        raise UnexpectedRecordsError("records of another queue")
    offsets = heads["queue_offset"]
    if (offsets[1:] <= offsets[:-1]).any():
        raise UnexpectedRecordsError("queue offsets that do not increase")
