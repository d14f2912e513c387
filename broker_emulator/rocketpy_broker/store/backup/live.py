"""The pieces of a store that a broker serves, so that the copy is one moment of it.

The order makes it consistent. *State* files (configuration, progress, ledgers) come first: they are
held open as they are, so that later saves do not change them. The copy's log ends behind that: as
after a crash, the log tells what they do not know yet, and they know nothing that the log has not.
It ends before the first decision of a batch that is still being stored, so staging files are not
needed. Queues, index and checksums are copied as far as the manifest of that end vouches for them.

Nothing is written here. A copy that is not finished is worth nothing.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from rocketpy_broker.runtime.clock import release_gil_briefly
from rocketpy_broker.store.backup.pieces import (
    PIECE_BYTES,
    Piece,
    files_below,
    pieces_of,
    pieces_of_file,
    written_bytes,
)
from rocketpy_broker.store.check.read_only import is_segment_name
from rocketpy_broker.store.files.manifest import Manifest
from rocketpy_broker.store.index.layout import IndexFormat
from rocketpy_broker.store.recovery.store_opener import ManifestPlan
from rocketpy_broker.store.values import FilePrefix

MANIFEST = "rocketpy/manifest.json"
# What is copied with the log, made for the copy, or of no use in it.
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
    }
)
# These do not change, and there may be many.
UNCHANGING = "rocketpy/quarantine/"
TEMPORARY = (".tmp", ".new")
BACKUP = ".bak"
# A save takes a file away for the time of one fsync; a backup may also lie alone.
LOOKS_MAX, LOOK_SECONDS = 50, 0.02
OPEN_FILES_MAX = 256


@dataclass(slots=True)
class StateFiles:
    """State files of one moment, by their names: descriptors and sizes; `others` do not change."""

    folder: Path
    open_files: dict[str, tuple[int, int]] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, folder: Path) -> StateFiles:
        """Opens them. Blocks. Raises OSError."""
        for look in range(LOOKS_MAX):
            state = cls(folder)
            try:
                if state._open() or look == LOOKS_MAX - 1:
                    return state
            except OSError as error:
                state.close()
                if not isinstance(error, FileNotFoundError):
                    raise
            state.close()
            release_gil_briefly(LOOK_SECONDS)
        raise FileNotFoundError(errno.ENOENT, "files are replaced all the time", str(folder))

    def _open(self) -> bool:
        """Returns whether no file was being replaced. Raises OSError."""
        found = files_below(self.folder, NOT_STATE)
        names = [name for name in found if not name.endswith(TEMPORARY)]
        for name in names:
            if name.startswith(UNCHANGING) or len(self.open_files) >= OPEN_FILES_MAX:
                self.others.append(name)
                continue
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self.folder / name, flags)
            self.open_files[name] = descriptor, os.fstat(descriptor).st_size
        alone = {name.removesuffix(BACKUP) for name in names if name.endswith(BACKUP)}
        return alone <= {*names, *NOT_STATE}

    @property
    def bytes(self) -> int:
        """How many bytes they take."""
        sizes = sum(size for _, size in self.open_files.values())
        return sizes + sum(written_bytes(self.folder / name) for name in self.others)

    def pieces(self) -> Iterator[Piece]:
        """What they hold. Blocks. Raises OSError."""
        for name, (descriptor, size) in self.open_files.items():
            for piece in pieces_of(descriptor, name, size):
                yield replace(piece, file_bytes=size)
        for name in self.others:
            yield from pieces_of_file(self.folder / name, name)

    def close(self) -> None:
        """Closes them."""
        while self.open_files:
            os.close(self.open_files.popitem()[1][0])


class LiveBackup:
    """A copy whose log ends at `plan.end`, up to where all is on the disk."""

    def __init__(self, state: StateFiles, plan: ManifestPlan) -> None:
        self.state = state
        self.plan = plan
        self._folder = plan.config.folder
        self._manifest: Manifest

    def verify_against(self) -> None:
        """Finds out what derived files hold. Blocks. Raises OSError, StoreReadError.

        No file may be removed meanwhile.
        """
        self._manifest = self.plan.make()

    @property
    def total_bytes(self) -> int:
        """About how many bytes there are. Blocks; call it after `vouch`. Raises OSError."""
        prefixes = [*self._manifest.queues.values(), self._manifest.checksums]
        derived = sum(prefix.length for each in prefixes for prefix in each.values())
        index = sum(written_bytes(path) for path in self._index_paths())
        log = sum(self._used_bytes(path) for path in self._log_paths())
        return self.state.bytes + derived + index + log

    def _used_bytes(self, path: Path) -> int:
        return min(written_bytes(path), self.plan.end - int(path.name))

    def _log_paths(self) -> list[Path]:
        """Segments with records below the end, and the first one, whose name says the begin."""
        paths = sorted(
            path for path in (self._folder / "commitlog").iterdir() if is_segment_name(path.name)
        )
        return [path for path in paths if int(path.name) < self.plan.end or path == paths[0]]

    def _index_paths(self) -> list[Path]:
        folder = self._folder / "index"
        return sorted(path for path in folder.iterdir() if path.name.isdecimal())

    def derived_pieces(self) -> Iterator[Piece]:
        """State files, queues, index and checksums; quick, for topics may be deleted meanwhile.

        Blocks. Raises OSError, also where files have been removed.
        """
        yield from self.state.pieces()
        for key, prefixes in self._manifest.queues.items():
            yield from self._queue_pieces(f"consumequeue/{key.topic}/{key.queue_id}", prefixes)
        config = self.plan.config
        head_end = IndexFormat(config.index_slot_count, config.index_entry_count_max).entries_begin
        for path in self._index_paths():
            # Slots first: what they point to is there by then.
            yield from pieces_of_file(path, f"index/{path.name}", parts=(head_end,))
        for checksums, prefix in self._manifest.checksums.items():
            name = f"rocketpy/checksums/{checksums}"
            yield from pieces_of_file(self._folder / name, name, prefix.length)

    def _queue_pieces(self, folder: str, prefixes: Mapping[str, FilePrefix]) -> Iterator[Piece]:
        for name, prefix in prefixes.items():
            path = f"{folder}/{name}"
            yield from pieces_of_file(self._folder / path, path, prefix.length)
        if not prefixes:
            # The name alone says where a queue goes on whose messages are all gone.
            names = [name for name in os.listdir(self._folder / folder) if is_segment_name(name)]
            first = min(names, default="0")
            if int(first) > 0:
                yield from pieces_of_file(self._folder / folder / first, f"{folder}/{first}", 0)

    def log_pieces(self) -> Iterator[Piece]:
        """Yields the log, and the manifest of all. Blocks. Raises OSError."""
        for path in self._log_paths():
            name = f"commitlog/{path.name}"
            yield from pieces_of_file(path, name, max(self.plan.end - int(path.name), 0))
        content = self._manifest.encoded()
        for offset in range(0, len(content), PIECE_BYTES):
            data = content[offset : offset + PIECE_BYTES]
            yield Piece(MANIFEST, offset, data, len(content), 0)
