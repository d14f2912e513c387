"""Cleaning at its times: expired log segments go, and a nearly full disk stops sends.

Holds no state; what a crash interrupts goes on after the restart. Files are removed by a thread,
and a segment at a time.
Source: docs/design/storage.md section 10.5.
"""

from __future__ import annotations

import asyncio
import logging

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.runtime.clock import Clock, sleep
from rocketpy_broker.services.flush.store_files import StoreFiles
from rocketpy_broker.store.message_store import MessageStore

logger = logging.getLogger(__name__)
# So that removing many files leaves the disk to others in between.
PAUSE_MS = 100


class CleaningService:
    """Cleans one store."""

    def __init__(
        self, store: MessageStore, store_files: StoreFiles, clock: Clock, config: BrokerConfig
    ) -> None:
        self._store = store
        self._store_files = store_files
        self._clock = clock
        self._removing = asyncio.Lock()
        self._delay_ms = config.clean_delay_ms
        self._interval_ms = config.clean_interval_ms

    async def run(self) -> None:
        """Cleans by time and by space, for ever."""
        await sleep(self._clock, self._delay_ms)
        while True:
            try:
                await self.clean(manual=False)
            except OSError as error:
                logger.warning("cleaning failed, it is tried again: %s", error)
            await sleep(self._clock, self._interval_ms)

    async def clean(self, *, manual: bool) -> int:
        """Removes what should go now; return how many log segments. Raises OSError."""
        left, removed = self._store.expired_segment_count(manual=manual), 0
        while left > 0:
            async with self._removing:
                # Others had their turns: what could go before may be needed by now, or be gone.
                left = min(left, self._store.expired_segment_count(manual=manual))
                if left > 0:
                    await self._store_files.remove_oldest_segment()
                    left, removed = left - 1, removed + 1
            if left > 0:
                await sleep(self._clock, PAUSE_MS)
        if removed:
            logger.info("removed %d expired log segments", removed)
        return removed
