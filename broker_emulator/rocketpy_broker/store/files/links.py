"""A look for links in a store's directory, before anything in it is opened. Holds no state.

Whoever could plant one, as in a store that is handed on as an archive, would have the broker read
or overwrite a file elsewhere. The directory itself may be named by a link. What is opened later is
opened with O_NOFOLLOW. A look at an entry takes 3 us: its folder tells what it is.
"""

from __future__ import annotations

import os
from pathlib import Path

from rocketpy_broker.errors import StoreDirectoryError

FOLDERS = ("commitlog", "consumequeue", "index", "config", "rocketpy")


def refuse_links(store: Path) -> None:
    """Only files and folders lie in a store's folders, and no link beside them. Blocks.

    Raises StoreDirectoryError, which names the first link. What cannot be read is left to those
    who need it.
    """
    folders: list[str] = []
    for entry in _entries(store):
        if entry.is_symlink():
            raise _link_error(entry)
        if entry.name in FOLDERS:
            folders.append(entry.path)
    while folders:
        for entry in _entries(folders.pop()):
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif entry.is_symlink():
                raise _link_error(entry)
            elif not entry.is_file(follow_symlinks=False):
                raise StoreDirectoryError(
                    Path(entry.path), "is neither a file nor a folder", "move it out of the store"
                )


def _entries(folder: Path | str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _link_error(entry: os.DirEntry[str]) -> StoreDirectoryError:
    try:
        reason = f"is a link to {os.readlink(entry.path)}, and links in a store are not followed"
    except OSError:
        reason = "is a link, and links in a store are not followed"
    return StoreDirectoryError(
        Path(entry.path), reason, "put what it points to in its place, or mount that there"
    )
