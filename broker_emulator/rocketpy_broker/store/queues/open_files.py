"""The files of all queues that are open at a time: a bounded number, the longest unused go first.

Maps: a queue's files and the begin of one of them to its descriptor. Opened at their next use, so a
queue that nobody uses takes no descriptor; where the process has none left, others are closed for
it. Also knows which queues were written since their last flush, so that a flush looks at those
only. Memory only; a crash leaves nothing of it. Any thread may use it.
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
# What the queues may take of the descriptors that the process may have; the rest is for others.
SHARE_OF_DESCRIPTORS = 4
# From so many written queues on, the whole file system is flushed at once: each wait for the disk
# takes as long as that.
SINGLE_FLUSHES_MAX = 16


class OpenFile:
    """A descriptor, closed when nobody holds this object any more: not even the last to use it."""

    __slots__ = ("descriptor",)

    def __init__(self, path: str, *, read_only: bool) -> None:
        mode = os.O_RDONLY if read_only else os.O_RDWR
        self.descriptor = os.open(path, mode | os.O_CLOEXEC | os.O_NOFOLLOW)

    def __del__(self) -> None:
        # Without one if it could not be opened.
        descriptor = getattr(self, "descriptor", None)
        if descriptor is not None:
            os.close(descriptor)


class Owner(Protocol):
    """The files of one queue."""

    def path_of(self, base: int) -> str:
        """Where the file is that begins at `base`."""

    def flush(self) -> None:
        """Makes what was written durable. Raises OSError; it may then be called again."""

    def take_unflushed(self) -> object:
        """What was written until now; the caller makes it durable."""


def open_files_max() -> int:
    """How many files queues may have open, going by what the system grants the process."""
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
        # In the order of their first write; a queue that is flushed goes before its flush.
        self._written: dict[Owner, None] = {}
        self._flush_error: OSError | None = None

    def __len__(self) -> int:
        return len(self._open)

    def get(self, owner: Owner, base: int) -> OpenFile:
        """Returns the file of `owner` that begins at `base`. Raises OSError, such as FileNotFoundError."""
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
        """Returns a file for a single look, which takes no other's place. Raises OSError."""
        return self.with_descriptor(lambda: OpenFile(path, read_only=self._read_only))

    def with_descriptor(self, make: Callable[[], Made]) -> Made:
        """What `make` opens; files are closed for it where there are too many. Raises OSError."""
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
        """`owner` is closed: it needs no flush any more."""
        self.drop(owner, bases)
        self._written.pop(owner, None)

    def note_written(self, owner: Owner) -> None:
        """`owner` has something to flush. To be called with the lock."""
        self._written[owner] = None

    def flush(self, folder: Path) -> None:
        """Makes what was written below `folder` durable. Blocks. Raises OSError.

        After a failed flush it raises the same again: the system may have dropped what it could
        not write. Being out of descriptors is no such failure; what is left is of the next flush.
        """
        if len(self._written) > SINGLE_FLUSHES_MAX:
            self._flushing(lambda: self._flush_file_system(folder))
        for owner in list(self._written):
            # Before its flush: what is written meanwhile is of the next one.
            self._written.pop(owner, None)
            self.flush_one(owner)

    @property
    def flush_error(self) -> OSError | None:
        """Why a flush failed: from then on files may lose what was written, as pages go."""
        return self._flush_error

    def flush_one(self, owner: Owner) -> None:
        """Makes what `owner` has written durable. Blocks. Raises OSError, as `flush` does."""
        self._flushing(lambda: self.with_descriptor(owner.flush))

    def _flushing(self, flush: Callable[[], None]) -> None:
        if self._flush_error is not None:
            raise self._flush_error
        try:
            flush()
        except OSError as error:
            if error.errno not in OUT_OF_DESCRIPTORS:
                self._flush_error = error
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
