"""Calls that are held until something arrives in one of their queues.

Prior art: RocketMQ's PullRequestHoldService, which looks at every held request each 5 seconds
and on each notification. Chosen here: one future per held call in a set per queue, woken by the
dispatch of a unit, by a change of the topics, or by the clock. Left out on purpose: any polling,
any order among waiters. With short polling, as RocketMQ without long polling, nothing that arrives
wakes a call; it is held for a fixed time at most.
Lives in memory only; after a crash clients ask again. Row C08.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from rocketpy_broker.clock import Clock, resolve, sleep
from rocketpy_broker.store.values import QueueKey

# Stands for the table of topics among the queues that a call waits for.
TOPIC_TABLE = QueueKey("", -1)
# Stands for all of them where nothing that arrives wakes a call.
_NO_QUEUE = QueueKey("", -2)


class HeldCalls:
    """The waiting list of every queue."""

    def __init__(self, clock: Clock, *, short_polling_time_ms: int | None = None) -> None:
        """Long polling, unless a time of short polling is given."""
        self._clock = clock
        self._short_polling_time_ms = short_polling_time_ms
        self._waiters: defaultdict[QueueKey, set[asyncio.Future[None]]] = defaultdict(set)
        self._stopping = False

    def __len__(self) -> int:
        return len(set().union(*self._waiters.values()))

    def deadline_ms(self, wait_ms: int) -> float:
        """When, in monotonic time, a call that came now has been held for `wait_ms`."""
        if self._short_polling_time_ms is not None:
            wait_ms = min(wait_ms, self._short_polling_time_ms)
        return self._clock.monotonic_ms() + wait_ms

    async def wait(self, queues: Iterable[QueueKey], deadline_ms: float) -> bool:
        """Return True when one of `queues` has got something new, or at the deadline.

        Returns False, at once, behind the deadline and when the broker stops: answer the call.
        """
        with self.watch() as watch:
            watch.add(queues)
            return await watch.wait(deadline_ms)

    @contextmanager
    def watch(self) -> Iterator[Watch]:
        """Watches nothing yet; what is added is watched until the block ends."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        watch = Watch(partial(self._add, future), partial(self._wait, future))
        try:
            yield watch
        finally:
            for queue in watch.queues:
                self._drop(queue, future)

    def _add(self, future: asyncio.Future[None], queues: Iterable[QueueKey]) -> list[QueueKey]:
        added = [_NO_QUEUE] if self._short_polling_time_ms is not None else list(queues)
        for queue in added:
            self._waiters[queue].add(future)
        return added

    async def _wait(self, future: asyncio.Future[None], deadline_ms: float) -> bool:
        left_ms = deadline_ms - self._clock.monotonic_ms()
        if left_ms <= 0 or self._stopping:
            return False
        timer = self._clock.call_later(left_ms, lambda: resolve(future))
        try:
            await future
        finally:
            timer.cancel()
        return True

    async def rest(self, until_ms: float) -> None:
        """Wait until a time that is no more than milliseconds away, if it is still to come."""
        left_ms = until_ms - self._clock.monotonic_ms()
        if left_ms > 0 and not self._stopping:
            await sleep(self._clock, left_ms)

    def _drop(self, queue: QueueKey, future: asyncio.Future[None]) -> None:
        waiters = self._waiters.get(queue)
        if waiters is not None:
            waiters.discard(future)
            if not waiters:
                del self._waiters[queue]

    def wake(self, queue: QueueKey) -> None:
        """`queue` has got something new."""
        for future in self._waiters.get(queue, ()):
            resolve(future)

    def wake_for_topics(self) -> None:
        """A topic has come, gone or changed."""
        self.wake(TOPIC_TABLE)

    def stop(self) -> None:
        """Let go of everybody and hold no more calls, for the broker stops."""
        self._stopping = True
        for queue in list(self._waiters):
            self.wake(queue)


class Watch:
    """What one call waits for, over queues that are added part by part.

    Whoever adds a queue, and then looks at it, misses nothing, also where others have turns before
    the wait.
    """

    def __init__(
        self,
        add: Callable[[Iterable[QueueKey]], list[QueueKey]],
        wait: Callable[[float], Awaitable[bool]],
    ) -> None:
        self._add = add
        self._wait = wait
        self.queues: list[QueueKey] = []

    def add(self, queues: Iterable[QueueKey]) -> None:
        """Wake the call also when one of these has got something new."""
        self.queues += self._add(queues)

    async def wait(self, deadline_ms: float) -> bool:
        """As `HeldCalls.wait`; at once where something has come since it was added."""
        return await self._wait(deadline_ms)
