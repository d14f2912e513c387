"""Pieces of files, the units of a store's copy.

Holes and zeros make no pieces, so a copy is as sparse as its source.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rocketpy_broker.store.files import durable
from rocketpy_broker.store.log.segment import STAT_BLOCK_BYTES

PIECE_BYTES = 512 << 10
# The key that encrypts the users' secrets; a copy must not hold both the key and the secrets.
NOT_COPIED = frozenset({"config/users.key"})


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of the file `path`, which is relative; the file's other bytes are zero.

    `file_bytes` is the file's size. `modified_ns` is its modification time in ns since 1970.
    """

    path: str
    offset: int
    data: bytes
    file_bytes: int
    modified_ns: int


def pieces_of_file(
    path: Path, name: str, end: int | None = None, parts: tuple[int, ...] = ()
) -> Iterator[Piece]:
    """Yields the pieces of the file at `path`, called `name` in the copy, up to byte `end`.

    Bytes after each of `parts` are read only once all bytes before it have been yielded. Blocks.
    Raises OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        yield from pieces_of(descriptor, name, end, parts)
    finally:
        os.close(descriptor)


def pieces_of(
    descriptor: int, name: str, end: int | None = None, parts: tuple[int, ...] = ()
) -> Iterator[Piece]:
    """Yields the pieces of an open file, at least one; see `pieces_of_file`."""
    status = os.fstat(descriptor)
    size, changed_ns = status.st_size, status.st_mtime_ns
    stop = size if end is None else min(end, size)
    # A piece without data creates the file, even if it is empty.
    yield Piece(name, 0, b"", size, changed_ns)
    bounds = [0, *(part for part in parts if part < stop), stop]
    for begin, part_end in itertools.pairwise(bounds):
        for start, until in durable.written_ranges(descriptor, begin):
            for offset in range(max(start, begin), min(until, part_end), PIECE_BYTES):
                count = min(PIECE_BYTES, until - offset, part_end - offset)
                data = os.pread(descriptor, count, offset)
                if data.count(0) != len(data):
                    yield Piece(name, offset, data, size, changed_ns)


def written_bytes(path: Path) -> int:
    """Returns the number of bytes that a file takes on disk; 0 if it does not exist."""
    with contextlib.suppress(FileNotFoundError):
        return path.stat(follow_symlinks=False).st_blocks * STAT_BLOCK_BYTES
    return 0


def files_below(folder: Path, passed_over: frozenset[str]) -> Iterator[str]:
    """Yields the relative names of the regular files below `folder`, except `passed_over`.

    Links are not followed. Raises OSError.
    """
    names = [""]
    while names:
        parent = names.pop()
        with contextlib.suppress(FileNotFoundError), os.scandir(folder / parent) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                name = f"{parent}/{entry.name}" if parent else entry.name
                if name in passed_over:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    names.append(name)
                elif entry.is_file(follow_symlinks=False):
                    yield name
