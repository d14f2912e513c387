"""A look for links in a store's directory, before anything in it is opened. Holds no state.

Whoever could plant one, as in a store that is handed on as an archive, would have the broker read
or overwrite a file elsewhere. The directory itself may be named by a link. What is opened later is
opened with O_NOFOLLOW. A look at an entry takes 3 us: its folder tells what it is.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from rocketpy_broker.errors import StoreDirectoryError

FOLDERS = ("commitlog", "consumequeue", "index", "config", "rocketpy")
QUEUES = "consumequeue"

# By topic, and by name in the topic's folder: the files of a queue; None for what is no folder.
QueueFolders = Mapping[str, Mapping[str, Collection[str] | None]]


def refuse_links(store: Path, folders: Collection[str] = FOLDERS) -> None:
    """Only files and folders lie in a store's folders, and no link beside them. Blocks.

    Raises StoreDirectoryError, which names the first link. What cannot be read is left to those
    who need it.
    """
    paths: list[str] = []
    for entry in _entries(store):
        if entry.is_symlink():
            raise _link_error(entry)
        if entry.name in folders:
            paths.append(entry.path)
    while paths:
        paths += [entry.path for entry in _entries(paths.pop()) if _is_folder(entry)]


def look_through_queues(store: Path) -> QueueFolders:
    """What lies in the folder of queues, which is there, and no link. Blocks.

    Raises StoreDirectoryError as `refuse_links` does, and OSError for what cannot be read.
    """
    found: dict[str, dict[str, Collection[str] | None]] = {}
    # Most queues have files of the same names.
    shared: dict[tuple[str, ...], tuple[str, ...]] = {}
    for topic in _all_entries(store / QUEUES):
        if not _is_folder(topic):
            continue
        queues = found[topic.name] = {}
        for queue in _all_entries(topic.path):
            if _is_folder(queue):
                names = _file_names(queue.path)
                queues[queue.name] = shared.setdefault(names, names)
            else:
                queues[queue.name] = None
    return found


def _file_names(folder: str) -> tuple[str, ...]:
    names = []
    for entry in _all_entries(folder):
        if _is_folder(entry):
            refuse_links(Path(folder), [entry.name])
        else:
            names.append(entry.name)
    return tuple(names)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """True if it is a folder, and no file. Raises StoreDirectoryError for anything else."""
    if entry.is_dir(follow_symlinks=False):
        return True
    if entry.is_file(follow_symlinks=False):
        return False
    if entry.is_symlink():
        raise _link_error(entry)
    raise StoreDirectoryError(
        Path(entry.path), "is neither a file nor a folder", "move it out of the store"
    )


def _entries(folder: Path | str) -> list[os.DirEntry[str]]:
    """As `_all_entries`; none where the folder cannot be read."""
    try:
        return _all_entries(folder)
    except OSError:
        return []


def _all_entries(folder: Path | str) -> list[os.DirEntry[str]]:
    """What lies in a folder. Raises OSError."""
    with os.scandir(folder) as entries:
        return list(entries)


def _link_error(entry: os.DirEntry[str]) -> StoreDirectoryError:
    try:
        reason = f"is a link to {os.readlink(entry.path)}, and links in a store are not followed"
    except OSError:
        reason = "is a link, and links in a store are not followed"
    return StoreDirectoryError(
        Path(entry.path), reason, "put what it points to in its place, or mount that there"
    )
