"""One staging file: what one attempt at one task of a batch has staged.

`rocketpy/staging/<20 digits>`, numbered as they were made; see `frames` for what lies in it. It is
written from front to back by one attempt, read when its batch is decided, and then removed. A crash
leaves a file whose end may be torn: `survey` finds the last whole block, behind which the attempt
goes on. Every call opens the file anew, so that 10,000 attempts need no descriptors; every call
blocks.
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

# With these a file will not be read tomorrow either.
LOST_ERRNOS = (errno.ENOENT, errno.EIO, errno.ENOTDIR, errno.EISDIR)


@dataclass(frozen=True, slots=True)
class StagedCounts:
    """What an attempt has staged; `bytes` are those of the records."""

    block_count: int = 0
    record_count: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Survey:
    """What was found in a file: whole blocks up to byte `end`, and the highest queue of each topic.

    `is_sealed`: the seal lies behind them and agrees.
    """

    counts: StagedCounts
    end: int
    is_sealed: bool = False
    queue_ids: dict[str, int] = field(default_factory=dict)

    def add(self, records: StagedRecords) -> None:
        """Notes a topic and queue."""
        topic = records.queue.topic
        self.queue_ids[topic] = max(records.queue_id_max, self.queue_ids.get(topic, 0))


@dataclass(frozen=True, slots=True)
class Unreadable:
    """`record_count` records from record `first_record` of the file on that are lost."""

    first_record: int
    record_count: int
    reason: str


class StagingFile:
    """The file at `path`. All methods raise OSError.

    There may be many thousands, each of which a full garbage collection visits while everybody
    waits. So it has slots, and a string, which is not visited.
    """

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    @property
    def path(self) -> Path:
        """Where it is."""
        return Path(self._path)

    def create(self, attempt: Frame) -> int:
        """Makes the file with its first frame; return where the next one goes.

        What a failed call leaves is removed, so that it can be tried again.
        """
        durable.create_empty(self.path)
        try:
            return self.append(0, [attempt])
        except OSError:
            durable.remove_files([self.path])
            raise

    def append(self, position: int, frames: Iterable[Frame]) -> int:
        """Writes frames at byte `position`; return where the next one goes.

        What a failed call leaves there is written over by the next one.
        """
        with self._opened(os.O_WRONLY) as descriptor:
            for frame in frames:
                # The head last: without it nothing of the frame is there.
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
        """When it was last written, wall time in ns."""
        return os.stat(self._path).st_mtime_ns

    def attempt(self) -> bytes | None:
        """Returns the content of its first frame; None where that is not whole."""
        with self.reading() as reader:
            return reader.attempt()

    def survey(self, attempt: bytes) -> Survey:
        """Reads and check all of it; `end` is -1 where it is not that attempt's."""
        with self.reading() as reader:
            if reader.attempt() != attempt:
                return Survey(StagedCounts(), -1)
            survey = Survey(StagedCounts(), reader.position)
            record_count = bytes_ = 0
            while isinstance(records := reader.next_records(record_count), StagedRecords):
                survey.add(records)
                record_count += len(records.block)
                bytes_ += len(records.block.data)
                if reader.head is not None and reader.head.ends_block:
                    block_count = reader.head.block_number + 1
                    survey.counts = StagedCounts(block_count, record_count, bytes_)
                    survey.end = reader.position
            survey.is_sealed = reader.is_sealed_at(survey.counts)
        return survey

    @contextmanager
    def reading(self) -> Iterator[FrameReader]:
        """Yields a reader, from the file's begin."""
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
    """Reads a file's frames in order; `position` is the byte behind those that were read.

    `head` is the last one that was met: it is whole, even where its payload is not.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.position = 0
        self.head: FrameHead | None = None

    def attempt(self) -> bytes | None:
        """Returns the content of the attempt's frame."""
        payload = self._next_payload() if self._next_head() else None
        if payload is None or self.head is None or self.head.kind is not FrameKind.ATTEMPT:
            return None
        return payload.tobytes()

    @property
    def first_record(self) -> int:
        """Records of the file before those that were read last."""
        return 0 if self.head is None else self.head.first_record

    @property
    def end_record(self) -> int:
        """Records of the file up to the end of those that were read last."""
        return 0 if self.head is None else self.head.first_record + self.head.record_count

    def next_records(self, from_record: int) -> StagedRecords | Unreadable | None:
        """Returns the records of the next block frame, from record `from_record` of the file on.

        Frames before it are passed over. None at the seal, or where no whole head follows.
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
        """True if the last head is the seal of a file with so many blocks and records."""
        head = self.head
        if head is None or head.kind is not FrameKind.SEAL:
            return False
        return (head.block_number, head.first_record) == (counts.block_count, counts.record_count)

    def _next_head(self) -> bool:
        self.head = FrameHead.parse(os.pread(self._descriptor, HEAD_BYTES, self.position))
        return self.head is not None

    def _next_payload(self) -> np.ndarray | None:
        """Returns the payload behind `head`; None where it is not as it was written."""
        assert self.head is not None
        payload = np.empty(self.head.frame_bytes - HEAD_BYTES, np.uint8)
        length = os.preadv(self._descriptor, [payload.data], self.position + HEAD_BYTES)
        self.position += self.head.frame_bytes
        is_whole = length == len(payload) and body_crc(payload.data) == self.head.payload_crc
        return payload if is_whole else None
