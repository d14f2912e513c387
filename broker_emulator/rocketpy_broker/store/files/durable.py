"""Durable creation, renaming, replacement and removal of a store's files.

No other module does this. Every change of a folder is followed by an fsync of that folder. After a
power cut, a file therefore either exists with its content or does not exist. `create_empty` and
`remove_files` leave the fsync to their caller. A file of `create_unflushed` may be missing or empty
until `sync_new` has finished.

A crash inside `replace_text` or `replace_encoded` leaves the old text, the new text, or the old one
under `<name>.bak`; never neither. A crash inside `create_allocated` leaves at most `<folder>.new`
next to the folder, which the next start removes.

Only the owner may access new files, whatever the umask. Existing files keep their permissions until
they are replaced. Source of the names `.bak` and `.tmp`: docs/design/storage.md section 1.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

FILE_MODE, FOLDER_MODE = 0o600, 0o700
# For files that a user has requested: the process's umask applies.
SHARED_FILE_MODE = 0o666
# A flush with these errors has not failed: nothing was passed to the disk.
OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})


def sync_folder(folder: Path) -> None:
    """Makes the names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file_system(descriptor: int) -> None:
    """Makes all data written to the descriptor's file system durable. Blocks.

    Raises OSError.
    """
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        os.sync()
    elif syncfs(descriptor) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def sync_whole_store(folder: Path) -> None:
    """Makes everything below `folder` durable, written by any process. Blocks. Raises OSError.

    There is one call per file system, since folders of a store may be mounts. Separate flushes of
    thousands of files take seconds.
    """
    folders = [folder, *folder.glob("*/"), *folder.glob("rocketpy/*/")]
    by_device = {device_of(path): path for path in folders if path.is_dir()}
    for path in by_device.values():
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            sync_file_system(descriptor)
        finally:
            os.close(descriptor)


def device_of(path: Path) -> int:
    """Returns the device number of the file system of `path`. Raises OSError."""
    return path.stat().st_dev


def make_folder(folder: Path) -> Path:
    """Creates `folder` and its parents durably. Raises OSError."""
    for path in _make_missing(folder):
        sync_folder(path.parent)
    return folder


def _make_missing(folder: Path) -> list[Path]:
    """Creates `folder` and its parents; returns the ones that were missing. Raises OSError."""
    if folder.is_dir():
        return []
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(FOLDER_MODE, exist_ok=True)
    return missing


def unfinished_path(folder: Path) -> Path:
    """Returns the path at which a file for `folder` is created before it becomes visible there."""
    return folder.with_name(folder.name + ".new")


def temporary_path(path: Path) -> Path:
    """Returns the path at which a new content of `path` is written before it takes its place."""
    return path.with_name(path.name + ".tmp")


def create_allocated(path: Path, size_bytes: int, allocated_bytes: int | None = None) -> int:
    """Creates `path` of `size_bytes` zeros; returns its descriptor.

    The first `allocated_bytes` (default: all) get their blocks now. A full disk therefore raises an
    error here, and never a SIGBUS in a reader of the mapping. The file appears in its folder
    with its full size, because a short file there would stop RocketMQ's broker.
    Raises OSError; then no file is left.
    """
    with _creating(path, size_bytes, allocated_bytes or size_bytes) as descriptor:
        os.fsync(descriptor)
        os.rename(unfinished_path(path.parent), path)
        sync_folder(path.parent)
    return descriptor


def create_unflushed(
    path: Path, size_bytes: int, allocated_bytes: int | None = None
) -> tuple[int, list[Path]]:
    """Creates a file as `create_allocated` does, and its folder, without waiting for the disk.

    It is for files that can be rebuilt: an fsync also waits for unrelated writes. Returns the
    folders for `sync_new` at the first flush.
    Raises OSError.
    """
    missing = _make_missing(path.parent)
    with _creating(path, size_bytes, allocated_bytes or size_bytes) as descriptor:
        os.rename(unfinished_path(path.parent), path)
    return descriptor, [path.parent, *(folder.parent for folder in missing)]


def sync_new(folders: list[Path]) -> None:
    """Makes the names of files of `create_unflushed` durable; empties `folders`. Raises OSError.

    Folders that were removed since, with their topic, are skipped.
    """
    while folders:
        with contextlib.suppress(FileNotFoundError):
            sync_folder(folders[-1])
        folders.pop()


def written_ranges(descriptor: int, position: int) -> list[tuple[int, int]]:
    """Returns the ranges with data, from `position` on. Raises OSError.

    Allocated bytes that were never written are not read: a gigabyte takes seconds. All ranges are
    returned at once, because a page in memory counts as written. While a caller reads one range,
    the system prefetches the following pages. They would become the next range, up to the file's
    end.
    """
    ranges: list[tuple[int, int]] = []
    while True:
        try:
            begin = os.lseek(descriptor, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return ranges
            raise
        position = os.lseek(descriptor, begin, os.SEEK_HOLE)
        ranges.append((begin, position))


@contextmanager
def _creating(path: Path, size_bytes: int, allocated_bytes: int) -> Iterator[int]:
    """Yields the descriptor of a file with its unfinished name; removes it after an OSError."""
    unfinished = unfinished_path(path.parent)
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(unfinished, flags, FILE_MODE)
    try:
        os.ftruncate(descriptor, size_bytes)
        os.posix_fallocate(descriptor, 0, allocated_bytes)
        yield descriptor
    except OSError:
        os.close(descriptor)
        unfinished.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        raise


def create_empty(path: Path) -> None:
    """Creates `path`, which must not exist; `sync_folder` makes its name durable."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))


def open_private(path: str, flags: int) -> int:
    """Opens a file for `open`: only the owner may access a new file, and links are not followed."""
    return os.open(path, flags | os.O_NOFOLLOW, FILE_MODE)


def remove_files(paths: Iterable[Path]) -> None:
    """Removes the existing files among `paths` of one folder. A power cut may restore them."""
    for path in paths:
        path.unlink(missing_ok=True)


def write_whole(descriptor: int, data: memoryview, position: int) -> None:
    """Writes all of `data` at `position`, in as many calls as necessary. Raises OSError."""
    while len(data) > 0:
        written = os.pwrite(descriptor, data, position)
        data = data[written:]
        position += written


def replace_text(path: Path, text: str) -> None:
    """Replaces the text of `path` and keeps the old one as `<name>.bak`. Raises OSError."""
    replace_encoded(path, text.encode("utf-8"))


def replace_encoded(path: Path, text: bytes | bytearray) -> None:
    """Replaces the text as `replace_text` does, in one write: many small writes are slower."""
    temporary = temporary_path(path)
    with open(temporary, "wb", opener=open_private) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    if path.exists():
        os.replace(path, path.with_name(path.name + ".bak"))
        sync_folder(path.parent)
    os.replace(temporary, path)
    sync_folder(path.parent)


def replace_bytes(path: Path, data: bytes | memoryview) -> None:
    """Replaces the content of `path` without a backup. Raises OSError; then the old one remains."""
    temporary = temporary_path(path)
    with open(temporary, "wb", opener=open_private) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


@contextmanager
def replacing(path: Path, file_mode: int = FILE_MODE) -> Iterator[BinaryIO]:
    """Yields a file that becomes `path` at the end of the block, and is removed after an error.

    Raises OSError; the old content of `path` then remains.
    """
    temporary = temporary_path(path)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with open(os.open(temporary, flags, file_mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def move(path: Path, target: Path) -> None:
    """Renames a file or folder, durably on both sides. Raises OSError."""
    os.rename(path, target)
    sync_folder(target.parent)
    sync_folder(path.parent)


def append_bytes(path: Path, data: bytes, position: int) -> None:
    """Appends `data` to an existing file at `position`, durably. Raises OSError.

    The file is truncated to `position` first, so a crash leaves no old bytes after the new ones.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.ftruncate(descriptor, position)
        write_whole(descriptor, memoryview(data), position)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def remove_file(path: Path) -> None:
    """Removes `path` durably if it exists."""
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def remove_folder(folder: Path) -> None:
    """Removes `folder` with its content, durably, if it exists."""
    if folder.exists():
        shutil.rmtree(folder)
        sync_folder(folder.parent)
