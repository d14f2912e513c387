"""A copy of another broker's staging file.

The copy gets its name once it is on disk, and was read and checked as a whole. It then replaces a
file of that name that belongs to another attempt.
"""

from __future__ import annotations

import os
from pathlib import Path

from rocketpy_broker.store.files import durable
from rocketpy_broker.store.staging.area import StagedAttempt
from rocketpy_broker.store.staging.file import StagingFile


class StagedCopy:
    """The copy for `path`. All methods block, and raise OSError."""

    def __init__(self, path: Path, fingerprint: int) -> None:
        self._path = path
        self._fingerprint = fingerprint
        self._unfinished = durable.temporary_path(path)
        self.bytes = 0

    def is_there(self) -> bool:
        """True if `path` is the attempt's file, and complete."""
        return self._is_complete(self._path)

    def begin(self) -> None:
        """Creates an empty file with another name."""
        durable.make_folder(self._path.parent)
        durable.remove_files([self._unfinished])
        durable.create_empty(self._unfinished)

    def add(self, data: bytes | memoryview) -> None:
        """Adds the next bytes."""
        descriptor = os.open(self._unfinished, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            durable.write_whole(descriptor, memoryview(data), self.bytes)
        finally:
            os.close(descriptor)
        self.bytes += len(data)

    def finish(self) -> bool:
        """Makes the file durable under its name. Returns False and removes it if not complete."""
        is_complete = self._is_complete(self._unfinished)
        if is_complete:
            StagingFile(self._unfinished).flush()
            durable.move(self._unfinished, self._path)
        self.discard()
        return is_complete

    def discard(self) -> None:
        """Removes an unfinished file."""
        durable.remove_files([self._unfinished])

    def _is_complete(self, path: Path) -> bool:
        try:
            staged = StagedAttempt.read(path)
            if staged is None or staged.fingerprint != self._fingerprint:
                return False
            staged.scan()
        except FileNotFoundError:
            return False
        except (LookupError, TypeError, ValueError):
            # Bytes that no broker has written.
            return False
        return staged.is_sealed
