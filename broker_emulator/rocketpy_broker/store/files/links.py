"""Checks for links in a store's directory, before any file is opened.

An attacker could plant a link, for example in a store that is passed on as an archive. The broker
would then read or overwrite a file elsewhere. The path of the directory itself may contain links.
Files are opened later with O_NOFOLLOW. A check takes 3 us per entry, because the folder contains
the entry's type.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from rocketpy_broker.errors import StoreDirectoryError

FOLDERS = ("commitlog", "consumequeue", "index", "config", "rocketpy")
QUEUES = "consumequeue"

# The files of a queue, by topic and by name in the topic's folder; None for an entry that is not a
# folder.
QueueFolders = Mapping[str, Mapping[str, Collection[str] | None]]


def refuse_links(store: Path, folders: Collection[str] = FOLDERS) -> None:
    """Checks that a store's directory and its folders hold only files and folders.

    Raises StoreDirectoryError with the first other entry. Blocks. Unreadable entries are skipped;
    the code that needs them reports them.
    """
    paths: list[str] = []
    for entry in _entries(store):
        # The open of a FIFO named `checkpoint` would wait for its writer.
        _is_folder(entry)
        if entry.name in folders:
            paths.append(entry.path)
    while paths:
        paths += [entry.path for entry in _entries(paths.pop()) if _is_folder(entry)]


def read_queue_folders(store: Path) -> QueueFolders:
    """Returns the content of the folder of queues, which must exist and not be a link. Blocks.

    Raises StoreDirectoryError as `refuse_links` does, and OSError for unreadable entries.
    """
    found: dict[str, dict[str, Collection[str] | None]] = {}
    # Most queues have files with the same names.
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
    """True if the entry is a folder, False for a file. Raises StoreDirectoryError otherwise."""
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
    """Returns the same as `_all_entries`; an empty list if the folder cannot be read."""
    try:
        return _all_entries(folder)
    except OSError:
        return []


def _all_entries(folder: Path | str) -> list[os.DirEntry[str]]:
    """Returns the entries of a folder. Raises OSError."""
    with os.scandir(folder) as entries:
        return list(entries)


def _link_error(entry: os.DirEntry[str]) -> StoreDirectoryError:
    try:
        reason = f"is a link to {os.readlink(entry.path)}, and links in a store are not followed"
    except OSError:
        reason = "is a link, and links in a store are not followed"
    return StoreDirectoryError(
        Path(entry.path), reason, "move its target to this place, or mount the target there"
    )
