"""Read-only access to a store that no broker serves.

The locks are taken in their shared form, which needs no write permission and still excludes
brokers. Misplaced files are reported and skipped. Nothing is recovered, so the state after a crash
is visible as it is. The offline commands check, export and backup use this module.
Source: docs/design/storage.md sections 1 (names, sizes) and 8.3 (lock).
"""

from __future__ import annotations

import fcntl
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.store.files.directory import lock_file, lock_folder, started_last_by_us
from rocketpy_broker.store.files.links import refuse_links
from rocketpy_broker.store.files.manifest import Manifest
from rocketpy_broker.store.log.checksums import SegmentChecksums, checksums_file_bytes
from rocketpy_broker.store.log.commit_log import CommitLog
from rocketpy_broker.store.log.file_sequence import (
    NAME_DIGITS,
    FileSequence,
    Misplaced,
    is_file_name,
)
from rocketpy_broker.store.log.segment import Segment
from rocketpy_broker.store.queues.consume_queue import ConsumeQueue
from rocketpy_broker.store.queues.open_files import OpenFiles
from rocketpy_broker.store.queues.units import UNIT_BYTES
from rocketpy_broker.store.values import QueueKey

DEFAULT_SEGMENT_BYTES = 1 << 30
DEFAULT_QUEUE_FILE_BYTES = 6_000_000


@dataclass(frozen=True, slots=True)
class StoreSizes:
    """The sizes of a store's files, in bytes."""

    segment_bytes: int
    queue_file_bytes: int

    @classmethod
    def of(
        cls,
        folder: Path,
        segment_bytes: int | None = None,
        queue_file_bytes: int | None = None,
        new_segment_bytes: int = DEFAULT_SEGMENT_BYTES,
    ) -> StoreSizes:
        """Returns the given sizes, or else the manifest's, or else the most frequent file sizes.

        A store without segments gets `new_segment_bytes`.
        Raises StoreDirectoryError for the manifest of a newer version.
        """
        manifest = Manifest.load(folder / "rocketpy" / "manifest.json")
        if manifest is not None:
            segment_bytes = segment_bytes or manifest.segment_bytes
            queue_file_bytes = queue_file_bytes or manifest.queue_file_bytes
        return cls(
            segment_bytes or _usual_size((folder / "commitlog").glob("*")) or new_segment_bytes,
            queue_file_bytes
            or _usual_size((folder / "consumequeue").glob("*/*/*"), UNIT_BYTES)
            or DEFAULT_QUEUE_FILE_BYTES,
        )


def _usual_size(paths: Iterator[Path], multiple_of: int = 1) -> int | None:
    sizes = Counter(path.stat().st_size for path in paths if is_file_name(path.name))
    fitting = {size: sizes[size] for size in sizes if size and size % multiple_of == 0}
    return max(fitting, key=lambda size: (fitting[size], size), default=None)


class StoreReadLock:
    """A lock that excludes brokers while a store is read; use it as `with`.

    The operating system keeps one lock per process and file. A process that serves the store itself
    would not be excluded, and would lose its own lock.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._descriptors = ExitStack()
        # Set unless another broker has started since ours did.
        self.started_last = True

    def __enter__(self) -> StoreReadLock:
        """Raises StoreDirectoryError for a folder that is not a store, StoreLockedError, OSError.

        A store without a lock file, such as a copy, is not served by RocketMQ.
        """
        if not (self.folder / "commitlog").is_dir():
            raise StoreDirectoryError(
                self.folder, "is no store", "name a directory with a folder commitlog in it"
            )
        refuse_links(self.folder)
        path = self.folder / "lock"
        with ExitStack() as descriptors:
            held = lock_folder(self.folder, fcntl.LOCK_SH)
            if held is not None:
                descriptors.callback(os.close, held)
            if path.exists():
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                descriptors.callback(os.close, descriptor)
                lock_file(descriptor, fcntl.LOCK_SH, path)
                self.started_last = started_last_by_us(descriptor)
            self._descriptors = descriptors.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        """Releases the locks."""
        self._descriptors.close()


@dataclass(frozen=True, slots=True)
class LoadedLog:
    """The log, and the entries of its folders that do not belong to it."""

    log: CommitLog
    misplaced: list[Misplaced]
    misplaced_checksums: list[Misplaced]


def load_log(folder: Path, segment_bytes: int) -> LoadedLog:
    """Maps log and checksums of the store in `folder`; `end` is the files' end. Raises OSError.

    The caller closes the log.
    """
    checksums_folder = folder / "rocketpy" / "checksums"
    log = CommitLog(folder / "commitlog", checksums_folder, segment_bytes)
    sequence = FileSequence.find(folder / "commitlog", segment_bytes)
    for path in sequence.paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        log.files.segments.append(Segment(path, int(path.name), segment_bytes, descriptor))
    log.end = log.flushed = log.files.end
    file_bytes, misplaced = checksums_file_bytes(segment_bytes), []
    for path in sorted(checksums_folder.iterdir()) if checksums_folder.is_dir() else []:
        if not (path.is_file() and is_file_name(path.name)):
            misplaced.append(Misplaced(path, f"is no file with a name of {NAME_DIGITS} digits"))
        elif path.stat().st_size != file_bytes:
            reason = f"has {path.stat().st_size} bytes instead of {file_bytes}"
            misplaced.append(Misplaced(path, reason))
        elif log.files.find(int(path.name)) is None:
            misplaced.append(Misplaced(path, "belongs to no file of the log"))
        else:
            base = int(path.name)
            log.checksums.add(SegmentChecksums(path, base, segment_bytes, read_only=True))
    return LoadedLog(log, sequence.misplaced, misplaced)


def queue_keys(folder: Path) -> list[QueueKey]:
    """Returns the queues of the store in `folder`, by topic and queue id. Raises OSError."""
    found = (
        QueueKey(path.parent.name, int(path.name))
        for path in (folder / "consumequeue").glob("*/*")
        if path.is_dir() and path.name.isascii() and path.name.isdecimal()
    )
    return sorted(set(found))


def queue_folder(folder: Path, key: QueueKey) -> Path:
    """Returns the folder of a queue of the store in `folder`."""
    return folder / "consumequeue" / key.topic / str(key.queue_id)


class ReadOnlyQueue(ConsumeQueue):
    """A consume queue that is only read: bytes after its last unit remain."""

    @classmethod
    def load(
        cls, folder: Path, file_bytes: int, log_begin: int, open_files: OpenFiles | None = None
    ) -> ReadOnlyQueue:
        """Loads the files. Raises StoreDirectoryError for a misplaced file, OSError."""
        files = OpenFiles(read_only=True) if open_files is None else open_files
        queue = cls(folder, file_bytes, files)
        for one in queue._files.adopt_found(FileSequence.find(folder, file_bytes)):
            raise StoreDirectoryError(one.path, one.reason, "run `rocketpy store check`")
        queue._recover()
        queue.min_offset = queue._first_offset_after(log_begin)
        return queue

    def _set_end(self, max_offset: int) -> None:
        self.max_offset = max_offset
        self._set_physical_end()
