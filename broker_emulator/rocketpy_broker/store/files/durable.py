"""The only place that creates, renames, replaces and removes files of a store.

Every change of a folder is followed by an fsync of that folder, so that after a power cut a
file is either there with its content or not there; but for `create_unflushed`, whose file may be
missing or empty until `sync_new` is done. A crash inside `replace_text` or `replace_encoded`
leaves the old text, the new text, or the old one under `<name>.bak`; never neither. A crash inside
`create_allocated` leaves at most `<folder>.new` beside the folder, which the next start removes.
What is made here is its owner's alone, whatever the process's mask; what is there keeps its
permissions until it is replaced. Source of the `.bak` and `.tmp` custom: docs/design/storage.md section 1.
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
# Of a file that a user has asked for: the process's mask decides.
SHARED_FILE_MODE = 0o666
# A flush that meets these has not failed: nothing was given to the disk.
OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})


def sync_folder(folder: Path) -> None:
    """Makes the names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file_system(descriptor: int) -> None:
    """Makes everything durable that was written to the file system of a descriptor. Blocks.

    Raises OSError.
    """
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        os.sync()
    elif syncfs(descriptor) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def sync_whole_store(folder: Path) -> None:
    """Makes everything below `folder` durable, whoever wrote it. Blocks. Raises OSError.

    One call for each file system, since folders of a store may be mounted: thousands of files, each
    flushed by itself, take seconds.
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
    """Returns the number of the file system on which `path` lies. Raises OSError."""
    return path.stat().st_dev


def make_folder(folder: Path) -> Path:
    """Creates `folder` and its parents, durably. Raises OSError."""
    for path in _make_missing(folder):
        sync_folder(path.parent)
    return folder


def _make_missing(folder: Path) -> list[Path]:
    """Creates `folder` and its parents; return those that were not there. Raises OSError."""
    if folder.is_dir():
        return []
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(FOLDER_MODE, exist_ok=True)
    return missing


def unfinished_path(folder: Path) -> Path:
    """Where a file for `folder` is made before it may be seen in there."""
    return folder.with_name(folder.name + ".new")


def create_allocated(path: Path, size_bytes: int, allocated_bytes: int | None = None) -> int:
    """Creates `path` of `size_bytes`, reading as zeros; return its descriptor.

    The first `allocated_bytes` (default: all) get their blocks now: allocation before the first
    write makes a full disk an error here, and never a signal in a reader of the mapping. The file
    appears in its folder at once and whole, for a short one there would stop RocketMQ's broker.
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
    """As `create_allocated`, with the folder, but without a wait for the disk.

    For files that can be rebuilt: an fsync waits for whatever else the disk has to do. Returns
    the folders to be given to `sync_new` with the first flush. Raises OSError.
    """
    missing = _make_missing(path.parent)
    with _creating(path, size_bytes, allocated_bytes or size_bytes) as descriptor:
        os.rename(unfinished_path(path.parent), path)
    return descriptor, [path.parent, *(folder.parent for folder in missing)]


def sync_new(folders: list[Path]) -> None:
    """Makes the names durable that `create_unflushed` made, and empty `folders`. Raises OSError.

    Folders that have been removed since, with their topic, are passed over.
    """
    while folders:
        with contextlib.suppress(FileNotFoundError):
            sync_folder(folders[-1])
        folders.pop()


def written_ranges(descriptor: int, position: int) -> list[tuple[int, int]]:
    """Where the file system has something other than zeros, from `position` on. Raises OSError.

    What was allocated and never written is not read: a gigabyte of it takes seconds. All are told
    at once, since a page that is in memory counts as written: while the caller reads one range,
    the system fetches pages behind it, and those would be the next range, to the file's end.
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
    """Yields the descriptor of a file under its unfinished name; after an OSError no file is left."""
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
    """Creates `path`, which must not be there; its name gets durable with `sync_folder`."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))


def open_private(path: str, flags: int) -> int:
    """Returns an opener for `open`: a new file is its owner's alone, and a link is not followed."""
    return os.open(path, flags | os.O_NOFOLLOW, FILE_MODE)


def remove_files(paths: Iterable[Path]) -> None:
    """Removes files of one folder that are there. A power cut may bring them back."""
    for path in paths:
        path.unlink(missing_ok=True)


def write_whole(descriptor: int, data: memoryview, position: int) -> None:
    """Writes all of `data` at `position`, however many calls it takes. Raises OSError."""
    while len(data) > 0:
        written = os.pwrite(descriptor, data, position)
        data = data[written:]
        position += written


def replace_text(path: Path, text: str) -> None:
    """Gives `path` a new text and keep the old one as `<name>.bak`. Raises OSError."""
    replace_encoded(path, text.encode("utf-8"))


def replace_encoded(path: Path, text: bytes) -> None:
    """As `replace_text`; by one call, since Linux takes many small ones at twice the time."""
    temporary = path.with_name(path.name + ".tmp")
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
    """Gives `path` a new content, without a backup. Raises OSError; the old one is then kept."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb", opener=open_private) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


@contextmanager
def replacing(path: Path, file_mode: int = FILE_MODE) -> Iterator[BinaryIO]:
    """Yields a file to write to that becomes `path` when the block ends well, and is gone if it does not.

    Raises OSError; what was at `path` is then still there.
    """
    temporary = path.with_name(path.name + ".tmp")
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
    """Let a file that is there go on with `data` from `position` on, durably. Raises OSError.

    What lay behind `position` goes first, so a crash leaves nothing of it behind new bytes.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.ftruncate(descriptor, position)
        write_whole(descriptor, memoryview(data), position)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def remove_file(path: Path) -> None:
    """Removes `path` if it is there, durably."""
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def remove_folder(folder: Path) -> None:
    """Removes `folder` with all that is in it, durably, if it is there."""
    if folder.exists():
        shutil.rmtree(folder)
        sync_folder(folder.parent)
