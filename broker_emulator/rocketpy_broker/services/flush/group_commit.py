"""Group commit: one flush for many waiting senders.

With SYNC_FLUSH every acknowledgement waits for the flush of its records. One fdatasync at a time
runs on a thread, and all appends meanwhile share the next one. With ASYNC_FLUSH no sender waits,
and the same loop flushes by interval. With SYNC_MASTER a sender then waits for slaves. A crash
loses unflushed records; with SYNC_FLUSH none of them was acknowledged.
Source: docs/design/storage.md section 9.1.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from rocketpy_broker.errors import FlushTimeoutError, StoreClosedError
from rocketpy_broker.runtime.clock import Clock, fail, next_pass, resolve, sleep
from rocketpy_broker.runtime.listeners import Listeners
from rocketpy_broker.runtime.scheduler import running_scheduler
from rocketpy_broker.services.flush.admission import Admission
from rocketpy_broker.services.replication.confirmations import Confirmations
from rocketpy_broker.store.config import FlushDiskType, FlushTimes
from rocketpy_broker.store.message_store import MessageStore

logger = logging.getLogger(__name__)
# Callers that one pass of the loop answers after a flush; each takes some 40 us.
CALLERS_A_PASS = 200


@dataclass(slots=True)
class _Waiter:
    """A future for a flush up to `end_offset`, and the number of its callers."""

    end_offset: int
    future: asyncio.Future[None]
    callers: int = 1


class GroupCommit:
    """The owner of the flush thread; `run` is its loop, senders call `wait`."""

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        flush_disk_type: FlushDiskType,
        times: FlushTimes,
        confirmations: Confirmations | None = None,
    ) -> None:
        """Makes acknowledgements wait for `confirmations` of slaves too, unless it is None."""
        self._store = store
        self._clock = clock
        self._sync = flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._times = times
        self._confirmations = confirmations or Confirmations.without_slaves(clock)
        self._thorough_at_ms = 0.0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="flush")
        self.admission = Admission(store, self)
        self._wanted = asyncio.Event()
        self._waiters: deque[_Waiter] = deque()
        # The newest waiter that several callers may share.
        self._shared: _Waiter | None = None
        # Listeners for the duration of each flush in ms.
        self.flushed = Listeners[[float]]()

    def is_acknowledged(self, end_offset: int) -> bool:
        """True if an append that ends at `end_offset` may be acknowledged now."""
        return self._is_flushed(end_offset) and self._confirmations.has(end_offset)

    def _is_flushed(self, end_offset: int) -> bool:
        return not self._sync or self._store.flushed_end >= end_offset

    async def wait(self, end_offset: int) -> None:
        """Waits for the flush of an append that ends at `end_offset`; does not wait for slaves.

        Raises StoreClosedError when the flush failed: the append may or may not survive. Raises
        FlushTimeoutError after `sync_flush_timeout_ms`: the append is stored and may still be
        flushed.
        """
        if not self._is_flushed(end_offset):
            await self._begin_wait(end_offset).future

    async def acknowledged(self, end_offset: int) -> None:
        """Waits until an append that a client has sent may be acknowledged.

        Raises the errors of `wait`, and SlaveTimeoutError or SlaveNotAvailableError: the append is
        stored and may still be confirmed.
        """
        await self.wait(end_offset)
        await self._confirmations.wait(end_offset)

    def acknowledgement(self, end_offset: int) -> asyncio.Future[None]:
        """Returns a future that ends as `acknowledged` does. Callers with one offset share it.

        No caller may cancel it. Raises StoreClosedError as `wait` does.
        """
        if self._is_flushed(end_offset):
            return self._confirmations.begin(end_offset)
        flushed = self.flush_future(end_offset)
        return (
            flushed if self._confirmations.has(end_offset) else self._followed(flushed, end_offset)
        )

    def _followed(self, flushed: asyncio.Future[None], end_offset: int) -> asyncio.Future[None]:
        """Returns a future that waits for slaves when `flushed` is done."""
        both: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def end(done: asyncio.Future[None]) -> None:
            if (error := done.exception()) is not None:
                both.set_exception(error)
            else:
                both.set_result(None)

        def follow(done: asyncio.Future[None]) -> None:
            if done.exception() is not None:
                end(done)
            else:
                self._confirmations.begin(end_offset).add_done_callback(end)

        flushed.add_done_callback(follow)
        # Reads the error: asyncio would log it if the caller has gone.
        both.add_done_callback(lambda done: done.exception())
        return both

    def flush_future(self, end_offset: int) -> asyncio.Future[None]:
        """Returns the future of a flush, which callers with one offset share.

        Raises StoreClosedError.
        """
        shared = self._shared
        if shared is None or shared.end_offset != end_offset or shared.future.done():
            shared = self._shared = self._begin_wait(end_offset)
        else:
            shared.callers += 1
        return shared.future

    def _begin_wait(self, end_offset: int) -> _Waiter:
        if self._store.refusal is not None:
            raise StoreClosedError(self._store.refusal)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(end_offset, future)
        self._waiters.append(waiter)
        self._wanted.set()
        timeout_ms = self._times.sync_flush_timeout_ms
        timer = self._clock.call_later(
            timeout_ms, lambda: fail(future, FlushTimeoutError(timeout_ms))
        )
        future.add_done_callback(lambda _: timer.cancel())
        return waiter

    @property
    def waiting_count(self) -> int:
        """The number of senders that wait for a flush."""
        return sum(not waiter.future.done() for waiter in self._waiters)

    def flush_soon(self) -> None:
        """Requests a flush of all appended records, without waiting; `run` does it."""
        self._wanted.set()

    async def run(self) -> None:
        """Flushes on request or by interval, until cancelled or until a flush fails."""
        try:
            while not self._store.is_sealed:
                if self._sync:
                    await self._wanted.wait()
                    self._wanted.clear()
                    await self.flush()
                else:
                    await sleep(self._clock, self._times.flush_interval_ms)
                    if self._is_worth_it():
                        await self.flush()
        finally:
            self._fail_waiters("the broker is stopping")

    def _is_worth_it(self) -> bool:
        """True if at least `least_bytes` are unflushed, or any after `thorough_interval_ms`."""
        dirty = self._store.unflushed_bytes
        now_ms = self._clock.monotonic_ms()
        if dirty >= self._times.least_bytes or now_ms >= self._thorough_at_ms:
            self._thorough_at_ms = now_ms + self._times.thorough_interval_ms
            return dirty > 0
        return False

    async def flush(self) -> None:
        """Flushes all records appended until now; a failure turns the store read-only."""
        plan = self._store.plan_flush()
        if not plan.segments:
            return
        begin_ms = self._clock.monotonic_ms()
        try:
            with running_scheduler().thread_at_work():
                await asyncio.get_running_loop().run_in_executor(self._thread, plan.run)
            self._store.flushed(plan)
            self.flushed(self._clock.monotonic_ms() - begin_ms)
        except OSError as error:
            logger.critical("flush failed, the broker turns read-only: %s", error)
            self._store.flush_failed(error)
            self._fail_waiters(self._store.refusal or "")
            return
        callers = 0
        while self._waiters and self._waiters[0].end_offset <= plan.end:
            waiter = self._waiters.popleft()
            resolve(waiter.future)
            callers += waiter.callers
            if callers >= CALLERS_A_PASS:
                callers = 0
                await next_pass()

    def _fail_waiters(self, reason: str) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if waiter.end_offset <= self._store.flushed_end:
                resolve(waiter.future)
            elif not waiter.future.done():
                waiter.future.set_exception(StoreClosedError(reason))

    def close(self) -> None:
        """Waits for a running flush and ends the thread."""
        self._thread.shutdown(wait=True)


def flush_now(store: MessageStore) -> None:
    """Flushes all appended records while no loop runs. Blocks. Raises OSError."""
    plan = store.plan_flush()
    plan.run()
    store.flushed(plan)
