"""The staging area: the files of all attempts, and their disk space.

Files are in `rocketpy/staging/`. An attempt is identified by writer, batch, job token, task and
task token. The protocol services of batches decide which attempts count. A crash leaves files of
running attempts, of decided batches, and of attempts that are no longer needed. `load` finds all of
them, and removes files without a whole first frame.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from rocketpy_broker.errors import StagingFullError
from rocketpy_broker.store.files import durable
from rocketpy_broker.store.staging.file import (
    LOST_ERRNOS,
    FrameReader,
    StagedCounts,
    StagingFile,
    StagingScan,
)
from rocketpy_broker.store.staging.frames import (
    BlockPosition,
    Frame,
    StagedRecords,
    attempt_frame,
    block_frames,
    seal_frame,
)
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.struct_types import prepared

logger = logging.getLogger(__name__)
NAME_DIGITS = 20
# The allocation unit of file systems.
UNIT_BYTES = 4096
FINGERPRINT_BYTES = 8
INT64_MAX = (1 << 63) - 1
Int64 = Annotated[int, msgspec.Meta(ge=-INT64_MAX - 1, le=INT64_MAX)]
Count = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]


@dataclass(frozen=True, slots=True)
class BatchJob:
    """One run of a job that writes a batch."""

    writer_id: str
    batch_id: int
    token: int


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """One attempt at a task of a job."""

    job: BatchJob
    task: int
    token: int


class _AttemptContent(msgspec.Struct, rename="camel"):
    """The content of an attempt's frame."""

    writer_id: Annotated[str, msgspec.Meta(min_length=1)]
    batch_id: Count
    job_token: Int64
    task: Count
    task_token: Int64
    log_end: Count


@dataclass(frozen=True, slots=True)
class BlockFrames:
    """A block's frames, its highest queue, and its attempt's counts including the block."""

    queue: QueueKey
    frames: list[Frame]
    counts: StagedCounts

    @property
    def file_bytes(self) -> int:
        """The maximum disk space of the block; a file's first one includes the attempt's frame."""
        return sum(frame.head.frame_bytes for frame in self.frames) + 2 * UNIT_BYTES


@dataclass(eq=False, slots=True)
class StagedAttempt:
    """The staged records of an attempt. Only one call at a time may use it.

    The deletion of a topic also removes its staged messages. A commit recognizes a deletion by a
    mark above `log_end`, or by a changed count of deletions. `deletion_counts` has the counts of
    topics for which this process has staged records.

    `end` is the position of the next frame, -1 if only `scan` can find it. `changed_ns` is the
    time of the last write. It is 0 if that was before the broker's start, or if another process has
    also written. `is_older` marks an attempt of an earlier process. Only that process knew the
    deletions while the log ended at `log_end`.
    """

    attempt: TaskAttempt
    log_end: int
    file: StagingFile
    counts: StagedCounts = field(default_factory=StagedCounts)
    end: int = 0
    is_sealed: bool = False
    changed_ns: int = 0
    file_bytes: int = 0
    queue_ids: dict[str, int] = field(default_factory=dict)
    deletion_counts: dict[str, int] = field(default_factory=dict)
    is_older: bool = False

    def _content(self) -> bytes:
        job = self.attempt.job
        content = {
            "writerId": job.writer_id,
            "batchId": job.batch_id,
            "jobToken": job.token,
            "task": self.attempt.task,
            "taskToken": self.attempt.token,
            "logEnd": self.log_end,
        }
        return json.dumps(content).encode()

    @property
    def fingerprint(self) -> int:
        """A number that differs between attempts; a restarted broker may use file names again."""
        digest = hashlib.blake2b(self._content(), digest_size=FINGERPRINT_BYTES).digest()
        return int.from_bytes(digest, "big", signed=True)

    @classmethod
    def read(cls, path: Path) -> StagedAttempt | None:
        """Returns the attempt in the file `path`; None if it is not whole. Raises OSError."""
        file = StagingFile(path)
        content = file.attempt()
        if content is None:
            return None
        try:
            found = msgspec.json.decode(content, type=prepared(_AttemptContent))
        except (msgspec.MsgspecError, RecursionError):
            # Bytes that no broker has written.
            return None
        job = BatchJob(found.writer_id, found.batch_id, found.job_token)
        attempt = TaskAttempt(job, found.task, found.task_token)
        size = disk_bytes(path.stat().st_size)
        return cls(attempt, found.log_end, file, end=-1, file_bytes=size, is_older=True)

    def frames_of(self, records: StagedRecords, frame_bytes: int) -> BlockFrames:
        """Returns the next block for `write`: frames of at most `frame_bytes`, or one record."""
        counts, block = self.counts, records.block
        place = BlockPosition(counts.block_count, counts.record_count)
        frames = list(block_frames(records, place, frame_bytes))
        after = StagedCounts(
            counts.block_count + 1,
            counts.record_count + len(block),
            counts.bytes + len(block.data),
        )
        return BlockFrames(QueueKey(records.queue.topic, records.queue_id_max), frames, after)

    def write(self, block: BlockFrames) -> None:
        """Adds a block. Blocks. Raises OSError and adds nothing."""
        is_untouched = self.end == 0 or self.is_untouched
        if self.end == 0:
            self.end = self.file.create(attempt_frame(self._content()))
            self.file_bytes = disk_bytes(self.end)
        self.end = self.file.append(self.end, block.frames)
        self.changed_ns = self.file.changed_ns() if is_untouched else 0
        self.counts = block.counts
        self.file_bytes = disk_bytes(self.end)
        topic, queue_id = block.queue
        self.queue_ids[topic] = max(queue_id, self.queue_ids.get(topic, 0))

    def seal(self, *, durable: bool) -> None:
        """Marks the attempt as complete. Blocks. Raises OSError; the attempt is then unusable."""
        if self.is_sealed or self.end == 0:
            return
        is_untouched = self.is_untouched
        end = BlockPosition(self.counts.block_count, self.counts.record_count)
        self.file.append(self.end, [seal_frame(end)])
        if durable:
            self.file.flush()
        self.changed_ns = self.file.changed_ns() if is_untouched else 0
        self.is_sealed = True

    def scan(self) -> None:
        """Reads the attempt's state from the file. Blocks. Raises OSError."""
        found: StagingScan = self.file.scan(self._content())
        self.counts, self.end, self.is_sealed = found.counts, found.end, found.is_sealed
        self.queue_ids = found.queue_ids
        self.changed_ns = self.file.changed_ns()

    @contextmanager
    def reading(self) -> Iterator[FrameReader | None]:
        """Yields a reader of the file's blocks; None for another attempt's file. Raises OSError."""
        with self.file.reading() as reader:
            yield reader if reader.attempt() == self._content() else None

    @property
    def is_untouched(self) -> bool:
        """True if the file is unchanged since this process last wrote or read it. Blocks."""
        try:
            return self.changed_ns != 0 and self.file.changed_ns() == self.changed_ns
        except OSError:
            return False


def disk_bytes(file_bytes: int) -> int:
    """Returns the disk space of a file of `file_bytes`."""
    return -(-file_bytes // UNIT_BYTES) * UNIT_BYTES


class StagingArea:
    """The folder and its used space. `frame_bytes` limits the records of one append.

    Any thread may reserve and free space.
    """

    def __init__(self, folder: Path, bytes_max: int, frame_bytes: int) -> None:
        self.folder = folder
        self.frame_bytes = frame_bytes
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self._counting = threading.Lock()
        self._next_number = 0

    def load(self) -> list[StagedAttempt]:
        """Returns the attempts of earlier runs. Blocks. Raises OSError."""
        durable.make_folder(self.folder)
        attempts, torn = [], []
        for path in sorted(self.folder.iterdir()):
            if path.suffix == ".tmp":
                torn.append(path)
                continue
            if not (path.name.isdecimal() and len(path.name) == NAME_DIGITS):
                logger.warning("%s is no staging file and is ignored; move it elsewhere", path)
                continue
            self._next_number = int(path.name) + 1
            try:
                attempt = StagedAttempt.read(path)
            except OSError as error:
                if error.errno not in LOST_ERRNOS:
                    raise
                logger.warning(
                    "%s cannot be read (%s), its staged records are lost; check the broker's disk",
                    path,
                    error.strerror,
                )
                continue
            if attempt is None:
                torn.append(path)
            else:
                attempts.append(attempt)
                self.used_bytes += attempt.file_bytes
        durable.remove_files(torn)
        return attempts

    def new_attempt(self, attempt: TaskAttempt, log_end: int) -> StagedAttempt:
        """Returns an attempt without blocks, and without a file yet."""
        path = self.folder / f"{self._next_number:0{NAME_DIGITS}d}"
        self._next_number += 1
        return StagedAttempt(attempt, log_end, StagingFile(path))

    def check_space(self, job_bytes: int, added_bytes: int) -> None:
        """Raises StagingFullError if the area has no space for `added_bytes`."""
        if self.used_bytes + added_bytes > self.bytes_max:
            raise StagingFullError(self.used_bytes, job_bytes + added_bytes, self.bytes_max)

    def reserve_space(self, job_bytes: int, added_bytes: int) -> None:
        """Reserves bytes before they are written. Raises StagingFullError, and reserves nothing."""
        with self._counting:
            self.check_space(job_bytes, added_bytes)
            self.used_bytes += added_bytes

    def give_back(self, bytes_: int) -> None:
        """Frees reserved bytes that were not written, or were removed."""
        with self._counting:
            self.used_bytes -= bytes_

    def remove(self, attempt: StagedAttempt) -> bool:
        """Removes the attempt's file; returns True if that was possible. Blocks."""
        try:
            durable.remove_files([attempt.file.path])
        except OSError:
            return False
        return True
