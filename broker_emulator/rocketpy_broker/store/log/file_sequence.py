"""Consecutive files of one size, named by their first byte.

The log and every consume queue are such sequences. A start refuses a folder with any other file;
the store check names it.
Source: MappedFileQueue, docs/design/storage.md section 1 (folder-content rules).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.store.files import durable

NAME_DIGITS = 20


def is_file_name(name: str) -> bool:
    """True if `name` is valid for a file of the log, of a queue or of the checksums."""
    return len(name) == NAME_DIGITS and name.isascii() and name.isdecimal()


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A file or folder in the wrong place: the reason, and the remedy."""

    path: Path
    reason: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class FileSequence:
    """The consecutive files of one folder, and its other entries."""

    paths: list[Path]
    misplaced: list[Misplaced]

    @classmethod
    def find(cls, folder: Path, file_bytes: int) -> FileSequence:
        """Lists the folder; a missing one is empty. Raises OSError."""
        found = cls([], [])
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            expected = int(found.paths[-1].name) + file_bytes if found.paths else None
            misplaced = _misplaced(path, file_bytes, expected)
            if misplaced is None:
                found.paths.append(path)
            else:
                found.misplaced.append(misplaced)
        return found

    @classmethod
    def load(cls, folder: Path, file_bytes: int) -> FileSequence:
        """Lists the folder of a store that is opened; removes remains of a crash. Folders stay.

        Raises StoreDirectoryError for a file that is misplaced, and then keeps all files that are
        not empty.
        """
        durable.unfinished_path(folder).unlink(missing_ok=True)
        last = max((path for path in folder.iterdir() if path.is_file()), default=None)
        if last is not None and last.stat().st_size == 0:
            durable.remove_file(last)
        found = cls.find(folder, file_bytes)
        for one in found.misplaced:
            if one.path.is_file():
                raise StoreDirectoryError(one.path, one.reason, one.remedy)
        return found


def _misplaced(path: Path, file_bytes: int, expected: int | None) -> Misplaced | None:
    """Returns the reason for which a file cannot begin at `expected`; None if it can."""
    if not path.is_file():
        return Misplaced(path, "is no file")
    if not is_file_name(path.name):
        reason = f"is not named by {NAME_DIGITS} digits"
        return Misplaced(path, reason, "move this file out of the store")
    length, base = path.stat().st_size, int(path.name)
    if length != file_bytes:
        reason = f"has {length} bytes instead of {file_bytes}"
        return Misplaced(path, reason, "start with this store's file size, or restore this file")
    remedy = "restore that file, or move the later ones away"
    if base % file_bytes:
        return Misplaced(path, f"is not named by a multiple of {file_bytes}", remedy)
    if expected not in (None, base):
        reason = f"should start at {expected}: a file before it is missing or wrong"
        return Misplaced(path, reason, remedy)
    return None
