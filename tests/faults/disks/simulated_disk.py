"""A disk whose power can be cut: it keeps each file as of its last flush.

It may lose any page of 4 KiB that was written since its file's flush, in any order of writes. A
file that was never flushed may be empty. The name of a file or folder that is new since the flush
of its folder may be lost, with all below it. It never swaps names or garbles a page. A file's new
content under an old name, and removals, count as durable at once.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from rocketpy_broker.store.files import durable

PAGE_BYTES = 4096


class SimulatedDisk:
    """The disk below one folder, while `watched`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # By inode, which stays when a file is renamed.
        self._durable: dict[int, bytes] = {}
        self._names: set[Path] = set(folder.rglob("*"))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Records what is flushed."""
        with (
            mock.patch("os.fsync", self._flush),
            mock.patch("os.fdatasync", self._flush),
            mock.patch.object(durable, "sync_file_system", self._flush_all),
        ):
            yield

    def _flush_all(self, _descriptor: int) -> None:
        paths = list(self._folder.rglob("*"))
        self._durable |= {path.stat().st_ino: path.read_bytes() for path in paths if path.is_file()}
        self._names |= set(paths)

    def _flush(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        name = f"/proc/self/fd/{descriptor}"
        if stat.S_ISREG(status.st_mode):
            if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
                self._durable[status.st_ino] = Path(name).read_bytes()
            else:
                self._durable[status.st_ino] = os.pread(descriptor, status.st_size, 0)
        else:
            self._names |= set(Path(name).readlink().iterdir())

    def cut_power(self, chance: random.Random) -> None:
        """Gives every file a content that the disk may hold now. No process may have one open."""
        share_new = chance.choice([0.0, 0.1, 0.5, 0.9])
        self._lose_names(chance, share_new)
        survivors: dict[int, bytes] = {}
        for path in sorted(self._folder.rglob("*")):
            if path.is_file():
                content = self._left_of(path, chance, share_new)
                with path.open("rb+") as file:
                    file.write(content)
                    file.truncate()
                survivors[path.stat().st_ino] = content
        self._durable = survivors
        self._names = set(self._folder.rglob("*"))

    def _lose_names(self, chance: random.Random, share_new: float) -> None:
        for path in sorted(self._folder.rglob("*")):
            if path in self._names or not path.exists() or chance.random() < share_new:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def _left_of(self, path: Path, chance: random.Random, share_new: float) -> bytes:
        new = path.read_bytes()
        old = self._durable.get(path.stat().st_ino)
        if old is None:
            return new if chance.random() < share_new else b""
        old = old[: len(new)].ljust(len(new), b"\0")
        pages = [slice(begin, begin + PAGE_BYTES) for begin in range(0, len(new), PAGE_BYTES)]
        return b"".join(new[page] if chance.random() < share_new else old[page] for page in pages)
