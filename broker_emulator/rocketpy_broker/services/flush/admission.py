"""Admission of appends: every place where a send waits before its write.

A small block waits while too many bytes are unflushed, and while a thread writes a large block. An
append during that write would wait for the thread and block the event loop. So no other task may
run between the end of the wait and the append.

A large block waits for five things, in this order:

- room among the large blocks in flight, in turn by connection;
- the flush of earlier large blocks, which would delay the flush of a small block;
- a scheduler slot;
- the index entries for keys of earlier blocks;
- its turn to write.

The sender's stream is not read meanwhile, so gRPC's flow control slows the sender. A cancelled task
gives up its place. If it is cancelled during its write, the block is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from rocketpy_broker.errors import StoreClosedError, UnconfirmedError
from rocketpy_broker.runtime import scheduler
from rocketpy_broker.runtime.clock import resolve
from rocketpy_broker.runtime.shares import InFlightLimiter
from rocketpy_broker.runtime.tasks import run_shielded
from rocketpy_broker.store.append.appender import AppendUnderWay
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import AppendResult

if TYPE_CHECKING:
    from rocketpy_broker.services.flush.group_commit import GroupCommit

T = TypeVar("T")
# Blocks up to this size are small: checked and stored in well under a millisecond.
SMALL_BYTES_MAX = 64 << 10
# Bytes of large blocks in flight: in all, and of one connection. Sends and stages count apart.
TOTAL_BYTES_MAX, CONNECTION_BYTES_MAX = 32 << 20, 16 << 20
# Unflushed bytes beyond which large blocks wait.
BULK_UNFLUSHED_BYTES_MAX = 8 << 20
# Undispatched queue slices beyond which large blocks wait; their dispatch takes the loop 10 ms.
BULK_UNDISPATCHED_MAX = 2_000
# One for the check of a block, one for the write of another.
THREADS = 2


class Admission:
    """The waiting places of one store's appends, and the threads of large ones."""

    def __init__(self, store: MessageStore, group_commit: GroupCommit) -> None:
        self._store = store
        self._group_commit = group_commit
        self.sends = InFlightLimiter(TOTAL_BYTES_MAX, CONNECTION_BYTES_MAX)
        self.stages = InFlightLimiter(TOTAL_BYTES_MAX, CONNECTION_BYTES_MAX)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="append")
        self._one_at_a_time = asyncio.Lock()
        self.is_writing = False
        self._waiting: list[asyncio.Future[None]] = []

    def close(self) -> None:
        """Waits for running work and ends the threads."""
        self._threads.shutdown(wait=True)

    # --- Small blocks ---

    @property
    def is_busy(self) -> bool:
        """True if a sender has to wait for a flush."""
        return self._store.is_busy

    async def store_ready(self, *, for_bulk: bool = False) -> None:
        """Waits while too many bytes are unflushed, so that a sender is slowed, not refused.

        With `for_bulk` it also waits at the lower limits of large blocks.
        """
        is_much = for_bulk and (
            self._store.unflushed_bytes > BULK_UNFLUSHED_BYTES_MAX
            or self._store.undispatched_count > BULK_UNDISPATCHED_MAX
        )
        with contextlib.suppress(UnconfirmedError, StoreClosedError):
            if is_much:
                await self._group_commit.wait(self._store.positions().log_end)
            # Another waiter may have filled the store again.
            while self._store.is_busy:
                await self._group_commit.wait(self._store.positions().log_end)

    def when_flushed(self, callback: Callable[[bool], None]) -> None:
        """Calls `callback` at the end of a flush of everything appended so far.

        The argument is False if the flush failed or took too long.
        """
        try:
            flushed = self._group_commit.flush_future(self._store.positions().log_end)
        except StoreClosedError:
            callback(False)
        else:
            flushed.add_done_callback(lambda done: callback(done.exception() is None))

    async def write_over(self) -> None:
        """Waits until no thread writes."""
        while self.is_writing:
            self._waiting.append(asyncio.get_running_loop().create_future())
            await self._waiting[-1]

    async def appends_over(self) -> None:
        """Waits for the flush of everything appended so far. Raises as `GroupCommit.wait` does."""
        await self._group_commit.wait(self._store.positions().log_end)

    def when_write_over(self, callback: Callable[[], None]) -> None:
        """Calls `callback` when the current write has ended."""
        self._waiting.append(asyncio.get_running_loop().create_future())
        self._waiting[-1].add_done_callback(lambda _: callback())

    @property
    def waiting_count(self) -> int:
        """The number of appends that wait for the end of a write."""
        return len(self._waiting)

    # --- Large blocks ---

    @asynccontextmanager
    async def large(self, size: int) -> AsyncIterator[None]:
        """Waits until a large block may be checked; it is in flight until the `with` block ends."""
        async with self.sends.acquire(scheduler.connection.get(), size):
            await self.store_ready(for_bulk=True)
            await scheduler.take_slot("append")
            index = self._store.index
            while index.has_many and index.drain_some():
                await scheduler.take_slot("index")
            yield

    def staged(self, size: int) -> AbstractAsyncContextManager[None]:
        """Waits for room to stage a block; it is in flight until the `with` block ends."""
        return self.stages.acquire(scheduler.connection.get(), size)

    @asynccontextmanager
    async def turn_to_write(self) -> AsyncIterator[None]:
        """Waits for other large writes and a slot; excludes other writes in the `with` block."""
        async with self._one_at_a_time:
            await scheduler.take_slot("write")
            yield

    async def write(self, under_way: AppendUnderWay) -> AppendResult:
        """Writes a block on a thread, while the caller has its `turn_to_write`.

        If the caller is cancelled during the write, the block is stored. Raises StoreClosedError.
        """
        with self.writing():
            try:
                await self.in_thread(under_way.write)
            finally:
                # A cancelled caller also stores the block; it gets no error of the store.
                with contextlib.suppress(StoreClosedError):
                    under_way.finish()
        return under_way.finish()

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Marks a write until the `with` block ends; then wakes the waiting appends."""
        self.is_writing = True
        try:
            yield
        finally:
            self.is_writing = False
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                resolve(each)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Runs the check or the write of a large block; a cancelled caller waits for its end."""
        with scheduler.running_scheduler().thread_at_work():
            return await run_shielded(
                asyncio.get_running_loop().run_in_executor(self._threads, work)
            )
