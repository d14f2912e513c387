"""Pulls that are held until something arrives in their queue.

Prior art: RocketMQ's PullRequestHoldService, which looks at every held request each 5 seconds
and on each notification. Chosen here: one future per held pull in a set per queue, woken by the
dispatch of a unit or by the clock. Left out on purpose: any polling, any order among waiters.
Lives in memory only; after a crash clients pull again. Row C08.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict

from rocketpy_broker.clock import Clock, resolve
from rocketpy_broker.store.values import QueueKey


class HeldPulls:
    """The waiting list of every queue."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiters: defaultdict[QueueKey, set[asyncio.Future[None]]] = defaultdict(set)

    def __len__(self) -> int:
        return sum(len(waiters) for waiters in self._waiters.values())

    async def wait(self, queue: QueueKey, wait_ms: int) -> None:
        """Return when `queue` has got something new, when the time is over, or at `wake_all`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters = self._waiters[queue]
        waiters.add(future)
        timer = self._clock.call_later(wait_ms, lambda: resolve(future))
        try:
            await future
        finally:
            timer.cancel()
            waiters.discard(future)
            if not waiters and self._waiters.get(queue) is waiters:
                del self._waiters[queue]

    def wake(self, queue: QueueKey) -> None:
        """`queue` has got something new."""
        for future in self._waiters.get(queue, ()):
            resolve(future)

    def wake_all(self) -> None:
        """Let go of everybody, for the broker stops."""
        for queue in list(self._waiters):
            self.wake(queue)
