"""Waiters of long polling.

A waiter is a call that is held until one of its queues or topics has changed. RocketMQ's
PullRequestHoldService checks every held request each 5 seconds and on each notification. Here
waiters are kept by queue, and by topic for calls that wait for many queues. A dispatched message, a
change of the topics or the clock wakes them in order of arrival. A woken waiter gets the changes,
so it reads only the changed queues.

Calls that take messages from each other, as the pops of one group do, wait in a line. New messages
wake the first call of the line. It wakes the next call if it leaves messages.

Thousands of calls may wait for one queue or one moment, and each costs a read and an answer. So one
pass of the event loop wakes at most WAKES_A_PASS of them, and other calls run between the passes.
Calls with a message and calls at their deadline are woken in turn.

Holds that began together would also end together, and their clients would call again at once. So
beside more than MANY held calls a new hold is shorter, each by a different part of SHORTER_SHARE.

With short polling, as in RocketMQ without long polling, no message wakes a call. A fixed time
limits its hold. State is in memory only; after a crash clients call again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias, TypeVar

from rocketpy_broker.runtime.clock import Clock, resolve, sleep
from rocketpy_broker.store.values import QueueKey

Key = TypeVar("Key")
# Calls that are woken in one pass of the loop; each may read some MiB.
WAKES_A_PASS = 10
# Beside more held calls than these, new holds are shorter, so that they end at different times.
MANY = 1_000
# The largest part of a hold that is cut off.
SHORTER_SHARE = 0.25
# Multiples of the golden ratio's fraction are spread evenly over 0 to 1, however many they are.
GOLDEN = 0.618034

# Dictionaries, not sets: they keep the order of arrival, which is the order of answers.
Watches: TypeAlias = "dict[Waiter, None]"
Watchers: TypeAlias = "dict[Waiter | Line, None]"


class Changes(NamedTuple):
    """Queues with new messages, and topics that were created, deleted or changed."""

    queues: set[QueueKey]
    topics: set[str]


class LongPollWaiters:
    """The waiters by queue, topic and table of topics."""

    def __init__(self, clock: Clock, *, short_polling_time_ms: int | None = None) -> None:
        """Sets long polling, or short polling if its time is given."""
        self._clock = clock
        self._short_polling_time_ms = short_polling_time_ms
        self._spread = 0.0
        self._watches: Watches = {}
        self._by_queue: defaultdict[QueueKey, Watchers] = defaultdict(dict)
        # Waiters for any queue of a topic, and for the table of topics.
        self._by_topic: defaultdict[str, Watchers] = defaultdict(dict)
        self._by_table: Watches = {}
        self._lines: dict[Hashable, Line] = {}
        self._stopping = False
        # Futures of calls that are to be woken in later passes: of a change, and at their deadline.
        self._notified: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._over: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        # The number of calls that may still be woken in this pass.
        self._room = WAKES_A_PASS

    def __len__(self) -> int:
        return len(self._watches)

    def deadline_ms(self, wait_ms: int) -> float:
        """Returns the monotonic time at which a call from now has been held for `wait_ms`.

        Beside more than MANY held calls it is earlier, by a different share for each call.
        """
        if self._short_polling_time_ms is not None:
            wait_ms = min(wait_ms, self._short_polling_time_ms)
        share = 1.0
        if len(self) > MANY:
            self._spread = (self._spread + GOLDEN) % 1
            share -= SHORTER_SHARE * self._spread
        return self._clock.monotonic_ms() + share * wait_ms

    async def wait(self, queues: Iterable[QueueKey], deadline_ms: float) -> bool:
        """Returns True when one of `queues` has new messages, or at the deadline.

        Returns False at once if the deadline is over or the broker stops: the caller answers.
        """
        with self.watch() as watch:
            watch.add_queues(queues)
            return await watch.wait(deadline_ms)

    @contextmanager
    def watch(self, line: Hashable = None) -> Iterator[Waiter]:
        """Yields a waiter; it watches all added queues and topics until the block ends.

        All waiters of a line watch the same queues and topics. If the block fails after a
        notification, it wakes another waiter of the line.
        """
        own = None if line is None else self._lines.setdefault(line, Line())
        watch = Waiter(self, own)
        self._watches[watch] = None
        if own is not None:
            own.waiters[watch] = None
        try:
            yield watch
        except BaseException:
            if watch.is_notified:
                watch.pass_on()
            raise
        finally:
            del self._watches[watch]
            self._by_table.pop(watch, None)
            if own is None:
                self._remove(watch)
            else:
                self._leave(line, own, watch)

    def _leave(self, key: Hashable, line: Line, watch: Waiter) -> None:
        del line.waiters[watch]
        if not line.waiters:
            del self._lines[key]
            self._remove(line)

    def _remove(self, watcher: Waiter | Line) -> None:
        for queue in watcher.queues:
            _drop(self._by_queue, queue, watcher)
        for topic in watcher.topics:
            _drop(self._by_topic, topic, watcher)

    def add(self, watch: Waiter, queues: Iterable[QueueKey], topics: Iterable[str]) -> None:
        """Registers `watch`, or its line, for these queues and all queues of these topics."""
        if self._short_polling_time_ms is not None:
            return
        watcher = watch.line or watch
        for queue in queues:
            self._by_queue[queue][watcher] = None
            watcher.queues.add(queue)
        for topic in topics:
            self._by_topic[topic][watcher] = None
            watcher.topics.add(topic)

    def add_to_table(self, watch: Waiter) -> None:
        """Registers `watch` for changes of the table of topics."""
        if self._short_polling_time_ms is None:
            self._by_table[watch] = None

    async def wait_for(self, future: asyncio.Future[None], deadline_ms: float) -> bool:
        """Returns True when `future` is done, or at the deadline; False as `wait` does."""
        left_ms = deadline_ms - self._clock.monotonic_ms()
        if left_ms <= 0 or self._stopping:
            return False
        timer = self._clock.call_later(left_ms, lambda: self._wake(future, self._over))
        try:
            await future
        finally:
            timer.cancel()
            self._notified.pop(future, None)
            self._over.pop(future, None)
        return True

    def wake(self, future: asyncio.Future[None]) -> None:
        """Wakes the call that waits for `future`, after the calls that were notified before it."""
        self._wake(future, self._notified)

    def _wake(
        self, future: asyncio.Future[None], leaving: OrderedDict[asyncio.Future[None], None]
    ) -> None:
        if self._stopping:
            resolve(future)
            return
        if self._room == WAKES_A_PASS:
            asyncio.get_running_loop().call_soon(self._next_pass)
        if self._room and not leaving:
            self._room -= 1
            resolve(future)
        else:
            leaving[future] = None

    def _next_pass(self) -> None:
        self._room = WAKES_A_PASS
        while self._room and (self._notified or self._over):
            for leaving in (self._notified, self._over):
                if leaving and self._room:
                    self._room -= 1
                    resolve(leaving.popitem(last=False)[0])
        if self._room < WAKES_A_PASS:
            asyncio.get_running_loop().call_soon(self._next_pass)

    async def rest(self, until_ms: float) -> None:
        """Waits until `until_ms`, some ms from now; returns at once if the broker stops."""
        left_ms = until_ms - self._clock.monotonic_ms()
        if left_ms > 0 and not self._stopping:
            await sleep(self._clock, left_ms)

    def notify_queue(self, queue: QueueKey) -> None:
        """Notifies the waiters of `queue` of new messages."""
        for watch in self._by_queue.get(queue, ()):
            watch.notify_queue(queue)
        for watch in self._by_topic.get(queue.topic, ()):
            watch.notify_queue(queue)

    def notify_topics(self, topics: Collection[str]) -> None:
        """Notifies the table's waiters of topics that were created, deleted or changed."""
        for watch in self._by_table:
            watch.notify_topics(topics)

    def stop(self) -> None:
        """Wakes all calls and holds no more, because the broker stops."""
        self._stopping = True
        for watch in self._watches:
            watch.wake()


class Waiter:
    """The queues and topics that one call waits for; it can add more between its waits.

    A call adds a queue and then reads it. It then misses no message, even if other tasks run before
    the wait.
    """

    __slots__ = ("_changes", "_held", "_waiting", "is_notified", "line", "queues", "topics")

    def __init__(self, held: LongPollWaiters, line: Line | None = None) -> None:
        self._held = held
        self.line = line
        self._waiting: asyncio.Future[None] | None = None
        self._changes = Changes(set(), set())
        # True from a notification to the next wait: the call may not take all new messages.
        self.is_notified = False
        self.queues: set[QueueKey] = set()
        self.topics: set[str] = set()

    def add_queues(self, queues: Iterable[QueueKey]) -> None:
        """Adds queues; new messages in one of them wake the call."""
        self._held.add(self, queues, ())

    def add_topics(self, topics: Iterable[str]) -> None:
        """Adds topics; new messages in any of their queues wake the call."""
        self._held.add(self, (), topics)

    def add_topic_table(self) -> None:
        """Adds the table of topics; a created, deleted or changed topic wakes the call."""
        self._held.add_to_table(self)

    async def wait(self, deadline_ms: float) -> bool:
        """Waits as `LongPollWaiters.wait` does; wakes at once if there are untaken changes."""
        self._waiting = asyncio.get_running_loop().create_future()
        self.is_notified = any(self._changes)
        if self.is_notified:
            self.wake()
        try:
            return await self._held.wait_for(self._waiting, deadline_ms)
        finally:
            self._waiting = None

    @property
    def is_idle(self) -> bool:
        """True if the call waits and was not notified."""
        return self._waiting is not None and not self.is_notified

    def take_changes(self) -> Changes:
        """Returns the changes since the last call of this method."""
        taken, self._changes = self._changes, Changes(set(), set())
        return taken

    def notify_queue(self, queue: QueueKey) -> None:
        """Adds `queue` to the changes and wakes the call."""
        self._changes.queues.add(queue)
        self._notify()

    def pass_on(self) -> None:
        """Wakes another call of the line, for messages that this call leaves."""
        if self.line is not None:
            self.line.pass_on(self)

    def notify_topics(self, topics: Collection[str]) -> None:
        """Adds `topics` to the changes and wakes the call."""
        self._changes.topics.update(topics)
        self._notify()

    def _notify(self) -> None:
        self.is_notified = True
        self.wake()

    def wake(self) -> None:
        """Ends the call's wait, if it waits."""
        if self._waiting is not None:
            self._held.wake(self._waiting)


class Line:
    """Waiters of which any one may take a message, in order of arrival."""

    __slots__ = ("queues", "topics", "waiters")

    def __init__(self) -> None:
        self.waiters: Watches = {}
        self.queues: set[QueueKey] = set()
        self.topics: set[str] = set()

    def notify_queue(self, queue: QueueKey) -> None:
        """Notifies a waiter of new messages."""
        for each in self._next():
            each.notify_queue(queue)

    def pass_on(self, leaving: Waiter) -> None:
        """Notifies another waiter of messages that `leaving` has not taken."""
        for each in self._next(leaving):
            each.notify_topics(self.topics)

    def _next(self, leaving: Waiter | None = None) -> list[Waiter]:
        """Returns the first idle waiter, or all if none is: each may have read the queue before."""
        others = (each for each in self.waiters if each is not leaving)
        first = next((each for each in others if each.is_idle), None)
        if first is not None:
            return [first]
        return [each for each in self.waiters if each is not leaving]


def _drop(watches: dict[Key, Watchers], key: Key, watch: Waiter | Line) -> None:
    found = watches[key]
    del found[watch]
    if not found:
        del watches[key]
