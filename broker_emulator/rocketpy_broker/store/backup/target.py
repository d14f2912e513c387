"""The target directory of a store's copy.

A copy is built as `<name>.unfinished` next to its place, and renamed once everything is on disk. So
a crash, a kill or a full disk leaves nothing under the final name. The next copy to the same target
removes the unfinished one. A lock excludes a second copy. Holes remain holes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from types import TracebackType

from rocketpy_broker.errors import StoreDirectoryError, StoreError, StoreLockedError
from rocketpy_broker.runtime.clock import SystemClock
from rocketpy_broker.store.backup.pieces import Piece
from rocketpy_broker.store.check.read_only import load_log
from rocketpy_broker.store.files import durable, store_id
from rocketpy_broker.store.files.directory import LOCK_WORD, lock_folder
from rocketpy_broker.store.files.flushed_mark import FlushedMark, FlushedState
from rocketpy_broker.store.files.recoveries import Recoveries
from rocketpy_broker.store.index.service import IndexService

UNFINISHED = ".unfinished"
# Space beyond the copied bytes, for folders and the file system's own data.
SPARE_BYTES = 4 << 20
PARTS_MAX, PATH_BYTES_MAX = 64, 4096


class BackupTargetError(StoreError):
    """The copy of a store is impossible here; nothing of it is left."""


class BackupTarget:
    """One copy; use it as `with`. An unfinished copy is removed at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(os.path.abspath(folder))
        # The folder in which the copy is built.
        self.unfinished = self.folder.with_name(self.folder.name + UNFINISHED)
        self.copied_bytes = 0
        self._lock: int | None = None
        self._open: tuple[Piece, int] | None = None

    def __enter__(self) -> BackupTarget:
        """Raises StoreDirectoryError for an occupied target, BackupTargetError, OSError."""
        self._check_free()
        if not self.folder.parent.is_dir():
            raise StoreDirectoryError(
                self.folder.parent, "is no directory", "create it, or choose another place"
            )
        self.unfinished.mkdir(durable.FOLDER_MODE, exist_ok=True)
        try:
            self._lock = lock_folder(self.unfinished, fcntl.LOCK_EX)
        except StoreLockedError as error:
            raise BackupTargetError(
                f"another backup writes to {self.unfinished} now; wait for its end, or choose "
                "another place"
            ) from error
        self._empty()
        return self

    def _check_free(self) -> None:
        """Raises StoreDirectoryError if the target is occupied."""
        try:
            is_free = not any(self.folder.iterdir())
        except FileNotFoundError:
            is_free = not self.folder.is_symlink()
        except NotADirectoryError:
            is_free = False
        if not is_free:
            raise StoreDirectoryError(
                self.folder, "is there already", "name a directory that does not exist yet"
            )

    def _empty(self) -> None:
        for path in self.unfinished.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def begin(self, total_bytes: int) -> None:
        """Starts a copy of `total_bytes`; removes an earlier one.

        Raises BackupTargetError if the disk has too little space, and OSError.
        """
        self._close_file()
        self._empty()
        self.copied_bytes = 0
        status = os.statvfs(self.unfinished)
        free, needed = status.f_bavail * status.f_frsize, total_bytes + SPARE_BYTES
        if needed > free:
            raise BackupTargetError(
                f"the backup takes about {needed} bytes, but the disk of {self.folder} has {free} "
                "bytes free. Free space, or choose another disk"
            )

    def write(self, piece: Piece) -> None:
        """Writes a piece into its file. Raises OSError, BackupTargetError for a wrong path."""
        if self._open is None or self._open[0].path != piece.path:
            self._close_file()
            path = self.unfinished / _checked(piece.path)
            for parent in reversed(path.relative_to(self.unfinished).parents):
                (self.unfinished / parent).mkdir(durable.FOLDER_MODE, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._open = piece, os.open(path, flags, durable.FILE_MODE)
        descriptor = self._open[1]
        os.ftruncate(descriptor, piece.file_bytes)
        durable.write_whole(descriptor, memoryview(piece.data), piece.offset)
        self.copied_bytes += len(piece.data)

    def _close_file(self) -> None:
        if self._open is not None:
            piece, descriptor = self._open
            self._open = None
            # Cleaning uses the age of segments.
            if piece.modified_ns > 0:
                os.utime(descriptor, ns=(piece.modified_ns, piece.modified_ns))
            os.close(descriptor)

    def leave_as_stopped(self, log_end: int, segment_bytes: int) -> None:
        """Makes the copy of a served store one of a stopped store. Blocks. Raises OSError."""
        self._close_file()
        folder = self.unfinished
        for name in ("commitlog", "consumequeue", "index", "config", "rocketpy/checksums"):
            durable.make_folder(folder / name)
        # The broker entered keys during the copy, so slots of the index may name missing entries.
        loaded = load_log(folder, segment_bytes)
        index = IndexService(folder / "index", SystemClock())
        try:
            index.load()
            index.truncate(log_end, loaded.log.store_timestamp_ms_at)
        finally:
            index.close()
            loaded.log.close()
        durable.replace_bytes(folder / "lock", LOCK_WORD)
        mark = FlushedMark(folder / "rocketpy" / "flushed")
        mark.open()
        mark.write(FlushedState(log_end, os.getpid(), clean=True))
        mark.close()

    def note_end(self, log_end: int) -> None:
        """Records the copy's end for queries that have read further in the original."""
        self._close_file()
        Recoveries(self.unfinished / "rocketpy" / "recoveries").started(log_end, abnormal=True)

    def generate_store_id(self) -> None:
        """Gives the copy a store id of its own, to serve next to the original. Raises OSError."""
        self._close_file()
        store_id.generate(self.unfinished / "rocketpy" / "storeId")

    def allow_read(self) -> None:
        """Shares the lock with readers of the copy, such as a check. Raises OSError."""
        self._close_file()
        if self._lock is not None:
            fcntl.flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def finish(self) -> None:
        """Makes everything durable and renames the copy. Raises StoreDirectoryError, OSError."""
        self._close_file()
        durable.sync_whole_store(self.unfinished)
        self._check_free()
        durable.move(self.unfinished, self.folder)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Removes an unfinished copy."""
        self._close_file()
        try:
            if self.unfinished.exists():
                shutil.rmtree(self.unfinished)
        finally:
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None


def _checked(path: str) -> str:
    parts = path.split("/")
    is_inside = not {"", ".", ".."}.intersection(parts) and "\0" not in path
    if not is_inside or len(parts) > PARTS_MAX or len(os.fsencode(path)) > PATH_BYTES_MAX:
        raise BackupTargetError(f"the backup has an impossible path: {path!r:.200}")
    return path
