"""The files of one consume queue, as one logical file.

Maps: logical byte positions to files of equal size in one folder, by division. A file has its full
length from the start, since RocketMQ maps it whole, but is sparse. Disk blocks are allocated in
steps, ahead of writes, so that a queue uses only what it needs. Checksummed: no. After a crash the
last file may be empty, or hold zeros or old units after the valid ones. The queue's recovery finds
their end.

Files are written and read by positional calls, never through a mapping. So a full disk, a damaged
disk or a removed file is an error here, never a signal. Used by `ConsumeQueue` only.
Source: MappedFileQueue, docs/design/storage.md section 1.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from rocketpy_broker.store.files import durable
from rocketpy_broker.store.log.file_sequence import NAME_DIGITS, FileSequence, Misplaced
from rocketpy_broker.store.queues.open_files import OpenFile, OpenFiles

# Space is allocated in blocks of the file system. A file of more than one block gets as much space
# ahead as it uses, up to AHEAD_BYTES_MAX.
BLOCK_BYTES = 4096
AHEAD_BYTES_MAX = 256 << 10
STRIDE_BYTES = 1 << 20
ZEROS = memoryview(bytes(STRIDE_BYTES))
NOTHING = 1 << 62


class QueueFiles:
    """The files of one queue; positions count bytes.

    One thread changes them; any thread may read written bytes, and flush.
    """

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
        # Start of the first file, and end of the last one; both 0 if there is none.
        self.begin = self.end = 0
        # Bytes below this position are allocated, as far as this process knows.
        self._allocated_end = 0
        self._unflushed_from = NOTHING
        # Folders of new files: the next flush makes the names of these files durable.
        self._new_folders: list[Path] | None = None
        self._is_closed = False

    # --- Files ---

    def load(self) -> None:
        """Finds the files of the folder, which must exist.

        Raises StoreDirectoryError for a misplaced file; it never removes a file that is not empty.
        """
        self.adopt_found(FileSequence.load(Path(self.folder), self.file_bytes))

    def adopt_found(self, found: FileSequence) -> list[Misplaced]:
        """Sets the range of the files that were found; returns the folder's other entries."""
        if found.paths:
            self.adopt(int(found.paths[0].name), int(found.paths[-1].name) + self.file_bytes)
        return found.misplaced

    def adopt(self, begin: int, end: int) -> None:
        """Sets the range of existing files to [begin, end)."""
        self.begin, self.end = begin, end
        self._allocated_end = max(begin, end - self.file_bytes)

    @property
    def bases(self) -> range:
        """Start position of each file."""
        return range(self.begin, self.end, self.file_bytes)

    def base_of(self, position: int) -> int:
        """Returns the start of the file for `position`, whether it exists or not."""
        return position - position % self.file_bytes

    def has(self, position: int) -> bool:
        """True if the file that holds `position` exists."""
        return self.begin <= position < self.end

    def path_of(self, base: int) -> str:
        """Returns the path of the file that begins at `base`."""
        return f"{self.folder}/{name_of(base)}"

    # --- Reading ---

    def read(self, position: int, length: int) -> bytes:
        """Returns bytes of one existing file. Raises OSError."""
        within = position % self.file_bytes
        return os.pread(self._get(position - within).descriptor, length, within)

    def open_once(self, base: int) -> OpenFile:
        """Returns a file for a single read, outside the limit of open files. Raises OSError."""
        return self.open_files.open_once(self.path_of(base))

    def _get(self, base: int) -> OpenFile:
        if self._is_closed:
            raise OSError(errno.EBADF, "the queue is closed", self.path_of(base))
        return self.open_files.get(self, base)

    # --- Writing ---

    def reserve(self, end: int) -> None:
        """Allocates space up to `end`. Raises OSError; existing content is kept."""
        while self._allocated_end < end:
            if self._allocated_end >= self.end:
                self._create(end)
            else:
                self._allocate(end)

    def begin_at(self, position: int) -> None:
        """Sets the start of an empty queue to the file that holds `position`."""
        assert self.begin == self.end
        self.adopt(self.base_of(position), self.base_of(position))

    def _create(self, end: int) -> None:
        if self._new_folders:
            # A power cut can then remove the last file at most, so it leaves no gap.
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
        """Returns the bytes to allocate in the file at `base`: up to `end`, and some ahead."""
        wanted = min(end - base, self.file_bytes)
        ahead = wanted + min(wanted, AHEAD_BYTES_MAX)
        if wanted <= BLOCK_BYTES:
            ahead = wanted
        return min(-(-ahead // BLOCK_BYTES) * BLOCK_BYTES, self.file_bytes)

    def write(self, position: int, data: bytes) -> None:
        """Writes into one file; allocates space if needed. Raises OSError."""
        if position + len(data) > self._allocated_end:
            self.reserve(position + len(data))
        self.overwrite(position, data)

    def overwrite(self, position: int, data: bytes) -> None:
        """Writes as `write` does, over bytes written before, without allocation."""
        within = position % self.file_bytes
        file = self._get(position - within)
        written = os.pwrite(file.descriptor, data, within)
        if written < len(data):
            durable.write_whole(file.descriptor, memoryview(data)[written:], within + written)
        # Checked after the write: a flush that takes this note afterwards flushes the write.
        if position < self._unflushed_from:
            self._note_written(position)

    def _note_written(self, position: int, folders: list[Path] | None = None) -> None:
        with self.open_files.lock:
            self._unflushed_from = min(self._unflushed_from, position)
            if folders:
                self._new_folders = [*(self._new_folders or []), *folders]
            self.open_files.note_written(self)

    def clear_from(self, position: int) -> None:
        """Zeroes the nonzero bytes from `position` to the end of its file. Raises OSError.

        Does nothing if no file holds the position.
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
        """Removes the files that begin at or after `position`, last one first. Raises OSError."""
        while self.end > self.begin and self.end - self.file_bytes >= position:
            base = self.end - self.file_bytes
            self.open_files.drop(self, range(base, self.end, self.file_bytes))
            durable.remove_file(Path(self.path_of(base)))
            self.end = base
            self._allocated_end = min(self._allocated_end, base)
        if self.begin == self.end:
            self.adopt(0, 0)

    def drop_first(self) -> None:
        """Drops the oldest file, which has been removed."""
        self.open_files.drop(self, range(self.begin, self.begin + self.file_bytes, self.file_bytes))
        self.begin += self.file_bytes

    def take_unflushed(self) -> tuple[int, list[Path] | None]:
        """Returns and resets the first unflushed position and folders; the caller flushes them."""
        with self.open_files.lock:
            taken = self._unflushed_from, self._new_folders
            self._unflushed_from, self._new_folders = NOTHING, None
        return taken

    def flush(self) -> None:
        """Makes written bytes durable. Blocks. Raises OSError; it may then be called again.

        Files that were closed or removed meanwhile need no flush.
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


def used_end(file: OpenFile, position: int) -> int:
    """Returns the position after the last nonzero byte from `position` on, or `position`."""
    end = position
    for begin, stop in durable.written_ranges(file.descriptor, position):
        for start in range(begin, stop, STRIDE_BYTES):
            data = os.pread(file.descriptor, min(STRIDE_BYTES, stop - start), start).rstrip(b"\0")
            if data:
                end = start + len(data)
    return end
