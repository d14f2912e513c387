"""The loop of one delivery: a delay level, or the timer.

A step that the store refuses is repeated after a pause. A failed store refuses until a restart, so
the pauses double up to PAUSE_MS_MAX. A busy store accepts more soon, so its pause stays short. The
same refusal is logged at most once a minute. The state is in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from rocketpy_broker.errors import StoreBusyError, StoreError
from rocketpy_broker.runtime.clock import Clock, sleep
from rocketpy_broker.runtime.log_throttle import LogThrottle
from rocketpy_broker.services.long_polling.waiters import LongPollWaiters
from rocketpy_broker.store.values import QueueKey

logger = logging.getLogger(__name__)
PAUSE_MS_MIN, PAUSE_MS_MAX = 100, 1_000
# A wall clock that is set forward is noticed within this time.
SLEEP_MS_MAX = 1_000
IDLE_MS_MAX = 60_000


class DeliveryLoop:
    """The waits and pauses of one delivery; `name` is the subject of its log lines.

    A new message of the queue ends an idle wait; with `is_always_woken` it ends every wait.
    """

    def __init__(
        self,
        name: str,
        queue: QueueKey,
        held: LongPollWaiters,
        clock: Clock,
        *,
        is_always_woken: bool = False,
    ) -> None:
        self._name = name
        self._queue = queue
        self._held = held
        self._clock = clock
        self._is_always_woken = is_always_woken
        self._pause_ms = PAUSE_MS_MIN
        self._log_throttle = LogThrottle(clock)
        self._logged = ""

    async def run(self, step: Callable[[], Awaitable[float | None]]) -> None:
        """Runs steps until the broker stops.

        A step returns the time to wait in ms, or None to wait for a message.
        """
        is_stopping = False
        while not is_stopping:
            try:
                wait_ms = await step()
                self._pause_ms = PAUSE_MS_MIN
            except StoreError as error:
                wait_ms = self._refused(error)
            most_ms = IDLE_MS_MAX if wait_ms is None else min(wait_ms, SLEEP_MS_MAX)
            if most_ms > 0 and (wait_ms is None or self._is_always_woken):
                deadline_ms = self._held.deadline_ms(int(most_ms))
                is_stopping = not await self._held.wait([self._queue], deadline_ms)
            elif most_ms > 0:
                await sleep(self._clock, most_ms)

    def _refused(self, error: StoreError) -> int:
        """Logs a refusal of the store; returns the pause after it in ms."""
        words = str(error)
        if words != self._logged:
            self._log_throttle, self._logged = LogThrottle(self._clock), words
        if self._log_throttle.may_log():
            logger.warning("%s wait: %s", self._name, words)
        if isinstance(error, StoreBusyError):
            return PAUSE_MS_MIN
        pause_ms, self._pause_ms = self._pause_ms, min(2 * self._pause_ms, PAUSE_MS_MAX)
        return pause_ms
