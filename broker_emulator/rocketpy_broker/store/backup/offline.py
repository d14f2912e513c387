"""A copy of all files of a store that no broker serves.

A store without a clean stop is copied as it is, and recovered by the copy's first start.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.store.backup.pieces import (
    NOT_COPIED,
    files_below,
    pieces_of_file,
    written_bytes,
)
from rocketpy_broker.store.backup.target import BackupTarget
from rocketpy_broker.store.check.read_only import StoreReadLock
from rocketpy_broker.store.recovery.plan import Traces


class StoppedStore:
    """The store in `folder`; use it as `with`, which excludes brokers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = StoreReadLock(folder)
        self._names: list[str] = []

    def __enter__(self) -> StoppedStore:
        """Raises StoreDirectoryError, StoreLockedError, OSError."""
        self._lock.__enter__()
        self._names = [*files_below(self._folder, NOT_COPIED)]
        return self

    def __exit__(self, *error: object) -> None:
        """Releases the locks."""
        self._lock.__exit__(None, None, None)

    @property
    def total_bytes(self) -> int:
        """The approximate number of bytes to copy."""
        return sum(written_bytes(self._folder / name) for name in self._names)

    def copy(self, target: BackupTarget, advance: Callable[[int], None]) -> None:
        """Copies all files; calls `advance` with each number of bytes copied.

        Raises OSError, BackupTargetError.
        """
        target.begin(self.total_bytes)
        for name in self._names:
            for piece in pieces_of_file(self._folder / name, name):
                target.write(piece)
                advance(len(piece.data))
        traces = Traces.read(self._folder, started_last=self._lock.started_last)
        if traces.ours and not traces.abnormal and traces.mark is not None:
            target.note_end(traces.mark.flushed)


def check_apart(source: Path, target: Path) -> None:
    """Raises StoreDirectoryError if one directory contains the other."""
    source, target = source.resolve(), target.resolve()
    if source in (target, *target.parents) or target in source.parents:
        raise StoreDirectoryError(
            target,
            f"contains the store {source}, or is inside it",
            "choose a place outside the store",
        )
