"""Work on the store's files that no acknowledgement waits for: one thread, one task at a time.

Derived files are flushed and the manifest is saved by interval; log segments and topics are removed
on request. Files are only removed while nobody reads them for a manifest, so each of these runs
from its begin to its end before the next. What a crash interrupts, the next start or the next call
makes up for; see `removal` of the store.
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
    """Owns the thread. `run` is the loop."""

    def __init__(self, store: MessageStore, clock: Clock, interval_ms: int) -> None:
        self._store = store
        self._clock = clock
        self._interval_ms = interval_ms
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store-files")
        self._one_at_a_time = asyncio.Lock()
        # A disk stays full for long: a line a minute for each failure.
        self._seldom = defaultdict[str, LogThrottle](lambda: LogThrottle(clock))

    async def run(self) -> None:
        """Makes derived files durable every interval; they can be rebuilt, so late is no harm."""
        while True:
            await sleep(self._clock, self._interval_ms)
            # An idle broker, too, notices that its directory is lost.
            self._store.check_directory()
            while self._store.index.drain_some():
                await take_slot("index")
            self._store.dispatch()
            async with self._one_at_a_time:
                await self._try(self._store.flush_derived, "derived files could not be flushed")
                await self._try(self._store.preallocate, "no segment could be made ready")
                if self._store.is_manifest_old:
                    await self._try(self._saving_manifest(), "the manifest could not be saved")

    def _saving_manifest(self) -> Callable[[], None]:
        plan = self._store.plan_manifest()
        return lambda: self._store.save_manifest(plan)

    @asynccontextmanager
    async def removing_nothing(self) -> AsyncIterator[None]:
        """For the time of the block no file of the store is removed."""
        async with self._one_at_a_time:
            yield

    async def remove_oldest_segment(self) -> None:
        """Removes the first segment of the log, and of queues and index what was about it only.

        Raises OSError; what is left is removed by the next call.
        """
        async with self._one_at_a_time:
            removal = self._store.plan_removal()
            await self._in_thread(removal.run, lambda: self._store.removed(removal))
            await self._in_thread(self._saving_manifest())

    async def delete_topic(self, topic: str) -> None:
        """Removes the topic's queues; its messages can never come back.

        To be called in a block of `refusing`. Raises OSError.
        """
        async with self._one_at_a_time:
            deletions = self._store.deletions
            await self._in_thread(lambda: deletions.mark(topic), lambda: deletions.forget(topic))
            await self._in_thread(lambda: deletions.remove_files(topic))

    async def _try(self, work: Callable[[], None], failure: str) -> None:
        try:
            await self._in_thread(work)
        except OSError as error:
            if self._seldom[failure].may_say():
                logger.warning("%s: %s", failure, error)

    async def _in_thread(
        self, work: Callable[[], None], then: Callable[[], None] = lambda: None
    ) -> None:
        """Runs `work`, and after it `then` here. Nobody is let go before, also when cancelled."""

        async def both() -> None:
            await asyncio.get_running_loop().run_in_executor(self._thread, work)
            then()

        await run_shielded(both())

    def close(self) -> None:
        """Waits for what is under way, and end the thread."""
        self._thread.shutdown(wait=True)
