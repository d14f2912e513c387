"""The commit log: every record of every topic, in order of arrival.

Maps: physical offset to record. Entry: a record of spec/storage.md section 2, of any size; none
crosses a segment's end, and a blank record fills what is left of a segment. Searched: by
physical offset only. Checksummed: each record's body by its CRC. After a crash the bytes behind
the last whole record are garbage of an append that was never acknowledged; recovery cuts them.
Written by `MessageStore` alone, on one thread; read by anybody.

A block is written by one positional write, after its segment has been allocated. The end moves
only after the write has succeeded, so a failed append is simply written over by the next one.
"""

from __future__ import annotations

from pathlib import Path

from rocketpy_broker.errors import RecordIllegalError
from rocketpy_broker.store.segment import Segment
from rocketpy_broker.store.segment_queue import SegmentQueue
from rocketpy_proto.record import BLANK_BYTES, encode_blank


class CommitLog:
    """The log. `end` is the physical offset that the next record gets, unless it has to roll."""

    def __init__(self, folder: Path, segment_bytes: int) -> None:
        self.files = SegmentQueue(folder, segment_bytes)
        self.end = 0
        self.flushed = 0

    def load(self) -> None:
        """Open the segments; recovery then says where the log ends. Raises StoreDirectoryError."""
        self.files.load()
        self.end = self.flushed = self.files.begin

    @property
    def begin(self) -> int:
        """Physical offset of the first byte that is still there."""
        return self.files.begin

    def prepare(self, length: int) -> int:
        """Physical offset for a block of `length` bytes; rolls to a new segment where needed.

        Raises RecordIllegalError for a block that fits no segment, OSError when the disk is full.
        """
        needed = length + BLANK_BYTES
        if needed > self.files.segment_bytes:
            raise RecordIllegalError(
                f"a block of {length} bytes does not fit a commit log segment of "
                f"{self.files.segment_bytes} bytes; send smaller blocks"
            )
        segment = self.files.grow(self.end)
        left = segment.end - self.end
        if needed <= left:
            return self.end
        following = self.files.grow(segment.end)
        self._write(segment, self.end, memoryview(encode_blank(left)))
        self.end = following.base
        return self.end

    def append(self, block: memoryview) -> None:
        """Write `block` at the end, which `prepare` has made ready. Raises OSError.

        A write that fails half way leaves no record behind: what it began is blanked out, so
        that a restart cannot take it for stored.
        """
        segment = self.files.find(self.end)
        assert segment is not None
        try:
            self._write(segment, self.end, block)
        except OSError:
            self._write(segment, self.end, memoryview(bytes(BLANK_BYTES)))
            raise
        self.end += len(block)

    @staticmethod
    def _write(segment: Segment, offset: int, data: memoryview) -> None:
        segment.write(offset - segment.base, data)

    def unflushed_segments(self) -> list[Segment]:
        """The segments with bytes that may not be durable yet."""
        return self.files.dirty_segments(self.flushed, self.end)

    def truncate(self, end: int) -> int:
        """Let the log end at `end`; return how many bytes behind it were not zero."""
        self.files.remove_from(end)
        segment = self.files.find(end)
        dropped = segment.clear_from(end - segment.base) if segment is not None else 0
        self.end = self.flushed = end
        return dropped

    def close(self) -> None:
        """Close the files."""
        self.files.close()
