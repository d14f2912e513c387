"""Failing flushes of derived files, whose pages the system takes for written.

The next power cut shows errors: it takes all that no later write and flush brought to the disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from rocketpy_broker.errors import StoreClosedError
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from tests.faults.disks.simulated_disk import PAGE_BYTES, SimulatedDisk
from tests.support.store.messages import (
    QUEUE,
    flush_log,
    put,
    read_all,
    remove_oldest_segment,
    save_manifest,
)
from tests.support.store.stores import crash, store_in

if TYPE_CHECKING:
    from _typeshed import SupportsLenAndGetItem

# A queue without messages in the log once its first segments are removed.
OLD = QueueKey("Old", 0)
OLD_COUNT, COUNT = 5, 30
QUEUES, CHECKSUMS = "consumequeue", "rocketpy/checksums"
BODY_BYTES = 300
# Space for all of a queue: after a failed flush a queue gets no other file.
QUEUE_BYTES = 2000
torture = (pytest.mark.torture, pytest.mark.timeout(3600))


class Worst(random.Random):
    """A choice by which a disk keeps as little as it may."""

    def choice(self, seq: SupportsLenAndGetItem[Any]) -> Any:
        """Returns the smallest share."""
        return seq[0]

    def random(self) -> float:
        """Returns a number above that share."""
        return 0.5


class FailingDisk(SimulatedDisk):
    """A disk on which a flush in some folders fails: dirty pages become clean, but are not durable.

    Another write of the same page and a flush after it make the page durable.
    """

    def __init__(self, folder: Path, failing: int, folders: list[str]) -> None:
        super().__init__(folder)
        self._left = failing
        self._derived = [str(folder / name) for name in folders]
        # By inode: pages that the system takes for written though they are not.
        self._lost: dict[int, set[int]] = {}
        self._pwrite, self._fsync = os.pwrite, self._flush
        self.failed = False

    def written(self, descriptor: int, data: bytes, position: int) -> int:
        """Marks the written pages as dirty."""
        lost = self._lost.get(os.fstat(descriptor).st_ino)
        if lost:
            end = position + len(data)
            lost.difference_update(range(position // PAGE_BYTES, -(-end // PAGE_BYTES)))
        return self._pwrite(descriptor, data, position)

    def flushed(self, descriptor: int) -> None:
        """Flushes one file or folder."""
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_file() and str(path).startswith(tuple(self._derived)):
            self._count([path])
        self._kept([path], lambda: self._fsync(descriptor))

    def all_flushed(self, descriptor: int) -> None:
        """Flushes the file system."""
        paths = [path for path in self._folder.rglob("*") if path.is_file()]
        self._count([path for path in paths if str(path).startswith(tuple(self._derived))])
        self._kept(paths, lambda: self._flush_all(descriptor))

    def _count(self, paths: list[Path]) -> None:
        self._left -= 1
        if self._left != 0:
            return
        self.failed = True
        for path in paths:
            new = path.read_bytes()
            old = self._durable.get(path.stat().st_ino, b"").ljust(len(new), b"\0")
            pages = range(-(-len(new) // PAGE_BYTES))
            self._lost[path.stat().st_ino] = {page for page in pages if not _same(page, old, new)}
        raise OSError(errno.EIO, "Input/output error")

    def _kept(self, paths: list[Path], flush: Callable[[], None]) -> None:
        """Flushes all but the lost pages."""
        before = dict(self._durable)
        flush()
        for path in paths:
            inode = path.stat().st_ino if path.is_file() else 0
            lost = self._lost.get(inode)
            if lost and inode in self._durable:
                new = self._durable[inode]
                old = before.get(inode, b"").ljust(len(new), b"\0")
                pages = range(-(-len(new) // PAGE_BYTES))
                parts = [_page(page, old if page in lost else new) for page in pages]
                self._durable[inode] = b"".join(parts)


def _page(page: int, content: bytes) -> bytes:
    return content[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]


def _same(page: int, old: bytes, new: bytes) -> bool:
    return _page(page, old) == _page(page, new)


def new_store(folder: Path) -> MessageStore:
    """Returns a store with small files and no index, which is written through a mapping."""
    sync = FlushDiskType.SYNC_FLUSH
    return store_in(folder, None, sync, queue_file_bytes=QUEUE_BYTES, index_enable=False)


def opened(folder: Path) -> MessageStore:
    """Returns an open store; a start with the failing flush is repeated."""
    for _ in range(2):
        store = new_store(folder)
        with contextlib.suppress(OSError):
            store.open()
            return store
    raise AssertionError("a start fails though no flush does any more")


def body(number: int) -> bytes:
    return (b"%d " % number).ljust(BODY_BYTES, b".")


class Script:
    """A script of sends, flushes and manifests; a failed store does as much as it can."""

    def __init__(self) -> None:
        self.counts = {OLD: 0, QUEUE: 0}

    def send(self, store: MessageStore, queue: QueueKey, count: int) -> None:
        """Sends messages, and counts the acknowledged ones."""
        for _ in range(count):
            put(store, [body(self.counts[queue])], queue)
            flush_log(store)
            self.counts[queue] += 1

    def send_first(self, store: MessageStore) -> None:
        """Sends the first messages of both queues."""
        self.send(store, QUEUE, 1)
        self.send(store, OLD, OLD_COUNT)

    def run(self, store: MessageStore, *, stop: bool) -> None:
        """Runs all steps; then stops or kills the store."""
        steps: list[Callable[[], None]] = [
            store.open,  # type: ignore[list-item]
            lambda: self.send_first(store),
            store.flush_derived,
            lambda: self.send(store, QUEUE, COUNT // 2),
            store.flush_derived,
            lambda: save_manifest(store),
            lambda: self.send(store, QUEUE, COUNT // 2),
            lambda: save_manifest(store),
            store.flush_derived,
        ]
        for number, step in enumerate(steps):
            try:
                step()
            except (OSError, StoreClosedError):
                # A log that cannot be flushed ends the run, as a failed start does.
                if number in (0, 1, 3, 6):
                    crash(store)
                    return
        if stop:
            try:
                store.close()
                return
            except OSError:
                pass
        crash(store)


def check(store: MessageStore, counts: dict[QueueKey, int]) -> None:
    """Asserts that no offset is given twice, and all messages of the log are read."""
    for queue, count in counts.items():
        found = store.range_of(queue)
        assert found.max_offset >= count
        bodies = read_all(store, queue)
        assert bodies == [body(number) for number in range(found.min_offset, found.max_offset)]


def fails_once(folder: Path, number: int, folders: list[str], *, stop: bool) -> bool:
    """Fails one flush of a run, starts, cuts the power, checks; True if there was that flush."""
    folder.mkdir()
    disk = FailingDisk(folder, number, folders)
    script = Script()
    with (
        disk.watched(),
        mock.patch("os.fsync", disk.flushed),
        mock.patch("os.fdatasync", disk.flushed),
        mock.patch("os.pwrite", disk.written),
        mock.patch("rocketpy_broker.store.files.durable.sync_file_system", disk.all_flushed),
    ):
        script.run(new_store(folder), stop=stop)
        second = opened(folder)
        check(second, script.counts)
        # The log has no more records for the queues' files of removed segments.
        with contextlib.suppress(OSError):
            while len(second._log.files.segments) > 2:
                remove_oldest_segment(second)
        crash(second)
        disk.cut_power(Worst())
        third = opened(folder)
        check(third, script.counts)
        crash(third)
    return disk.failed


@pytest.mark.parametrize("stop", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("folders", [[QUEUES], pytest.param([QUEUES, CHECKSUMS], marks=torture)])
def test_f8_a_failed_flush_of_a_derived_file_leaves_nothing_that_a_power_cut_takes(
    ram_folder: Path, folders: list[str], *, stop: bool
) -> None:
    number = 1
    while fails_once(ram_folder / str(number), number, folders, stop=stop):
        number += 1
    assert number > 4
