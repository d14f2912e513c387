"""Backups of a store in use: one at a time, in steps.

A thread named "backup" does the work. Cleaning removes nothing of the log while a backup runs. A
client that reads nothing for STALL_MS_MAX loses this protection, and another backup may start. The
broker keeps nothing of a backup on disk: after a crash the client starts again.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import TypeVar

from rocketpy_broker.errors import BrokerError, StoreClosedError
from rocketpy_broker.runtime.clock import Clock, sleep
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.runtime.tasks import run_shielded
from rocketpy_broker.services.config_files.saver import save_all
from rocketpy_broker.services.context import SavedTable
from rocketpy_broker.services.flush.wiring import FlushServices
from rocketpy_broker.store.backup.live import LiveBackup, StateFiles
from rocketpy_broker.store.backup.pieces import Piece
from rocketpy_broker.store.message_store import NOTHING_NEEDED, MessageStore
from rocketpy_proto.model.codes import ResponseCode

T = TypeVar("T")
STEP_BYTES, STEP_PIECES = 1 << 20, 200
STALL_MS_MAX = 120_000
# Time to wait for a log end at which a copy may end, and time between two checks of it.
END_MS_MAX, END_POLL_MS = 60_000, 20
STARTS_MAX = 10


class BackupError(BrokerError):
    """A backup that cannot be made now; all its pieces are void."""

    code = ResponseCode.SYSTEM_BUSY


@dataclass(frozen=True, slots=True)
class BackupStart:
    """The start of a copy; `total_bytes` is approximate, and earlier pieces are void."""

    total_bytes: int
    log_end: int


BackupStep = BackupStart | list[Piece]


class _TopicDeletedError(Exception):
    """A topic deleted while its queues were copied."""


class BackupService:
    """Backups of one store; `tables` are saved before the state files are copied."""

    def __init__(
        self, store: MessageStore, flush: FlushServices, tables: list[SavedTable], clock: Clock
    ) -> None:
        self._store = store
        self._group_commit = flush.group_commit
        self._store_files = flush.store_files
        self._tables = tables
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="backup")
        # Number of the running backup, 0: none; and the time of its last step.
        self._numbers = itertools.count(1)
        self._running = 0
        self._went_on_ms = 0.0
        self._log_begin = NOTHING_NEEDED
        store.backup_from = self._needed_from

    @property
    def _is_stalled(self) -> bool:
        return self._clock.monotonic_ms() - self._went_on_ms > STALL_MS_MAX

    def _needed_from(self) -> int:
        """Returns the log offset from which the running backup needs the log."""
        return self._log_begin if self._running and not self._is_stalled else NOTHING_NEEDED

    async def run(self) -> AsyncGenerator[BackupStep, None]:
        """Yields the copy, in steps of about 1 MiB. Raises BackupError, StoreClosedError."""
        with self._only_one() as number:
            try:
                for _ in range(STARTS_MAX):
                    try:
                        async with aclosing(self._once()) as steps:
                            async for step in steps:
                                yield step
                                self._goes_on(number)
                                await take_slot("backup")
                    except _TopicDeletedError:
                        continue
                    return
            except OSError as error:
                raise BackupError(f"the backup failed ({error}); start it again") from error
            raise BackupError(
                f"topics were deleted during each of {STARTS_MAX} starts of the backup; "
                "start it again when none is deleted"
            )

    @contextmanager
    def _only_one(self) -> Iterator[int]:
        if self._running and not self._is_stalled:
            raise BackupError("another backup of the store is running; start this one after it")
        number = self._running = next(self._numbers)
        self._log_begin = self._store.positions().log_begin
        self._went_on_ms = self._clock.monotonic_ms()
        try:
            yield number
        finally:
            if self._running == number:
                self._running = 0

    def _goes_on(self, number: int) -> None:
        """Notes a step that the client has read. Raises BackupError if the client has stalled."""
        if self._running != number or self._is_stalled:
            raise BackupError(
                f"the backup was not read for {STALL_MS_MAX // 1000} s, and the store may have "
                "been cleaned since; start it again"
            )
        self._went_on_ms = self._clock.monotonic_ms()

    async def _once(self) -> AsyncGenerator[BackupStep, None]:
        # This waits for the end of a running removal.
        async with self._store_files.removing_nothing():
            self._log_begin = self._store.positions().log_begin
        deletion_count = self._store.deletion_counts.total()
        await save_all(self._tables)
        state = await self._in_thread(lambda: StateFiles.of(self._store.config.folder))
        try:
            backup = await self._planned(state)
            async with self._store_files.removing_nothing():
                self._check_topics(deletion_count)
                await self._in_thread(backup.read_derived_state)
            yield BackupStart(await self._in_thread(lambda: backup.total_bytes), backup.plan.end)
            try:
                async with aclosing(self._steps(backup.derived_pieces())) as steps:
                    async for step in steps:
                        yield step
            except FileNotFoundError:
                self._check_topics(deletion_count)
                raise
            self._check_topics(deletion_count)
            async with aclosing(self._steps(backup.log_pieces())) as steps:
                async for step in steps:
                    yield step
        finally:
            await self._in_thread(state.close)

    def _check_topics(self, deletion_count: int) -> None:
        if self._store.deletion_counts.total() != deletion_count:
            raise _TopicDeletedError

    async def _planned(self, state: StateFiles) -> LiveBackup:
        """Returns a copy that ends at or after the present log end.

        So it has all messages that the state files know.

        Raises BackupError, StoreClosedError.
        """
        store = self._store
        end_min = store.positions().log_end
        deadline_ms = self._clock.monotonic_ms() + END_MS_MAX
        while True:
            if store.is_sealed:
                raise StoreClosedError(
                    "a store that accepts no messages cannot be backed up while its broker runs "
                    f"({store.refusal}); stop the broker first"
                )
            if store.flushed_end < end_min:
                await self._group_commit.flush()
            while store.index.drain_some():
                await take_slot("backup")
            store.dispatch()
            plan = store.plan_manifest(min(store.flushed_end, store.needed_from))
            if plan.end >= end_min:
                return LiveBackup(state, plan)
            if self._clock.monotonic_ms() > deadline_ms:
                raise BackupError(
                    f"messages up to log offset {end_min} are missing from their queues, or a "
                    "decided batch cannot be stored. Check the disk, and start the backup again"
                )
            await sleep(self._clock, END_POLL_MS)

    async def _steps(self, pieces: Iterator[Piece]) -> AsyncGenerator[list[Piece], None]:
        try:
            while step := await self._in_thread(lambda: _some(pieces)):
                yield step
        finally:
            # Closes the file that the generator reads.
            await self._in_thread(getattr(pieces, "close", lambda: None))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Runs `work` in the thread; returns at its end, also when the caller is cancelled."""
        return await run_shielded(asyncio.get_running_loop().run_in_executor(self._thread, work))

    def close(self) -> None:
        """Waits for the running step and ends the thread."""
        self._thread.shutdown(wait=True)


def _some(pieces: Iterator[Piece]) -> list[Piece]:
    """Returns the pieces of the next step; an empty list at the end."""
    step: list[Piece] = []
    size = 0
    for piece in pieces:
        step.append(piece)
        size += len(piece.data)
        if size >= STEP_BYTES or len(step) >= STEP_PIECES:
            break
    return step
