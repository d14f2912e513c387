"""The open files of all queues, limited in number.

Maps: a queue and the start of one of its files to the file's descriptor. The least recently used
file is closed first and opened again at its next use. So an unused queue takes no descriptor. If
the process has no descriptor left, a file is closed to free one. The module also records the queues
written since their last flush, so that a flush visits only these. State is in memory only. Any
thread may use it.
"""

from __future__ import annotations

import os
import resource
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from rocketpy_broker.store.files import durable
from rocketpy_broker.store.files.durable import OUT_OF_DESCRIPTORS

Made = TypeVar("Made")

OPEN_FILES_MAX = 256
OPEN_FILES_MIN = 8
# Queues may use the process's descriptors divided by this number.
SHARE_OF_DESCRIPTORS = 4
# Above this number of written queues the whole file system is flushed at once: it takes as long as
# one wait for the disk.
SINGLE_FLUSHES_MAX = 16


class OpenFile:
    """A descriptor, closed when the last reference to this object is dropped, on any thread."""

    __slots__ = ("descriptor",)

    def __init__(self, path: str, *, read_only: bool) -> None:
        mode = os.O_RDONLY if read_only else os.O_RDWR
        self.descriptor = os.open(path, mode | os.O_CLOEXEC | os.O_NOFOLLOW)

    def __del__(self) -> None:
        # Missing if the file could not be opened.
        descriptor = getattr(self, "descriptor", None)
        if descriptor is not None:
            os.close(descriptor)


class Owner(Protocol):
    """The files of one queue."""

    def path_of(self, base: int) -> str:
        """Returns the path of the file that begins at `base`."""

    def flush(self) -> None:
        """Makes written bytes durable. Raises OSError; it may then be called again."""

    def take_unflushed(self) -> object:
        """Takes over the bytes written until now; the caller makes them durable."""


def open_files_max() -> int:
    """Returns the limit of open queue files, from the process's descriptor limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return OPEN_FILES_MAX
    return max(OPEN_FILES_MIN, min(OPEN_FILES_MAX, soft // SHARE_OF_DESCRIPTORS))


class OpenFiles:
    """The open files of one store's queues."""

    def __init__(self, *, read_only: bool = False) -> None:
        self._read_only = read_only
        self._open: OrderedDict[tuple[Owner, int], OpenFile] = OrderedDict()
        self.lock = threading.Lock()
        # In the order of their first write; a queue is removed before its flush.
        self._written: dict[Owner, None] = {}
        # The error of a failed flush; after it, files may lose written bytes.
        self.flush_error: OSError | None = None

    def __len__(self) -> int:
        return len(self._open)

    def get(self, owner: Owner, base: int) -> OpenFile:
        """Returns the file of `owner` that begins at `base`.

        Raises OSError, such as FileNotFoundError.
        """
        key = (owner, base)
        with self.lock:
            found = self._open.get(key)
            if found is not None:
                self._open.move_to_end(key)
                return found
        opened = self.open_once(owner.path_of(base))
        with self.lock:
            self._open[key] = opened
            count_max = open_files_max()
            while len(self._open) > count_max:
                self._open.popitem(last=False)
        return opened

    def open_once(self, path: str) -> OpenFile:
        """Returns a file for a single read, outside the limit of open files. Raises OSError."""
        return self.with_descriptor(lambda: OpenFile(path, read_only=self._read_only))

    def with_descriptor(self, make: Callable[[], Made]) -> Made:
        """Returns the result of `make`; closes files if descriptors run out. Raises OSError."""
        for _ in range(OPEN_FILES_MAX):
            try:
                return make()
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS or not self._close_one():
                    raise
        return make()

    def _close_one(self) -> bool:
        with self.lock:
            if not self._open:
                return False
            self._open.popitem(last=False)
            return True

    def drop(self, owner: Owner, bases: range) -> None:
        """Closes files of `owner`."""
        with self.lock:
            for base in bases:
                self._open.pop((owner, base), None)

    def forget(self, owner: Owner, bases: range) -> None:
        """Removes the closed `owner`, which needs no flush any more."""
        self.drop(owner, bases)
        self._written.pop(owner, None)

    def note_written(self, owner: Owner) -> None:
        """Marks `owner` as unflushed. The caller holds the lock."""
        self._written[owner] = None

    def flush(self, folder: Path) -> None:
        """Makes bytes written below `folder` durable. Blocks. Raises OSError.

        After a failed flush it raises the same error again: the system may have dropped unwritten
        pages. A lack of descriptors is no such failure; the next flush flushes the rest.
        """
        if len(self._written) > SINGLE_FLUSHES_MAX:
            self._flushing(lambda: self._flush_file_system(folder))
        for owner in list(self._written):
            # Removed before its flush: bytes written meanwhile belong to the next flush.
            self._written.pop(owner, None)
            self.flush_one(owner)

    def flush_one(self, owner: Owner) -> None:
        """Makes the written bytes of `owner` durable. Blocks. Raises OSError, as `flush` does."""
        self._flushing(lambda: self.with_descriptor(owner.flush))

    def _flushing(self, flush: Callable[[], None]) -> None:
        if self.flush_error is not None:
            raise self.flush_error
        try:
            flush()
        except OSError as error:
            if error.errno not in OUT_OF_DESCRIPTORS:
                self.flush_error = error
            raise

    def _flush_file_system(self, folder: Path) -> None:
        descriptor = self.with_descriptor(lambda: os.open(folder, os.O_RDONLY | os.O_DIRECTORY))
        try:
            for owner in list(self._written):
                self._written.pop(owner, None)
                owner.take_unflushed()
            durable.sync_file_system(descriptor)
        finally:
            os.close(descriptor)
