"""The disk below simulated brokers, and a server without a port."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from unittest import mock

import pytest

from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.server.grpc.server import GrpcServer
from tests.support.store.disk_calls import CHECKSUMS, LOG, Act, before_call

# A crash copies the index.
INDEX_SLOTS, INDEX_ENTRIES = 8, 200
DISK_BLOCKS, BLOCK_BYTES = 1_000_000, 4096


class NoServer(GrpcServer):
    """A stand-in for the server: the simulation's clients call services."""

    def __init__(self, *_given: object) -> None:
        self.tls_port = None

    async def start(self, _scope: TaskScope) -> int:
        """Starts no listener."""
        return 1

    async def serving(self) -> None:
        """Reports nothing."""

    async def stop(self) -> None:
        """Closes no connection."""

    async def connection_count(self) -> int:
        """Returns 0: there are no connections."""
        return 0


@contextmanager
def patched(
    flush: Callable[[int], None],
    flush_all: Callable[[int], None],
    before_append: Act,
    used_ratio: Callable[[Path], float],
    chance: random.Random,
) -> Iterator[None]:
    """Runs the block's brokers on simulated disks, given the functions of their flushes.

    `before_append` comes before each write to a log, and between the records and their checksums.
    Identifiers follow from `chance`, since their lengths change the pieces that a network makes.
    """

    def status_of(folder: Path) -> os.statvfs_result:
        free = int(DISK_BLOCKS * (1 - used_ratio(folder)))
        sizes = (BLOCK_BYTES, BLOCK_BYTES, DISK_BLOCKS, free, free)
        return os.statvfs_result((*sizes, 0, 0, 0, 0, 255))

    with (
        mock.patch("os.fsync", flush),
        mock.patch("os.fdatasync", flush),
        mock.patch("rocketpy_broker.store.files.durable.sync_file_system", flush_all),
        mock.patch("rocketpy_broker.store.message_store.used_ratio", used_ratio),
        mock.patch("os.statvfs", status_of),
        mock.patch("secrets._sysrand", copy(chance)),
        # Threads are simulated too, so none waits for the interpreter.
        mock.patch("rocketpy_broker.runtime.scheduler.pause"),
        pytest.MonkeyPatch.context() as patch,
    ):
        for pattern in (LOG, CHECKSUMS):
            before_call(patch, "pwrite", pattern, before_append)
        yield
