"""Cleaning at its times: expired log segments go, and a nearly full disk stops sends.

Holds no state; what a crash interrupts goes on after the restart.
Rows S10, F11; spec/storage.md section 10.5.
"""

from __future__ import annotations

import logging

from rocketpy_broker.clock import Clock, sleep
from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.store.message_store import MessageStore

logger = logging.getLogger(__name__)
# So that removing many files leaves the disk to others in between.
PAUSE_MS = 100


class CleaningService:
    """Cleans one store."""

    def __init__(self, store: MessageStore, clock: Clock, config: BrokerConfig) -> None:
        self._store = store
        self._clock = clock
        self._delay_ms = config.clean_delay_ms
        self._interval_ms = config.clean_interval_ms

    async def run(self) -> None:
        """Clean by time and by space, for ever."""
        await sleep(self._clock, self._delay_ms)
        while True:
            try:
                await self.clean(manual=False)
            except OSError as error:
                logger.warning("cleaning failed, it is tried again: %s", error)
            await sleep(self._clock, self._interval_ms)

    async def clean(self, *, manual: bool) -> int:
        """Remove what should go now; return how many log segments. Raises OSError."""
        count = self._store.expired_segment_count(manual=manual)
        for number in range(count):
            if number > 0:
                await sleep(self._clock, PAUSE_MS)
            self._store.remove_oldest_segment()
        if count:
            logger.info("removed %d expired log segments", count)
        return count
