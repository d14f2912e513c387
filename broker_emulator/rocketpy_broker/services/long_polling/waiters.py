"""Calls that are held until something arrives in one of their queues.

Prior art: RocketMQ's PullRequestHoldService, which looks at every held request each 5 seconds
and on each notification. Chosen here: those that wait per queue, and per topic for who waits for
many queues, woken in the order they came by the dispatch of a unit, by a change of the topics, or
by the clock. Who is woken is told what has changed, so that looking again costs that and no more.
Thousands may wait for one queue, or until one moment, and each costs a read and an answer: a few go
on at once, and a few more with each pass of the loop, so that others are looked after in between.
Left out on purpose: any polling. With short polling, as RocketMQ without long polling, nothing that
arrives wakes a call; it is held for a fixed time at most.
Lives in memory only; after a crash clients ask again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias, TypeVar

from rocketpy_broker.runtime.clock import Clock, resolve, sleep
from rocketpy_broker.store.values import QueueKey

Key = TypeVar("Key")
# Calls that go on in one pass of the loop; each may have some MiB to read.
WAKES_A_PASS = 10

# In the order they came: which call is answered first does not depend on where objects lie.
Watches: TypeAlias = "dict[Waiter, None]"


class Changes(NamedTuple):
    """Queues that have got something new, and topics that have come, gone or changed."""

    queues: set[QueueKey]
    topics: set[str]


class LongPollWaiters:
    """Who waits for what."""

    def __init__(self, clock: Clock, *, short_polling_time_ms: int | None = None) -> None:
        """Long polling, unless a time of short polling is given."""
        self._clock = clock
        self._short_polling_time_ms = short_polling_time_ms
        self._watches: Watches = {}
        self._by_queue: defaultdict[QueueKey, Watches] = defaultdict(dict)
        # Those that wait for any queue of a topic, and those that wait for the table of topics.
        self._by_topic: defaultdict[str, Watches] = defaultdict(dict)
        self._by_table: Watches = {}
        self._stopping = False
        # What calls wait for that may go on, where too many may at once.
        self._leaving: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        # How many more may go on in this pass of the loop.
        self._room = WAKES_A_PASS

    def __len__(self) -> int:
        return len(self._watches)

    def deadline_ms(self, wait_ms: int) -> float:
        """When, in monotonic time, a call that came now has been held for `wait_ms`."""
        if self._short_polling_time_ms is not None:
            wait_ms = min(wait_ms, self._short_polling_time_ms)
        return self._clock.monotonic_ms() + wait_ms

    async def wait(self, queues: Iterable[QueueKey], deadline_ms: float) -> bool:
        """Returns True when one of `queues` has got something new, or at the deadline.

        Returns False, at once, behind the deadline and when the broker stops: answer the call.
        """
        with self.watch() as watch:
            watch.add_queues(queues)
            return await watch.wait(deadline_ms)

    @contextmanager
    def watch(self) -> Iterator[Waiter]:
        """Watches nothing yet; what is added is watched until the block ends."""
        watch = Waiter(self)
        self._watches[watch] = None
        try:
            yield watch
        finally:
            del self._watches[watch]
            self._by_table.pop(watch, None)
            for queue in watch.queues:
                _drop(self._by_queue, queue, watch)
            for topic in watch.topics:
                _drop(self._by_topic, topic, watch)

    def add(self, watch: Waiter, queues: Iterable[QueueKey], topics: Iterable[str]) -> None:
        """Tell `watch` of these queues, and of all queues of these topics."""
        if self._short_polling_time_ms is not None:
            return
        for queue in queues:
            self._by_queue[queue][watch] = None
            watch.queues.add(queue)
        for topic in topics:
            self._by_topic[topic][watch] = None
            watch.topics.add(topic)

    def add_to_table(self, watch: Waiter) -> None:
        """Tell `watch` of each change of the table of topics."""
        if self._short_polling_time_ms is None:
            self._by_table[watch] = None

    async def wait_for(self, future: asyncio.Future[None], deadline_ms: float) -> bool:
        """Returns True when `future` is done, or at the deadline; False as `wait` does."""
        left_ms = deadline_ms - self._clock.monotonic_ms()
        if left_ms <= 0 or self._stopping:
            return False
        timer = self._clock.call_later(left_ms, lambda: self.wake(future))
        try:
            await future
        finally:
            timer.cancel()
            self._leaving.pop(future, None)
        return True

    def wake(self, future: asyncio.Future[None]) -> None:
        """Let the call that waits for `future` go on, behind those that were let go before it."""
        if self._stopping:
            resolve(future)
            return
        if self._room == WAKES_A_PASS:
            asyncio.get_running_loop().call_soon(self._next_pass)
        if self._room and not self._leaving:
            self._room -= 1
            resolve(future)
        else:
            self._leaving[future] = None

    def _next_pass(self) -> None:
        self._room = WAKES_A_PASS
        while self._leaving and self._room:
            self._room -= 1
            resolve(self._leaving.popitem(last=False)[0])
        if self._room < WAKES_A_PASS:
            asyncio.get_running_loop().call_soon(self._next_pass)

    async def rest(self, until_ms: float) -> None:
        """Waits until a time that is no more than milliseconds away, if it is still to come."""
        left_ms = until_ms - self._clock.monotonic_ms()
        if left_ms > 0 and not self._stopping:
            await sleep(self._clock, left_ms)

    def notify_queue(self, queue: QueueKey) -> None:
        """`queue` has got something new."""
        for watch in self._by_queue.get(queue, ()):
            watch.notify_queue(queue)
        for watch in self._by_topic.get(queue.topic, ()):
            watch.notify_queue(queue)

    def notify_topics(self, topics: Collection[str]) -> None:
        """These topics have come, gone or changed."""
        for watch in self._by_table:
            watch.notify_topics(topics)

    def stop(self) -> None:
        """Let go of everybody and hold no more calls, for the broker stops."""
        self._stopping = True
        for watch in self._watches:
            watch.wake()


class Waiter:
    """What one call waits for; more can be added while it is looked at.

    Whoever adds a queue, and then looks at it, misses nothing, also where others have turns before
    the wait.
    """

    __slots__ = ("_changes", "_held", "_waiting", "queues", "topics")

    def __init__(self, held: LongPollWaiters) -> None:
        self._held = held
        self._waiting: asyncio.Future[None] | None = None
        self._changes = Changes(set(), set())
        self.queues: set[QueueKey] = set()
        self.topics: set[str] = set()

    def add_queues(self, queues: Iterable[QueueKey]) -> None:
        """Wakes the call also when one of these has got something new."""
        self._held.add(self, queues, ())

    def add_topics(self, topics: Iterable[str]) -> None:
        """Wakes the call also when any queue of one of these has got something new."""
        self._held.add(self, (), topics)

    def add_topic_table(self) -> None:
        """Wakes the call also when a topic has come, gone or changed."""
        self._held.add_to_table(self)

    async def wait(self, deadline_ms: float) -> bool:
        """As `LongPollWaiters.wait`; at once where there are changes that were not taken."""
        self._waiting = asyncio.get_running_loop().create_future()
        if any(self._changes):
            self.wake()
        try:
            return await self._held.wait_for(self._waiting, deadline_ms)
        finally:
            self._waiting = None

    def take_changes(self) -> Changes:
        """What has changed since this was called last."""
        taken, self._changes = self._changes, Changes(set(), set())
        return taken

    def notify_queue(self, queue: QueueKey) -> None:
        """`queue` has got something new."""
        self._changes.queues.add(queue)
        self.wake()

    def notify_topics(self, topics: Collection[str]) -> None:
        """These topics have come, gone or changed."""
        self._changes.topics.update(topics)
        self.wake()

    def wake(self) -> None:
        """Ends a wait."""
        if self._waiting is not None:
            self._held.wake(self._waiting)


def _drop(watches: dict[Key, Watches], key: Key, watch: Waiter) -> None:
    found = watches[key]
    del found[watch]
    if not found:
        del watches[key]
