"""The files of one consume queue: one logical file, made of files of equal size in one folder.

Maps: logical byte positions to files, by division. A file has its full length from the start, since
RocketMQ maps it whole, but is sparse: room is allocated piece by piece, ahead of what is written,
so that a queue costs what it holds. Checksummed: no. After a crash the last file may be empty, or
hold zeros or old units behind the valid ones; the queue's recovery finds their end.

Written and read by positional calls, never through a mapping: a full disk, a damaged one or a file
that was taken away is an error here, never a signal. Used by `ConsumeQueue` only.
Source: MappedFileQueue, docs/design/storage.md section 1.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.store.files import durable
from rocketpy_broker.store.log.segment import NAME_DIGITS
from rocketpy_broker.store.queues.open_files import OpenFile, OpenFiles

# Room is allocated by blocks of the file system, as much ahead as there is, up to so much.
BLOCK_BYTES = 4096
AHEAD_BYTES_MAX = 256 << 10
STRIDE_BYTES = 1 << 20
ZEROS = memoryview(bytes(STRIDE_BYTES))
NOTHING = 1 << 62


class QueueFiles:
    """Positions count bytes. One thread changes it; any may read what was written, and flush."""

    __slots__ = (
        "_allocated_end",
        "_is_closed",
        "_new_folders",
        "_unflushed_from",
        "begin",
        "end",
        "file_bytes",
        "folder",
        "open_files",
    )

    def __init__(self, folder: str, file_bytes: int, open_files: OpenFiles) -> None:
        self.folder = folder
        self.file_bytes = file_bytes
        self.open_files = open_files
        # Of the first file, and behind the last one; both 0 where there is none.
        self.begin = self.end = 0
        # What lies below is allocated, as far as this process knows.
        self._allocated_end = 0
        self._unflushed_from = NOTHING
        # Of a file that was made without a flush: the folders that its first flush takes along.
        self._new_folders: list[Path] | None = None
        self._is_closed = False

    # --- Which files there are ---

    def load(self) -> None:
        """Finds what is in the folder, which is there.

        Raises StoreDirectoryError, and leaves all files alone.
        """
        folder = Path(self.folder)
        durable.unfinished_path(folder).unlink(missing_ok=True)
        paths = sorted(path for path in folder.iterdir() if path.is_file())
        if paths and paths[-1].stat().st_size == 0:
            durable.remove_file(paths.pop())
        for number, path in enumerate(paths):
            self._check(path, int(paths[0].name) + number * self.file_bytes)
        if paths:
            self.adopt(int(paths[0].name), int(paths[-1].name) + self.file_bytes)

    def _check(self, path: Path, base: int) -> None:
        if not is_file_name(path.name):
            raise StoreDirectoryError(
                path, f"is not named by {NAME_DIGITS} digits", "move this file out of the store"
            )
        length = path.stat().st_size
        if length != self.file_bytes:
            raise StoreDirectoryError(
                path,
                f"has {length} bytes instead of {self.file_bytes}",
                "start with the file size that this store was made with, or restore this file",
            )
        if int(path.name) != base or base % self.file_bytes:
            raise StoreDirectoryError(
                path,
                f"should begin at {base}",
                "a file before it is missing: restore it, or move the later ones away",
            )

    def adopt(self, begin: int, end: int) -> None:
        """The files from `begin` to `end` are there."""
        self.begin, self.end = begin, end
        self._allocated_end = max(begin, end - self.file_bytes)

    @property
    def bases(self) -> range:
        """Where each file begins."""
        return range(self.begin, self.end, self.file_bytes)

    def base_of(self, position: int) -> int:
        """Where the file begins that holds `position`, whether it is there or not."""
        return position - position % self.file_bytes

    def has(self, position: int) -> bool:
        """True if the file that holds `position` is there."""
        return self.begin <= position < self.end

    def path_of(self, base: int) -> str:
        """Where the file is that begins at `base`."""
        return f"{self.folder}/{name_of(base)}"

    # --- Reading ---

    def read(self, position: int, length: int) -> bytes:
        """Bytes of one file that is there. Raises OSError."""
        within = position % self.file_bytes
        return os.pread(self._get(position - within).descriptor, length, within)

    def open_once(self, base: int) -> OpenFile:
        """Returns a file for a single look, which takes no other's place. Raises OSError."""
        return self.open_files.open_once(self.path_of(base))

    def _get(self, base: int) -> OpenFile:
        if self._is_closed:
            raise OSError(errno.EBADF, "the queue is closed", self.path_of(base))
        return self.open_files.get(self, base)

    # --- Writing ---

    def reserve(self, end: int) -> None:
        """See that there is room up to `end`. Raises OSError; what was there stays as it was."""
        while self._allocated_end < end:
            if self._allocated_end >= self.end:
                self._create(end)
            else:
                self._allocate(end)

    def begin_at(self, position: int) -> None:
        """Let the first file of an empty queue be the one that holds `position`."""
        assert self.begin == self.end
        self.adopt(self.base_of(position), self.base_of(position))

    def _create(self, end: int) -> None:
        if self._new_folders:
            # At most the last file is one that a power cut could take, so no gap comes of it.
            self.open_files.flush_one(self)
        base, path = self.end, Path(self.path_of(self.end))
        room = self._room(base, end)
        descriptor, folders = self.open_files.with_descriptor(
            lambda: durable.create_unflushed(path, self.file_bytes, room)
        )
        os.close(descriptor)
        self.end = base + self.file_bytes
        self._allocated_end = base + room
        self._note_written(base, folders)

    def _allocate(self, end: int) -> None:
        base = self.base_of(self._allocated_end)
        begin, room = self._allocated_end - base, self._room(base, end)
        os.posix_fallocate(self._get(base).descriptor, begin, room - begin)
        self._allocated_end = base + room

    def _room(self, base: int, end: int) -> int:
        """Bytes to allocate in the file at `base`: up to `end`, and some ahead."""
        wanted = min(end - base, self.file_bytes)
        ahead = wanted + min(wanted, AHEAD_BYTES_MAX)
        if wanted <= BLOCK_BYTES:
            ahead = wanted
        return min(-(-ahead // BLOCK_BYTES) * BLOCK_BYTES, self.file_bytes)

    def write(self, position: int, data: bytes) -> None:
        """Writes into one file, for which there is room or can be. Raises OSError."""
        if position + len(data) > self._allocated_end:
            self.reserve(position + len(data))
        self.overwrite(position, data)

    def overwrite(self, position: int, data: bytes) -> None:
        """As `write`, where something was written before: that needs no more room."""
        within = position % self.file_bytes
        file = self._get(position - within)
        written = os.pwrite(file.descriptor, data, within)
        if written < len(data):
            durable.write_whole(file.descriptor, memoryview(data)[written:], within + written)
        # Looked at behind the write: a flush that takes this note afterwards flushes the write.
        if position < self._unflushed_from:
            self._note_written(position)

    def _note_written(self, position: int, folders: list[Path] | None = None) -> None:
        with self.open_files.lock:
            self._unflushed_from = min(self._unflushed_from, position)
            if folders:
                self._new_folders = [*(self._new_folders or []), *folders]
            self.open_files.note_written(self)

    def clear_from(self, position: int) -> None:
        """Zero what is not zero in the file that holds `position`, from there on. Raises OSError.

        Nothing happens where no file holds it.
        """
        if not self.has(position):
            return
        base = self.base_of(position)
        file = self._get(base)
        start = position - base
        end = used_end(file, start)
        if end == start:
            return
        for begin in range(start, end, STRIDE_BYTES):
            durable.write_whole(file.descriptor, ZEROS[: min(STRIDE_BYTES, end - begin)], begin)
        self._note_written(position)

    # --- Removing, flushing ---

    def remove_from(self, position: int) -> None:
        """Removes the files that begin at or behind `position`, last one first. Raises OSError."""
        while self.end > self.begin and self.end - self.file_bytes >= position:
            base = self.end - self.file_bytes
            self.open_files.drop(self, range(base, self.end, self.file_bytes))
            durable.remove_file(Path(self.path_of(base)))
            self.end = base
            self._allocated_end = min(self._allocated_end, base)
        if self.begin == self.end:
            self.adopt(0, 0)

    def drop_first(self) -> None:
        """Forgets the oldest file, which has been removed."""
        self.open_files.drop(self, range(self.begin, self.begin + self.file_bytes, self.file_bytes))
        self.begin += self.file_bytes

    def take_unflushed(self) -> tuple[int, list[Path] | None]:
        """From where on there is something to flush, and which folders; the caller flushes it."""
        with self.open_files.lock:
            taken = self._unflushed_from, self._new_folders
            self._unflushed_from, self._new_folders = NOTHING, None
        return taken

    def flush(self) -> None:
        """Makes what was written durable. Blocks. Raises OSError; it may then be called again.

        What was closed or removed meanwhile needs no flush.
        """
        position, folders = self.take_unflushed()
        try:
            for base in self.bases:
                if base + self.file_bytes > position and not self._is_closed:
                    self._flush_file(base)
            durable.sync_new(folders or [])
        except OSError:
            self._note_written(position, folders)
            raise

    def _flush_file(self, base: int) -> None:
        try:
            os.fdatasync(self.open_files.get(self, base).descriptor)
        except FileNotFoundError:
            if self.has(base) and not self._is_closed:
                raise

    def close(self) -> None:
        """Closes the files."""
        self._is_closed = True
        self.open_files.forget(self, self.bases)


def name_of(base: int) -> str:
    """Returns the name of the file that begins at `base`."""
    return f"{base:0{NAME_DIGITS}d}"


def is_file_name(name: str) -> bool:
    """True if a file of a queue can have this name."""
    return name.isdecimal() and len(name) == NAME_DIGITS


def used_end(file: OpenFile, position: int) -> int:
    """Behind the last byte from `position` on that is not zero; `position` if there is none."""
    end = position
    for begin, stop in durable.written_ranges(file.descriptor, position):
        for start in range(begin, stop, STRIDE_BYTES):
            data = os.pread(file.descriptor, min(STRIDE_BYTES, stop - start), start).rstrip(b"\0")
            if data:
                end = start + len(data)
    return end
