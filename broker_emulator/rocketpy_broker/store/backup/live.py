"""A consistent copy of a store that a broker serves.

The order makes the copy consistent. *State* files (configuration, progress, ledgers) are opened
first, so later saves do not change them. The end of the copy's log is chosen after that. As after a
crash, the log has changes that the state files do not have yet. The state files have nothing that
the log does not have.

The log ends before the first decision of a batch that is being stored, so staging files are not
needed. Queues, index and checksums are copied as far as the manifest of that end covers them.

This module writes nothing. An unfinished copy is useless.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from rocketpy_broker.runtime.clock import pause
from rocketpy_broker.store.backup.pieces import (
    NOT_COPIED,
    PIECE_BYTES,
    Piece,
    files_below,
    pieces_of,
    pieces_of_file,
    written_bytes,
)
from rocketpy_broker.store.files.manifest import Manifest
from rocketpy_broker.store.index.layout import IndexFormat
from rocketpy_broker.store.log.file_sequence import is_file_name
from rocketpy_broker.store.recovery.store_opener import ManifestPlan
from rocketpy_broker.store.values import FilePrefix

MANIFEST = "rocketpy/manifest.json"
# Files that are copied with the log, created for the copy, or useless in it.
NOT_STATE = frozenset(
    {
        "abort",
        "commitlog",
        "commitlog.new",
        "consumequeue",
        "index",
        "index.new",
        "lock",
        MANIFEST,
        "rocketpy/checksums",
        "rocketpy/checksums.new",
        "rocketpy/flushed",
        "rocketpy/staging",
        *NOT_COPIED,
    }
)
# Saves write into this file. They replace every other one, and an open descriptor keeps the old.
WRITTEN_IN_PLACE = "checkpoint"
# Files here do not change, and there may be many.
UNCHANGING = "rocketpy/quarantine/"
TEMPORARY = (".tmp", ".new")
BACKUP = ".bak"
# A save removes a file for the time of one fsync; a backup may also exist alone.
TRIES_MAX, RETRY_SECONDS = 50, 0.02
OPEN_FILES_MAX = 256


@dataclass(slots=True)
class StateFiles:
    """State files of one moment, by name: descriptors and sizes.

    `copies` has the content of files that saves write in place. `others` are opened later: files
    that do not change, and files beyond OPEN_FILES_MAX.
    """

    folder: Path
    copies: list[Piece] = field(default_factory=list)
    open_files: dict[str, tuple[int, int]] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, folder: Path) -> StateFiles:
        """Opens the files. Blocks. Raises OSError."""
        for number in range(TRIES_MAX):
            state = cls(folder)
            try:
                if state._open() or number == TRIES_MAX - 1:
                    return state
            except OSError as error:
                state.close()
                if not isinstance(error, FileNotFoundError):
                    raise
            state.close()
            pause(RETRY_SECONDS)
        raise FileNotFoundError(errno.ENOENT, "files are replaced all the time", str(folder))

    def _open(self) -> bool:
        """Opens the files; returns False if one was being replaced. Raises OSError."""
        found = files_below(self.folder, NOT_STATE)
        names = [name for name in found if not name.endswith(TEMPORARY)]
        for name in names:
            if name.startswith(UNCHANGING) or len(self.open_files) >= OPEN_FILES_MAX:
                self.others.append(name)
                continue
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self.folder / name, flags)
            self.open_files[name] = descriptor, os.fstat(descriptor).st_size
            if name == WRITTEN_IN_PLACE:
                self.copies = list(pieces_of(descriptor, name))
                os.close(self.open_files.pop(name)[0])
        alone = {name.removesuffix(BACKUP) for name in names if name.endswith(BACKUP)}
        return alone <= {*names, *NOT_STATE}

    @property
    def bytes(self) -> int:
        """The total size of the files."""
        sizes = sum(size for _, size in self.open_files.values())
        sizes += sum(len(piece.data) for piece in self.copies)
        return sizes + sum(written_bytes(self.folder / name) for name in self.others)

    def pieces(self) -> Iterator[Piece]:
        """Yields the content of the files. Blocks. Raises OSError."""
        yield from self.copies
        for name, (descriptor, size) in self.open_files.items():
            for piece in pieces_of(descriptor, name, size):
                yield replace(piece, file_bytes=size)
        for name in self.others:
            yield from pieces_of_file(self.folder / name, name)

    def close(self) -> None:
        """Closes the files."""
        while self.open_files:
            os.close(self.open_files.popitem()[1][0])


class LiveBackup:
    """A copy with a log that ends at `plan.end`, where everything below is on disk."""

    def __init__(self, state: StateFiles, plan: ManifestPlan) -> None:
        self.state = state
        self.plan = plan
        self._folder = plan.config.folder
        self._manifest: Manifest

    def read_derived_state(self) -> None:
        """Reads the state of derived files. Blocks. Raises OSError, StoreReadError.

        No file may be removed meanwhile.
        """
        self._manifest = self.plan.make()

    @property
    def total_bytes(self) -> int:
        """The copy's approximate size, after `read_derived_state`. Blocks. Raises OSError."""
        prefixes = [*self._manifest.queues.values(), self._manifest.checksums]
        derived = sum(prefix.length for each in prefixes for prefix in each.values())
        index = sum(written_bytes(path) for path in self._index_paths())
        log = sum(self._used_bytes(path) for path in self._log_paths())
        return self.state.bytes + derived + index + log

    def _used_bytes(self, path: Path) -> int:
        return min(written_bytes(path), self.plan.end - int(path.name))

    def _log_paths(self) -> list[Path]:
        """Returns the segments with records below the end, and the first one.

        The first segment's name is the start of the log.
        """
        paths = sorted(
            path for path in (self._folder / "commitlog").iterdir() if is_file_name(path.name)
        )
        return [path for path in paths if int(path.name) < self.plan.end or path == paths[0]]

    def _index_paths(self) -> list[Path]:
        folder = self._folder / "index"
        return sorted(path for path in folder.iterdir() if path.name.isdecimal())

    def derived_pieces(self) -> Iterator[Piece]:
        """Yields the pieces of state files, queues, index and checksums. Blocks.

        The caller must be fast, because topics may be deleted meanwhile.
        Raises OSError, also if files have been removed.
        """
        yield from self.state.pieces()
        for key, prefixes in self._manifest.queues.items():
            yield from self._queue_pieces(f"consumequeue/{key.topic}/{key.queue_id}", prefixes)
        config = self.plan.config
        head_end = IndexFormat(config.index_slot_count, config.index_entry_count_max).entries_begin
        for path in self._index_paths():
            # Slots first: the entries that they point to exist by then.
            yield from pieces_of_file(path, f"index/{path.name}", parts=(head_end,))
        for checksums, prefix in self._manifest.checksums.items():
            name = f"rocketpy/checksums/{checksums}"
            yield from pieces_of_file(self._folder / name, name, prefix.length)

    def _queue_pieces(self, folder: str, prefixes: Mapping[str, FilePrefix]) -> Iterator[Piece]:
        for name, prefix in prefixes.items():
            path = f"{folder}/{name}"
            yield from pieces_of_file(self._folder / path, path, prefix.length)
        if not prefixes:
            # For a queue without messages, only a file's name gives the next offset.
            names = [name for name in os.listdir(self._folder / folder) if is_file_name(name)]
            first = min(names, default="0")
            if int(first) > 0:
                yield from pieces_of_file(self._folder / folder / first, f"{folder}/{first}", 0)

    def log_pieces(self) -> Iterator[Piece]:
        """Yields the log, and the manifest of the copy. Blocks. Raises OSError."""
        for path in self._log_paths():
            name = f"commitlog/{path.name}"
            yield from pieces_of_file(path, name, max(self.plan.end - int(path.name), 0))
        content = self._manifest.encoded()
        for offset in range(0, len(content), PIECE_BYTES):
            data = content[offset : offset + PIECE_BYTES]
            yield Piece(MANIFEST, offset, data, len(content), 0)
