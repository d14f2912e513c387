"""An unbounded logical file of equal-size segments in one folder.

Maps: logical byte positions to segments. Searched: by division, since all segments have one size
and follow each other. Checksummed: no. After a crash there may be one segment too many at the end,
allocated ahead and empty; the owner's recovery removes it. Used by the commit log.
Source: MappedFileQueue, docs/design/storage.md section 1 (folder-content rules).
"""

from __future__ import annotations

import threading
from pathlib import Path

from rocketpy_broker.store.files import durable
from rocketpy_broker.store.log.file_sequence import FileSequence
from rocketpy_broker.store.log.segment import Segment


class SegmentQueue:
    """The segments of one folder, in order. One thread uses it; any may call `preallocate`."""

    def __init__(self, folder: Path, segment_bytes: int) -> None:
        self.folder = folder
        self.segment_bytes = segment_bytes
        self.segments: list[Segment] = []
        self._ahead: Segment | None = None
        self._creating = threading.Lock()

    def load(self) -> None:
        """Opens the files of the folder, which must exist.

        Raises StoreDirectoryError, and then keeps all files that are not empty.
        """
        for path in FileSequence.load(self.folder, self.segment_bytes).paths:
            self.segments.append(Segment.open(path, self.segment_bytes))

    @property
    def begin(self) -> int:
        """Logical position of the first existing byte; 0 for an empty queue."""
        return self.segments[0].base if self.segments else 0

    @property
    def end(self) -> int:
        """Logical position after the last segment; 0 for an empty queue."""
        return self.segments[-1].end if self.segments else 0

    def find(self, position: int) -> Segment | None:
        """Returns the segment that holds `position`, or None."""
        if not self.begin <= position < self.end:
            return None
        return self.segments[(position - self.begin) // self.segment_bytes]

    def grow(self, position: int) -> Segment:
        """Returns the segment that holds `position`, created if it is the next. Raises OSError."""
        found = self.find(position)
        if found is not None:
            return found
        with self._creating:
            segment, self._ahead = self._ahead, None
            if segment is None:
                segment = self._create(position - position % self.segment_bytes)
            assert segment.base <= position < segment.end
            self.segments.append(segment)
        return segment

    def _create(self, base: int) -> Segment:
        durable.make_folder(self.folder)
        return Segment.create(self.folder, base, self.segment_bytes)

    def preallocate(self) -> None:
        """Creates the next segment, unless it exists. Blocks. Raises OSError."""
        with self._creating:
            if self._ahead is None and self.segments:
                self._ahead = Segment.create(self.folder, self.end, self.segment_bytes)

    def drop_ahead(self) -> None:
        """Removes the segment that was created ahead, as a clean stop does."""
        with self._creating:
            if self._ahead is not None:
                self._ahead.remove()
                self._ahead = None

    def view(self, position: int, length: int) -> memoryview:
        """Returns the bytes at `position`, which must be in one segment."""
        segment = self.find(position)
        assert segment is not None
        assert position + length <= segment.end
        start = position - segment.base
        return segment.view[start : start + length]

    def remove_from(self, position: int) -> None:
        """Removes the segments that begin at or after `position`, last one first."""
        while self.segments and self.segments[-1].base >= position:
            self.segments.pop().remove()

    def drop_first(self) -> None:
        """Drops the oldest segment after its file has been removed; views of it stay valid."""
        self.segments.pop(0).close()

    def dirty_segments(self, begin: int, end: int) -> list[Segment]:
        """Returns the segments that hold bytes of [begin, end)."""
        return [part for part in self.segments if part.base < end and part.end > begin]

    def close(self) -> None:
        """Closes every segment."""
        with self._creating:
            if self._ahead is not None:
                self._ahead.close()
                self._ahead = None
        for segment in self.segments:
            segment.close()
        self.segments.clear()
