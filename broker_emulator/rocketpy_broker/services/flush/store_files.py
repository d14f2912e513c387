"""Background work on the store's files, on one thread.

No acknowledgement waits for it. The loop flushes derived files and saves the manifest by interval.
Log segments and topics are removed on request. A removal must not run while a manifest is being
built. So each task runs to its end before the next one starts. The next start or the next call
completes work that a crash interrupts; see the store's `removal`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from rocketpy_broker.runtime.clock import Clock, sleep
from rocketpy_broker.runtime.log_throttle import LogThrottle
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.runtime.tasks import run_shielded
from rocketpy_broker.store.message_store import MessageStore

logger = logging.getLogger(__name__)


class StoreFiles:
    """The owner of the thread for file work; `run` is its loop."""

    def __init__(self, store: MessageStore, clock: Clock, interval_ms: int) -> None:
        self._store = store
        self._clock = clock
        self._interval_ms = interval_ms
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store-files")
        self._one_at_a_time = asyncio.Lock()
        # A disk may stay full for hours: one line per minute for each failure.
        self._log_throttle = defaultdict[str, LogThrottle](lambda: LogThrottle(clock))

    async def run(self) -> None:
        """Flushes derived files every interval; a delay is harmless, since they can be rebuilt."""
        while True:
            await sleep(self._clock, self._interval_ms)
            # Also an idle broker detects the loss of its directory.
            self._store.check_directory()
            while self._store.index.drain_some():
                await take_slot("index")
            self._store.dispatch()
            async with self._one_at_a_time:
                await self._try(self._store.flush_derived, "derived files could not be flushed")
                await self._try(self._store.preallocate, "no segment could be prepared")
                if self._store.is_manifest_old:
                    await self._try(self._saving_manifest(), "the manifest could not be saved")

    def _saving_manifest(self) -> Callable[[], None]:
        plan = self._store.plan_manifest()
        return lambda: self._store.save_manifest(plan)

    @asynccontextmanager
    async def removing_nothing(self) -> AsyncIterator[None]:
        """Prevents the removal of files of the store until the `with` block ends."""
        async with self._one_at_a_time:
            yield

    async def remove_oldest_segment(self) -> None:
        """Removes the log's first segment, and the queue and index files that refer only to it.

        Raises OSError; the next call removes the rest.
        """
        async with self._one_at_a_time:
            removal = self._store.plan_removal()
            await self._in_thread(removal.run, lambda: self._store.removed(removal))
            await self._in_thread(self._saving_manifest())

    async def delete_topic(self, topic: str) -> None:
        """Removes the topic's queues; its messages cannot be restored.

        The caller refuses appends to the topic, see `TopicDeletions.refusing`. Raises OSError.
        """
        async with self._one_at_a_time:
            deletions = self._store.deletions
            await self._in_thread(lambda: deletions.mark(topic), lambda: deletions.forget(topic))
            await self._in_thread(lambda: deletions.remove_files(topic))

    async def empty_topic(self, topic: str) -> None:
        """Removes the messages that the topic has now. Raises OSError, StoreClosedError."""
        async with self._one_at_a_time:
            await run_shielded(self._empty(topic))

    async def _empty(self, topic: str) -> None:
        emptying = self._store.plan_emptying(topic)
        await asyncio.get_running_loop().run_in_executor(self._thread, emptying.run)
        for _ in emptying.steps():
            await take_slot("admin")

    async def _try(self, work: Callable[[], None], failure: str) -> None:
        try:
            await self._in_thread(work)
        except OSError as error:
            if self._log_throttle[failure].may_log():
                logger.warning("%s: %s", failure, error)

    async def _in_thread(
        self, work: Callable[[], None], then: Callable[[], None] = lambda: None
    ) -> None:
        """Runs `work` on the thread and `then` in the loop; a cancelled caller waits for both."""

        async def both() -> None:
            await asyncio.get_running_loop().run_in_executor(self._thread, work)
            then()

        await run_shielded(both())

    def close(self) -> None:
        """Waits for running work and ends the thread."""
        self._thread.shutdown(wait=True)
