"""A simulated disk below a broker, and the moments at which its machine may end.

A crash is a copy of the folder at that very moment, be it within a flush or between two appends.
The old machine may go on until the end of its scheduler slot; no client gets its answers.
"""

from __future__ import annotations

import errno
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.faults.disks.simulated_disk import SimulatedDisk


class CrashingDisk(SimulatedDisk):
    """A disk that can be copied, with failing flushes and a callback at each flush."""

    def __init__(self, folder: Path, on_flush: Callable[[], None]) -> None:
        super().__init__(folder)
        self.folder = folder
        self._on_flush = on_flush
        # The flush that fails, counted from now on.
        self.fails_at = 0
        self.has_failed = False

    def _flush(self, descriptor: int) -> None:
        with self._troubled():
            super()._flush(descriptor)

    def _flush_all(self, descriptor: int) -> None:
        with self._troubled():
            super()._flush_all(descriptor)

    @contextmanager
    def _troubled(self) -> Iterator[None]:
        self._on_flush()
        self.fails_at -= 1
        if self.fails_at == 0:
            self.has_failed = True
            raise OSError(errno.EIO, "Input/output error")
        yield
        self._on_flush()

    def copied(self, folder: Path) -> CrashingDisk:
        """Returns a copy in a new folder, as a kill leaves it."""
        copy = CrashingDisk(folder, self._on_flush)
        folder.mkdir()
        for path in sorted(self.folder.rglob("*")):
            target = folder / path.relative_to(self.folder)
            if path.is_dir():
                target.mkdir(exist_ok=True)
            else:
                shutil.copyfile(path, target)
                durable = self._durable.get(path.stat().st_ino)
                if durable is not None:
                    copy._durable[target.stat().st_ino] = durable
        copy._names.update(folder / path.relative_to(self.folder) for path in self._names)
        return copy

    def texts(self, names: Sequence[str]) -> dict[str, bytes]:
        """Returns the contents of the existing files among these."""
        paths = {name: self.folder / name for name in names}
        return {name: path.read_bytes() for name, path in paths.items() if path.exists()}

    def put_back(self, texts: Mapping[str, bytes]) -> None:
        """Restores earlier contents of files, durably."""
        for name, text in texts.items():
            path = self.folder / name
            path.write_bytes(text)
            self._durable[path.stat().st_ino] = text
            self._names.add(path)

    def cut(self, chance: random.Random) -> None:
        """Changes the files as a power cut does."""
        self.cut_power(chance)
