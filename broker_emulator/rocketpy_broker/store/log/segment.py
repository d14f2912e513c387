"""One file of fixed size, of the commit log or its checksums.

Maps: byte positions of a logical file, from `base` on, to this file. Entry size: none of its own.
Searched: by position only. Checksummed: no, the owner checks the contents. After a crash the file
has its full size, since blocks are allocated before they are written. The owner's recovery finds
the valid part. Used by `SegmentQueue`, `SegmentChecksums` and the store check.

Written by positional writes, read through a mapping: both use the same page cache. The file is
never truncated while mapped, so a read cannot raise a signal.
Source of name and size: docs/design/storage.md section 1.
"""

from __future__ import annotations

import mmap
import os
import threading
from pathlib import Path

import numpy as np

from rocketpy_broker.store.files import durable
from rocketpy_broker.store.log.file_sequence import NAME_DIGITS

# The unit in which the system counts a file's blocks.
STAT_BLOCK_BYTES = 512
ZERO_STRIDE_BYTES = 1 << 20
ZEROS = memoryview(bytes(ZERO_STRIDE_BYTES))


class Segment:
    """A mapped file; `base` is the logical position of its first byte."""

    def __init__(self, path: Path, base: int, size_bytes: int, descriptor: int) -> None:
        self.path = path
        self.base = base
        self.size_bytes = size_bytes
        self._descriptor = descriptor
        self._is_closed = False
        self._flush_error: OSError | None = None
        # The flush thread must not use a descriptor that is closed, or reused for another file.
        self._in_use = threading.Lock()
        self._mapping = mmap.mmap(descriptor, size_bytes, access=mmap.ACCESS_READ)
        self.view = memoryview(self._mapping)

    @classmethod
    def create(cls, folder: Path, base: int, size_bytes: int) -> Segment:
        """Allocates a new file. Raises OSError, for instance when the disk is full."""
        path = folder / f"{base:0{NAME_DIGITS}d}"
        return cls(path, base, size_bytes, durable.create_allocated(path, size_bytes))

    @classmethod
    def open(cls, path: Path, size_bytes: int) -> Segment:
        """Opens an existing file of this size. Raises OSError."""
        status = path.stat()
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            # A file copied sparsely gets its blocks now, so that later writes cannot miss them.
            # posix_fallocate changes the modification time, which cleaning uses, so it is restored.
            if status.st_blocks * STAT_BLOCK_BYTES < size_bytes:
                os.posix_fallocate(descriptor, 0, size_bytes)
                os.utime(descriptor, ns=(status.st_atime_ns, status.st_mtime_ns))
            return cls(path, int(path.name), size_bytes, descriptor)
        except OSError:
            os.close(descriptor)
            raise

    @property
    def end(self) -> int:
        """Logical position after the last byte."""
        return self.base + self.size_bytes

    def write(self, position: int, data: memoryview) -> None:
        """Writes `data` at a position inside this file. Raises OSError."""
        durable.write_whole(self._descriptor, data, position)

    def allocate(self, end: int) -> None:
        """Allocates disk blocks for the first `end` bytes. Raises OSError on a full disk."""
        os.posix_fallocate(self._descriptor, 0, end)

    def used_end(self, position: int) -> int:
        """Returns the position after the last nonzero byte from `position` on, or `position`."""
        # Pages that the system reads ahead would count as written from then on.
        self._mapping.madvise(mmap.MADV_RANDOM)
        data = np.frombuffer(self.view, np.uint8)
        end = position
        for begin, stop in durable.written_ranges(self._descriptor, position):
            for start in range(begin, stop, ZERO_STRIDE_BYTES):
                part = data[start : min(start + ZERO_STRIDE_BYTES, stop)]
                if part.any():
                    end = start + int(np.flatnonzero(part)[-1]) + 1
        self._mapping.madvise(mmap.MADV_NORMAL)
        return end

    def clear_from(self, position: int) -> int:
        """Zeroes the nonzero bytes from `position` on; returns the position after the last one."""
        end = self.used_end(position)
        for start in range(position, end, ZERO_STRIDE_BYTES):
            self.write(start, ZEROS[: min(ZERO_STRIDE_BYTES, end - start)])
        return end

    def flush(self) -> None:
        """Makes every byte written so far durable. Blocks; call it from a thread. Raises OSError.

        A segment that has been closed or removed meanwhile needs no flush. After a failed flush it
        is not flushed again: the system may have dropped unwritten pages.
        """
        with self._in_use:
            if self._flush_error is not None:
                raise self._flush_error
            if self._is_closed:
                return
            try:
                os.fdatasync(self._descriptor)
            except OSError as error:
                self._flush_error = error
                raise

    def changed_ms(self) -> float:
        """Returns the time of the last write, wall time in ms. Raises OSError."""
        return os.fstat(self._descriptor).st_mtime * 1000

    def close(self) -> None:
        """Closes the descriptor. The mapping lives until the last view of it is dropped."""
        with self._in_use:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._descriptor)

    def remove(self) -> None:
        """Closes and deletes the file."""
        self.close()
        durable.remove_file(self.path)
