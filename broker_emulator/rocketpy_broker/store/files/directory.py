"""The files that say who uses a store and how it was left: `lock`, `abort`, mark and manifest.

`lock` is held by the running process alone, and its first bytes say who started last: RocketMQ's
brokers of any version write `lock` there with each start, we write our own word once recovery is
done. `abort` holds the pid and goes at a clean stop; the mark and the manifest, below `rocketpy/`,
say what had been flushed and what derived files held, `storeId` which store it is, and `recoveries`
where its log ended at each start behind a crash. Mark and manifest count only while no other broker
has started since. The order of a start is recoveries, manifest, abort, mark, lock; that of a clean
stop is manifest, mark, abort. A crash in between leaves what the next start can tell.
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
from rocketpy_broker.store.files.flushed_mark import FlushedMark, Mark, abort_text
from rocketpy_broker.store.files.links import FOLDERS, QUEUES, refuse_links
from rocketpy_broker.store.files.manifest import Manifest
from rocketpy_broker.store.files.recoveries import Recoveries

logger = logging.getLogger(__name__)
LOCK_WORD = b"rkpy"


class DirectoryLostError(OSError):
    """The directory, or its lock file, has been removed, moved or replaced while it was held."""

    def __init__(self, path: Path) -> None:
        text = (
            f"the store's directory is not held any more: {path} was removed, moved or replaced, "
            "and another broker may use the store. Stop the other broker, then restart this one"
        )
        super().__init__(errno.ESTALE, text)


def lock_file(descriptor: int, operation: int, path: Path) -> None:
    """Locks the file as RocketMQ does. Raises StoreLockedError, StoreDirectoryError."""
    try:
        fcntl.lockf(descriptor, operation | fcntl.LOCK_NB, 1, 0)
    except OSError as error:
        # By POSIX, a lock that another process holds is answered by either.
        if error.errno in {errno.EACCES, errno.EAGAIN}:
            raise StoreLockedError(path.parent) from error
        way_out = "use a directory on a file system with locks"
        reason = f"cannot be locked ({error.strerror})"
        raise StoreDirectoryError(path, reason, way_out) from error


def lock_folder(folder: Path, operation: int) -> int | None:
    """Locks a directory by `flock`; return the descriptor that holds the lock.

    None where the file system has no such locks, as NFS for directories. Raises StoreLockedError,
    and OSError where the directory cannot be opened.
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
            "%s cannot be locked as a directory (%s): only its file lock keeps brokers out; "
            "never remove that file",
            folder,
            error.strerror,
        )
        return None
    return descriptor


def started_last_by_us(lock_descriptor: int) -> bool:
    """True if no other broker has started since we did; an empty file is new. Raises OSError.

    Nobody who has the lock may open the file again: closing it would give the lock back.
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
        # The lock file. No other file gets its number while it is open.
        self._held: os.stat_result | None = None
        # Whether `check` has found that the lock is lost.
        self.is_lost = False
        # Known with the lock.
        self.started_last = False

    @property
    def is_held(self) -> bool:
        """True if this process has the lock."""
        return self._lock_descriptor is not None

    def acquire(self) -> None:
        """Makes the folders and take the locks. Raises StoreLockedError, StoreDirectoryError."""
        path = self._lock_path
        # The queues, which are many, are looked through once, when nobody else may change them.
        refuse_links(self.folder, [name for name in FOLDERS if name != QUEUES])
        with ExitStack() as undo:
            undo.callback(self._unlock)
            try:
                self._take_locks(path)
            except OSError as error:
                reason, way_out = (
                    f"cannot be written ({error.strerror})",
                    "choose a directory you may write",
                )
                raise StoreDirectoryError(path, reason, way_out) from error
            undo.pop_all()

    def _take_locks(self, path: Path) -> None:
        for name in FOLDERS:
            durable.make_folder(self.folder / name)
        # First: closing the file in a process that holds its lock would give that back.
        self._folder_descriptor = lock_folder(self.folder, fcntl.LOCK_EX)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._lock_descriptor = descriptor = os.open(path, flags, durable.FILE_MODE)
        lock_file(descriptor, fcntl.LOCK_EX, path)
        self._held = os.fstat(descriptor)
        self.check()
        self.started_last = started_last_by_us(descriptor)

    def check(self) -> None:
        """Raises DirectoryLostError where the store's path leads to another lock file, or none.

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
        """Returns the store's id, drawn at its first start. Raises StoreDirectoryError, OSError."""
        return store_id.load_or_draw(self.own_folder / "storeId")

    def save(self, manifest: Manifest) -> None:
        """Replaces the manifest. Raises OSError."""
        manifest.save(self.own_folder / "manifest.json")

    def started(self, flushed: int, manifest: Manifest | None, *, abnormal: bool = False) -> None:
        """Recovery is done, and all of the log, up to `flushed`, is on disk. Raises OSError.

        `manifest`: None where the file says just that. `abnormal`: the last run did not stop
        cleanly.
        """
        self.recoveries.started(flushed, abnormal=abnormal)
        if manifest is not None:
            self.save(manifest)
        # Before the mark: with the mark of a clean stop, this counts as a crash with nothing new.
        durable.replace_bytes(self._abort, abort_text(os.getpid()).encode())
        self._mark.open()
        self._mark.write(Mark(flushed, os.getpid(), clean=False))
        self._mark.flush()
        # Last: while it is another broker's, nothing else of ours is believed.
        assert self._lock_descriptor is not None
        durable.write_whole(self._lock_descriptor, memoryview(LOCK_WORD), 0)
        os.fsync(self._lock_descriptor)

    def flushed(self, offset: int) -> None:
        """The log is on disk up to `offset`; known after a kill, durable with `flush`."""
        self._mark.write(Mark(offset, os.getpid(), clean=False))

    def flush(self) -> None:
        """Makes the mark durable. Blocks. Raises OSError."""
        self._mark.flush()

    def stopped(self, manifest: Manifest) -> None:
        """Everything is on disk: the next start may believe it. Raises OSError."""
        self.save(manifest)
        self._mark.write(Mark(manifest.log_end, os.getpid(), clean=True))
        self._mark.flush()
        durable.remove_file(self._abort)

    def release(self) -> None:
        """Gives the locks back."""
        self._mark.close()
        self._unlock()

    def _unlock(self) -> None:
        for descriptor in (self._lock_descriptor, self._folder_descriptor):
            if descriptor is not None:
                os.close(descriptor)
        self._lock_descriptor = self._folder_descriptor = self._held = None
