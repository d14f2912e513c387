"""The commit log: every record of every topic, in arrival order.

Maps: physical offset to record. Entry: a record of docs/design/storage.md section 2, of any size.
No record crosses a segment's end; a blank record fills the rest of a segment. Searched: by physical
offset only. Checksummed: each record's body by its CRC, the whole record by an entry in
`checksums`. After a crash the bytes after the last whole record belong to an append that was not
flushed; recovery cuts them. Written by `MessageStore` alone, one block at a time; any thread
may read.

One positional write writes a block, after its segment has been allocated. The end moves only after
the write has succeeded, so the next append overwrites a failed one.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.errors import RecordIllegalError
from rocketpy_broker.store.log.checksums import Checksums, is_sound, record_crcs
from rocketpy_broker.store.log.segment import Segment
from rocketpy_broker.store.log.segment_queue import SegmentQueue
from rocketpy_proto.record import (
    BLANK_BYTES,
    MalformedRecordError,
    RecordBlock,
    decode_record,
    encode_blank,
)

# Bytes copied in one step when bytes are written again.
REWRITE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Comparison:
    """Masks of n records: checksum known, and record different from it (n bool each)."""

    known: NDArray[np.bool_]
    damaged: NDArray[np.bool_]


class CommitLog:
    """The log; `end` is the physical offset of the next record, unless it starts a new segment.

    Everything below offset `flushed` is durable.
    """

    def __init__(self, folder: Path, checksums_folder: Path, segment_bytes: int) -> None:
        self.files = SegmentQueue(folder, segment_bytes)
        self.checksums = Checksums(checksums_folder, segment_bytes)
        self.end = 0
        self.flushed = 0

    def load(self) -> None:
        """Opens the segments; recovery then sets the log's end. Raises StoreDirectoryError."""
        self.files.load()
        self.checksums.load()
        self.end = self.flushed = self.files.begin

    @property
    def begin(self) -> int:
        """Physical offset of the first byte that still exists."""
        return self.files.begin

    @property
    def is_half_full(self) -> bool:
        """True if the last segment is used by half or more."""
        return self.files.end - self.end <= self.files.segment_bytes // 2

    def preallocate(self) -> None:
        """Creates the next segment and its checksums. Blocks. Any thread. Raises OSError."""
        if self.files.segments:
            self.files.preallocate()
            self.checksums.make_ahead(self.files.end)

    def drop_ahead(self) -> None:
        """Removes the segment and checksums that were created ahead, as a clean stop does."""
        self.files.drop_ahead()
        self.checksums.drop_ahead()

    def prepare(self, length: int, count: int) -> Segment:
        """Makes room at the log's end for `count` records of `length` bytes; rolls if needed.

        Returns the segment that holds the end, for `write`. Raises RecordIllegalError for a block
        that fits no segment, OSError when the disk is full.
        """
        needed = length + BLANK_BYTES
        if needed > self.files.segment_bytes:
            what, way_out = "block", "send smaller blocks"
            if count == 1:
                what, way_out = "record", "send less in a message"
            raise RecordIllegalError(
                f"a {what} of {length} bytes does not fit a commit log segment of "
                f"{self.files.segment_bytes} bytes; {way_out}"
            )
        last = segment = self._grown(self.end)
        left = last.end - self.end
        if needed > left:
            segment = self._grown(last.end)
        self.checksums.of(segment).reserve(count)
        if segment is not last:
            # After all steps that can fail: slaves wait until the log's end is flushed, and only
            # the flush of the block does that.
            last.write(self.end - last.base, memoryview(encode_blank(left)))
            self.end = segment.base
        return segment

    def _grown(self, end: int) -> Segment:
        """Returns the segment that holds `end`, created if needed. Raises OSError.

        A disk may have space for a block but not for a segment; the error of a full disk says so.
        """
        try:
            return self.files.grow(end)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            takes = f"the next file takes {self.files.segment_bytes} bytes at once"
            way_out = "a new store may have smaller ones, by --commit-log-segment-bytes"
            reason = f"{error.strerror}: {takes}; free space, or {way_out}"
            raise OSError(error.errno, reason) from error

    def write(self, block: RecordBlock, segment: Segment) -> None:
        """Writes `block` at the log's end, in `segment`; the end stays. Blocks. Raises OSError.

        Any thread may call it while nothing else writes; older segments may be removed meanwhile.

        A write that fails half way leaves no record: the whole block is blanked out. So neither a
        restart nor a later append can restore a record of it.
        """
        position = self.end - segment.base
        crcs = record_crcs(block.data, block.positions, block.sizes)
        try:
            segment.write(position, block.data.data)
            self.checksums.of(segment).append(block.positions + position, block.sizes, crcs)
        except Exception:
            segment.write(position, memoryview(bytes(len(block.data))))
            raise

    def advance(self, block: RecordBlock) -> None:
        """Moves the log's end past `block`, which is written."""
        self.end += len(block.data)

    def compare(
        self, segment: Segment, positions: NDArray[np.int64], sizes: NDArray[np.int32]
    ) -> Comparison:
        """Compares records of `segment`, at ascending positions, with their checksums."""
        checksums = self.checksums.find(segment)
        if checksums is None:
            none = np.zeros(len(positions), np.bool_)
            return Comparison(none, none)
        entries = checksums.lookup(positions)
        known = is_sound(entries)
        found = record_crcs(np.frombuffer(segment.view, np.uint8), positions, sizes)
        wrong = (entries["size"] != sizes) | (entries["crc"] != found)
        return Comparison(known, known & wrong)

    def store_timestamp_ms_at(self, offset: int) -> int:
        """Returns the store timestamp of the record at `offset`; 0 if there is none."""
        segment = self.files.find(offset)
        if segment is None:
            return 0
        try:
            return decode_record(segment.view, offset - segment.base).record.store_timestamp_ms
        except MalformedRecordError:
            return 0

    def unflushed_segments(self) -> list[Segment]:
        """Returns the segments that may hold unflushed bytes, and their checksum files."""
        segments = self.files.dirty_segments(self.flushed, self.end)
        return segments + [self.checksums.of(segment).file for segment in segments]

    def truncate(self, end: int) -> None:
        """Ends the log at `end`; clears all later bytes, so that no record is found there.

        The first segment is always kept: only its name records where the log begins.
        """
        self.files.remove_from(max(end, self.begin + 1))
        segment = self.files.find(end)
        if segment is not None:
            segment.clear_from(end - segment.base)
        self.checksums.truncate(end)
        self.end = end

    def make_durable(self, begin: int) -> None:
        """Writes bytes and checksums from `begin` on again, and flushes them all. Raises OSError.

        After a failed flush the system marks pages as clean that never reached the disk. A flush
        without a new write would then report a false success. Checksums come first: after a power
        cut in between, the next recovery keeps the records that have reached the disk.
        """
        for segment in self.files.segments:
            checksums = self.checksums.find(segment)
            if checksums is not None and begin < min(segment.end, self.end):
                checksums.write_again(max(begin - segment.base, 0))
        self.checksums.flush()
        for segment in self.files.segments:
            position = max(begin - segment.base, 0)
            stop = min(self.end - segment.base, segment.size_bytes)
            for start in range(position, stop, REWRITE_BYTES):
                segment.write(start, segment.view[start : min(start + REWRITE_BYTES, stop)])
            segment.flush()
        self.flushed = self.end

    def complete_checksums(self, offset: int, block: RecordBlock) -> None:
        """Adds the missing checksums of the records of `block`, which is at `offset`."""
        segment = self.files.find(offset)
        assert segment is not None
        positions = block.positions + (offset - segment.base)
        checksums = self.checksums.of(segment)
        last = checksums.last_position
        is_new = last is None or last < int(positions[0])
        if is_new or not is_sound(checksums.lookup(positions)).all():
            crcs = record_crcs(block.data, block.positions, block.sizes)
            # Without entries of later records there is nothing to replace.
            add = checksums.append if is_new else checksums.insert
            add(positions, block.sizes, crcs)

    def first_paths(self) -> list[Path]:
        """Returns the files of the oldest segment: its own, and its checksums."""
        segment = self.files.segments[0]
        checksums = self.checksums.find(segment)
        return [segment.path] if checksums is None else [segment.path, checksums.path]

    def drop_first(self) -> None:
        """Drops the oldest segment after its files have been removed."""
        self.files.drop_first()
        self.checksums.drop_below(self.begin)

    def close(self) -> None:
        """Closes the files."""
        self.files.close()
        self.checksums.close()
