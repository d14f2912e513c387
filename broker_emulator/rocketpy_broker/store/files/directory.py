"""Use of a store's directory: `lock`, `abort`, flushed mark and manifest.

The running process alone holds `lock`. Its first bytes identify the last broker that started:
RocketMQ's brokers of any version write `lock` at each start. This broker writes its own word once
recovery is finished. `abort` holds the pid and is removed at a clean stop. In `rocketpy/`, the mark
and the manifest record the flushed position and the content of derived files. `storeId` identifies
the store, and `recoveries` has the log's end at each start after a crash. Mark and manifest are
valid only if no other broker has started since.

The order of a start is recoveries, manifest, abort, mark, lock. The order of a clean stop is
manifest, mark, abort. The next start recognizes a crash between any two steps.
Source: docs/design/storage.md sections 8.2 to 8.4.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from contextlib import ExitStack
from pathlib import Path

from rocketpy_broker.errors import StoreDirectoryError, StoreLockedError
from rocketpy_broker.store.files import durable, store_id
from rocketpy_broker.store.files.flushed_mark import FlushedMark, FlushedState, abort_text
from rocketpy_broker.store.files.links import FOLDERS, QUEUES, refuse_links
from rocketpy_broker.store.files.manifest import Manifest
from rocketpy_broker.store.files.recoveries import Recoveries

logger = logging.getLogger(__name__)
LOCK_WORD = b"rkpy"


class DirectoryLostError(OSError):
    """The directory, or its lock file, was removed, moved or replaced while it was held."""

    def __init__(self, path: Path) -> None:
        text = (
            f"the store's directory is no longer locked: {path} was removed, moved or replaced, "
            "and another broker may use the store. Stop the other broker, then restart this one"
        )
        super().__init__(errno.ESTALE, text)


def lock_file(descriptor: int, operation: int, path: Path) -> None:
    """Locks the file as RocketMQ does. Raises StoreLockedError, StoreDirectoryError."""
    try:
        fcntl.lockf(descriptor, operation | fcntl.LOCK_NB, 1, 0)
    except OSError as error:
        # POSIX allows either error for a lock that another process holds.
        if error.errno in {errno.EACCES, errno.EAGAIN}:
            raise StoreLockedError(path.parent) from error
        way_out = "use a directory on a file system with locks"
        reason = f"cannot be locked ({error.strerror})"
        raise StoreDirectoryError(path, reason, way_out) from error


def lock_folder(folder: Path, operation: int) -> int | None:
    """Locks a directory by `flock`; returns the descriptor that holds the lock.

    Returns None if the file system cannot lock directories; NFS cannot.
    Raises StoreLockedError, and OSError if the directory cannot be opened.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise StoreLockedError(folder) from error
    except OSError as error:
        os.close(descriptor)
        logger.warning(
            "directory %s cannot be locked (%s): only the lock of the file `lock` in it keeps "
            "other brokers out; never remove that file",
            folder,
            error.strerror,
        )
        return None
    return descriptor


def started_last_by_us(lock_descriptor: int) -> bool:
    """True if no other broker has started here since this one. Raises OSError.

    The file is empty in a new directory. It is not opened again: closing it would release the lock.
    """
    return os.pread(lock_descriptor, len(LOCK_WORD), 0) in (LOCK_WORD, b"")


class StoreDirectory:
    """One directory, from `acquire` to `release`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.own_folder = folder / "rocketpy"
        self._abort = folder / "abort"
        self._mark = FlushedMark(self.own_folder / "flushed")
        self.recoveries = Recoveries(self.own_folder / "recoveries")
        self._lock_path = folder / "lock"
        self._lock_descriptor: int | None = None
        self._folder_descriptor: int | None = None
        # The status of the lock file. No other file gets its inode number while it is open.
        self._held: os.stat_result | None = None
        # Set when `check` has found that the lock is lost.
        self.is_lost = False
        # Set with the lock.
        self.started_last = False

    @property
    def is_held(self) -> bool:
        """True if this process has the lock."""
        return self._lock_descriptor is not None

    def acquire(self) -> None:
        """Creates the folders and takes the locks. Raises StoreLockedError, StoreDirectoryError."""
        path = self._lock_path
        # There are many queues, so they are checked once, after the lock excludes other processes.
        refuse_links(self.folder, [name for name in FOLDERS if name != QUEUES])
        with ExitStack() as undo:
            undo.callback(self._unlock)
            try:
                self._take_locks(path)
            except OSError as error:
                reason, way_out = (
                    f"cannot be written ({error.strerror})",
                    "choose a directory that you may write to",
                )
                raise StoreDirectoryError(path, reason, way_out) from error
            undo.pop_all()

    def _take_locks(self, path: Path) -> None:
        for name in FOLDERS:
            durable.make_folder(self.folder / name)
        # The folder lock comes first: closing the file would release a lock of the same process.
        self._folder_descriptor = lock_folder(self.folder, fcntl.LOCK_EX)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._lock_descriptor = descriptor = os.open(path, flags, durable.FILE_MODE)
        lock_file(descriptor, fcntl.LOCK_EX, path)
        self._held = os.fstat(descriptor)
        self.check()
        self.started_last = started_last_by_us(descriptor)

    def check(self) -> None:
        """Raises DirectoryLostError if the store's path leads to another lock file, or to none.

        Does nothing after `release`. Any thread may call it.
        """
        held = self._held
        if held is None:
            return
        try:
            found = os.stat(self._lock_path, follow_symlinks=False)
            is_there = os.path.samestat(found, held)
        except OSError:
            is_there = False
        if not is_there:
            self.is_lost = True
            raise DirectoryLostError(self._lock_path)

    def identify(self) -> str:
        """Returns the store's id, generated at its first start.

        Raises StoreDirectoryError, OSError.
        """
        return store_id.load_or_generate(self.own_folder / "storeId")

    def adopt_id(self, adopted: str) -> None:
        """Gives the store the id of its master. Raises OSError."""
        store_id.save(self.own_folder / "storeId", adopted)

    def save(self, manifest: Manifest) -> None:
        """Replaces the manifest. Raises OSError."""
        manifest.save(self.own_folder / "manifest.json")

    def started(self, flushed: int, manifest: Manifest | None, *, abnormal: bool = False) -> None:
        """Marks the end of recovery, with the log on disk up to `flushed`. Raises OSError.

        `manifest` is None if the file already has that content. `abnormal` is set if the last run
        did not stop cleanly.
        """
        self.recoveries.started(flushed, abnormal=abnormal)
        if manifest is not None:
            self.save(manifest)
        # `abort` before the mark: `abort` with the mark of a clean stop counts as a crash without
        # new records.
        durable.replace_bytes(self._abort, abort_text(os.getpid()).encode())
        self._mark.open()
        self._mark.write(FlushedState(flushed, os.getpid(), clean=False))
        self._mark.flush()
        # Last: until then, the other files are not trusted after another broker's start.
        assert self._lock_descriptor is not None
        durable.write_whole(self._lock_descriptor, memoryview(LOCK_WORD), 0)
        os.fsync(self._lock_descriptor)

    def flushed(self, offset: int) -> None:
        """Records that the log is on disk up to `offset`.

        The value survives a kill from now on, and a power cut after `flush`.
        """
        self._mark.write(FlushedState(offset, os.getpid(), clean=False))

    def flush(self) -> None:
        """Makes the mark durable. Blocks. Raises OSError."""
        self._mark.flush()

    def stopped(self, manifest: Manifest) -> None:
        """Marks a clean stop: the next start may trust all files. Raises OSError."""
        self.save(manifest)
        self._mark.write(FlushedState(manifest.log_end, os.getpid(), clean=True))
        self._mark.flush()
        durable.remove_file(self._abort)

    def release(self) -> None:
        """Releases the locks."""
        self._mark.close()
        self._unlock()

    def _unlock(self) -> None:
        for descriptor in (self._lock_descriptor, self._folder_descriptor):
            if descriptor is not None:
                os.close(descriptor)
        self._lock_descriptor = self._folder_descriptor = self._held = None
