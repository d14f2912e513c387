"""A staging file: the staged records of one attempt at a task.

Its name is `rocketpy/staging/<20 digits>`, numbered in order of creation; see `frames` for its
content. One attempt writes it from start to end. It is read when its batch is decided, and then
removed. A crash may leave a torn end: `scan` finds the last whole block, and the attempt
continues after it. Every call opens the file again, so that 10,000 attempts need no descriptors;
every call blocks.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rocketpy_broker.store.files import durable
from rocketpy_broker.store.staging.frames import (
    HEAD_BYTES,
    Frame,
    FrameHead,
    FrameKind,
    StagedRecords,
    records_of,
)
from rocketpy_proto.record.crc import body_crc

# With these errors the file will not be readable later either.
LOST_ERRNOS = (errno.ENOENT, errno.EIO, errno.ENOTDIR, errno.EISDIR)

# An attempt's frame names a writer and has some numbers.
ATTEMPT_BYTES_MAX = 16 << 10


@dataclass(frozen=True, slots=True)
class StagedCounts:
    """The counts of an attempt's staged records; `bytes` is their size."""

    block_count: int = 0
    record_count: int = 0
    bytes: int = 0


@dataclass(slots=True)
class StagingScan:
    """The content of a file: whole blocks up to byte `end`, and the highest queue of each topic.

    `is_sealed` is set if the seal follows the blocks and agrees with them.
    """

    counts: StagedCounts
    end: int
    is_sealed: bool = False
    queue_ids: dict[str, int] = field(default_factory=dict)

    def add(self, records: StagedRecords) -> None:
        """Adds the topic and queue of `records`."""
        topic = records.queue.topic
        self.queue_ids[topic] = max(records.queue_id_max, self.queue_ids.get(topic, 0))


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Lost records: `record_count` from record `first_record` of the file on."""

    first_record: int
    record_count: int
    reason: str


class StagingFile:
    """The file at `path`. All methods raise OSError.

    There may be many thousands. A full garbage collection visits each of them and stops all threads
    meanwhile. The class therefore has slots, and holds a string, which is not visited.
    """

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    @property
    def path(self) -> Path:
        """The file's path."""
        return Path(self._path)

    def create(self, attempt: Frame) -> int:
        """Creates the file with its first frame; returns the position of the next one.

        A failed call removes the file, so that the caller can try again.
        """
        durable.create_empty(self.path)
        try:
            return self.append(0, [attempt])
        except OSError:
            durable.remove_files([self.path])
            raise

    def append(self, position: int, frames: Iterable[Frame]) -> int:
        """Writes frames at byte `position`; returns the position of the next one.

        The next call overwrites the remains of a failed one.
        """
        with self._opened(os.O_WRONLY) as descriptor:
            for frame in frames:
                # The head is written last: without it the frame does not count.
                begin = frame.head.to_bytes() + frame.beside
                durable.write_whole(descriptor, frame.records, position + len(begin))
                durable.write_whole(descriptor, memoryview(begin), position)
                position += frame.head.frame_bytes
        return position

    def flush(self) -> None:
        """Makes content and name durable."""
        with self._opened(os.O_RDWR) as descriptor:
            os.fdatasync(descriptor)
        durable.sync_folder(self.path.parent)

    def changed_ns(self) -> int:
        """Returns the time of the last write, wall time in ns."""
        return os.stat(self._path).st_mtime_ns

    def attempt(self) -> bytes | None:
        """Returns the content of the first frame; None if it is not whole."""
        with self.reading() as reader:
            return reader.attempt()

    def scan(self, attempt: bytes) -> StagingScan:
        """Reads and checks the whole file; `end` is -1 for another attempt's file."""
        with self.reading() as reader:
            if reader.attempt() != attempt:
                return StagingScan(StagedCounts(), -1)
            scan = StagingScan(StagedCounts(), reader.position)
            record_count = bytes_ = 0
            while isinstance(records := reader.next_records(record_count), StagedRecords):
                scan.add(records)
                record_count += len(records.block)
                bytes_ += len(records.block.data)
                if reader.head is not None and reader.head.ends_block:
                    block_count = reader.head.block_number + 1
                    scan.counts = StagedCounts(block_count, record_count, bytes_)
                    scan.end = reader.position
            scan.is_sealed = reader.is_sealed_at(scan.counts)
        return scan

    @contextmanager
    def reading(self) -> Iterator[FrameReader]:
        """Yields a reader, from the start of the file."""
        with self._opened(os.O_RDONLY) as descriptor:
            yield FrameReader(descriptor)

    @contextmanager
    def _opened(self, flags: int) -> Iterator[int]:
        descriptor = os.open(self._path, flags | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


class FrameReader:
    """A reader of a file's frames in order; `position` is the byte after the frames read.

    `head` is the last head read: it is whole, even if its payload is not.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.position = 0
        self.head: FrameHead | None = None

    def attempt(self) -> bytes | None:
        """Returns the content of the attempt's frame."""
        if not self._next_head() or self.head is None:
            return None
        if self.head.kind is not FrameKind.ATTEMPT or self.head.frame_bytes > ATTEMPT_BYTES_MAX:
            return None
        payload = self._next_payload()
        return None if payload is None else payload.tobytes()

    @property
    def first_record(self) -> int:
        """The number of the file's records before the last ones read."""
        return 0 if self.head is None else self.head.first_record

    @property
    def end_record(self) -> int:
        """The number of the file's records up to the end of the last ones read."""
        return 0 if self.head is None else self.head.first_record + self.head.record_count

    def next_records(self, from_record: int) -> StagedRecords | Unreadable | None:
        """Returns the records of the next block frame, from record `from_record` of the file on.

        Earlier frames are skipped. Returns None at the seal, or if no whole head follows.
        """
        while self._next_head() and self.head is not None:
            head = self.head
            if head.kind is FrameKind.SEAL:
                return None
            skipped = from_record - head.first_record
            if skipped < head.record_count:
                payload = self._next_payload()
                if payload is None:
                    lost_count = head.record_count - max(skipped, 0)
                    return Unreadable(from_record, lost_count, "their checksum differs")
                return records_of(head, payload, max(skipped, 0))
            self.position += head.frame_bytes
        return None

    def is_sealed_at(self, counts: StagedCounts) -> bool:
        """True if the last head is the seal of a file with these counts of blocks and records."""
        head = self.head
        if head is None or head.kind is not FrameKind.SEAL:
            return False
        return (head.block_number, head.first_record) == (counts.block_count, counts.record_count)

    def _next_head(self) -> bool:
        self.head = FrameHead.parse(os.pread(self._descriptor, HEAD_BYTES, self.position))
        return self.head is not None

    def _next_payload(self) -> np.ndarray | None:
        """Returns the payload after `head`; None if it differs from what was written."""
        assert self.head is not None
        if self.position + self.head.frame_bytes > os.fstat(self._descriptor).st_size:
            # The head may name more bytes than the file has, and more than fit into memory.
            self.position += self.head.frame_bytes
            return None
        payload = np.empty(self.head.frame_bytes - HEAD_BYTES, np.uint8)
        length = os.preadv(self._descriptor, [payload.data], self.position + HEAD_BYTES)
        self.position += self.head.frame_bytes
        is_whole = length == len(payload) and body_crc(payload.data) == self.head.payload_crc
        return payload if is_whole else None
