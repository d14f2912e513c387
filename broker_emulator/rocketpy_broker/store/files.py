"""The only place that creates, renames, replaces and removes files of a store.

Every change of a folder is followed by an fsync of that folder, so that after a power cut a
file is either there with its content or not there. A crash inside `replace_text` leaves the old
text, the new text, or the old one under `<name>.bak`; never neither.
Source of the `.bak` and `.tmp` custom: spec/storage.md section 1.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from rocketpy_broker.errors import StoreDirectoryError


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> Path:
    """Create `folder` and its parents, durably. Raises StoreDirectoryError."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in missing:
            sync_folder(path.parent)
    except OSError as error:
        raise StoreDirectoryError(
            folder, f"cannot be created ({error.strerror})", "choose a directory you may write"
        ) from error
    return folder


def create_allocated(path: Path, size_bytes: int) -> int:
    """Create `path` with all its blocks allocated and reading as zeros; return its descriptor.

    Allocation before the first append makes a full disk an error here, and never a signal in
    a reader of the mapping. Raises OSError; then no file is left.
    """
    return create_sparse(path, size_bytes, size_bytes)


def create_sparse(path: Path, size_bytes: int, allocated_bytes: int) -> int:
    """As `create_allocated`, but only the first `allocated_bytes` have blocks. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        os.ftruncate(descriptor, size_bytes)
        os.posix_fallocate(descriptor, 0, allocated_bytes)
        os.fsync(descriptor)
        sync_folder(path.parent)
    except OSError:
        os.close(descriptor)
        path.unlink()
        raise
    return descriptor


def write_whole(descriptor: int, data: memoryview, position: int) -> None:
    """Write all of `data` at `position`, however many calls it takes. Raises OSError."""
    while len(data) > 0:
        written = os.pwrite(descriptor, data, position)
        data = data[written:]
        position += written


def replace_text(path: Path, text: str) -> None:
    """Give `path` a new text and keep the old one as `<name>.bak`. Raises OSError."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    if path.exists():
        os.replace(path, path.with_name(path.name + ".bak"))
        sync_folder(path.parent)
    os.replace(temporary, path)
    sync_folder(path.parent)


def remove_file(path: Path) -> None:
    """Remove `path` if it is there, durably."""
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def remove_folder(folder: Path) -> None:
    """Remove `folder` with all that is in it, durably, if it is there."""
    if folder.exists():
        shutil.rmtree(folder)
        sync_folder(folder.parent)
