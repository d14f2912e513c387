"""The disk under a test: a call of the system on a file may fail, wait or be noted.

Nothing of the product is replaced; its files are found by their paths.
"""

from __future__ import annotations

import asyncio
import os
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import pytest

from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.record import RECORD_MAGICS, RecordBlock, decode_record
from tests.support.time_limits import WAIT_SECONDS_MAX

LOG = "*/commitlog/*"
CHECKSUMS = "*/rocketpy/checksums/*"
STAGING = "*/rocketpy/staging/*"
INDEX = "*/index/*"
_MAGIC = struct.Struct(">4xI")


@dataclass(frozen=True, slots=True)
class DiskCall:
    """A call on a file, given by path or descriptor, with the rest of its arguments."""

    path: str
    file: int | str | os.PathLike[str]
    arguments: tuple[Any, ...]

    @property
    def records(self) -> RecordBlock | None:
        """The records that a call of `pwrite` adds to the log.

        None for other bytes, and for records that a start writes again.
        """
        assert isinstance(self.file, int)
        data, position = bytearray(self.arguments[0]), self.arguments[1]
        if len(data) < _MAGIC.size or _MAGIC.unpack_from(data)[0] not in RECORD_MAGICS:
            return None
        is_there = os.pread(self.file, len(data), position) == data
        return None if is_there else RecordBlock.parse(data)


Act = Callable[[DiskCall], None]


def before_call(patch: pytest.MonkeyPatch, name: str, pattern: str, act: Act) -> None:
    """Runs `act` before each call of `os.<name>` on a file of that pattern; `act` may raise."""
    system = getattr(os, name)

    def call(file: int | str | os.PathLike[str], *arguments: Any, **named: Any) -> Any:
        path = os.readlink(f"/proc/self/fd/{file}") if isinstance(file, int) else os.fspath(file)
        if fnmatchcase(path, pattern):
            act(DiskCall(path, file, arguments))
        return system(file, *arguments, **named)

    patch.setattr(os, name, call)


def failing(code: int) -> Act:
    """Returns an act that raises the error of this number."""

    def fail(_call: DiskCall) -> None:
        raise OSError(code, os.strerror(code))

    return fail


def queue_of(block: RecordBlock) -> QueueKey:
    """Returns the queue of the first record."""
    record = decode_record(block.data.data, 0).record
    return QueueKey(record.topic, record.queue_id)


def noted_writes(patch: pytest.MonkeyPatch) -> list[RecordBlock]:
    """Returns a list that gets each block of records that is written to the log."""
    blocks: list[RecordBlock] = []

    def note(call: DiskCall) -> None:
        if (block := call.records) is not None:
            blocks.append(block)

    before_call(patch, "pwrite", LOG, note)
    return blocks


def refuse_writes(patch: pytest.MonkeyPatch, code: int, queue: QueueKey) -> list[QueueKey]:
    """Lets writes of one queue's records to the log fail; returns a list that gets each of them.

    Nothing of a refused block is stored.
    """
    refused: list[QueueKey] = []

    def refuse(call: DiskCall) -> None:
        block = call.records
        if block is not None and queue_of(block) == queue:
            refused.append(queue)
            raise OSError(code, os.strerror(code))

    before_call(patch, "pwrite", LOG, refuse)
    return refused


@dataclass
class Gate:
    """A gate that holds some calls on some files, each on its thread; `after` is left out first."""

    count: int
    after: int = 0
    held: int = 0
    _goes_on: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, _call: DiskCall) -> None:
        with self._lock:
            is_held = self.after == 0 and self.held < self.count
            self.held += is_held
            self.after -= self.after > 0
        if is_held:
            assert self._goes_on.wait(WAIT_SECONDS_MAX)

    async def reached(self) -> None:
        """Waits until the gate holds its full number of calls."""
        while self.held < self.count:  # noqa: ASYNC110 (threads have no event of the loop)
            await asyncio.sleep(0.001)

    def open(self) -> None:
        """Releases the calls."""
        self._goes_on.set()

    def open_soon(self, seconds: float) -> None:
        """Releases the calls while the test's own thread is busy."""
        threading.Timer(seconds, self.open).start()


@contextmanager
def holding(
    patch: pytest.MonkeyPatch, name: str, pattern: str, count: int = 1, *, after: int = 0
) -> Iterator[Gate]:
    """Yields a gate; opens it at the end of the block, so that threads end."""
    gate = Gate(count, after)
    before_call(patch, name, pattern, gate)
    try:
        yield gate
    finally:
        gate.open()
