"""Offset queries: their topics, and long polling until the answer changes.

A pattern selects the topics that match it by their whole name. Each check matches the table of
topics again. Topics may thus be created and deleted while a call waits. System topics must be
named. Retry topics must be named too, unless the pattern starts with their prefix.
A waiting call watches the queues of its topics and the table of topics in `LongPollWaiters`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rocketpy_broker.config import Limits
from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services import call_memory, caller
from rocketpy_broker.services.long_polling.waiters import Changes, LongPollWaiters, Waiter
from rocketpy_broker.services.offsets.known import TOPIC_BYTES, KnownOffsets
from rocketpy_broker.services.offsets.patterns import topic_pattern
from rocketpy_broker.services.topics.epochs import is_recreated
from rocketpy_broker.services.topics.manager import TopicConfigManager, is_retry
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model import RETRY_PREFIX
from rocketpy_proto.model.topic_pattern import TopicPattern

# Names per scheduler slot; a name takes up to 60 microseconds.
NAMES_A_SLOT = 100
# Queues per scheduler slot; they take 2 ms.
QUEUES_A_SLOT = 1_000
# A held query over more than `FEW_QUEUES` queues is answered `REST_MS` after its arrival or later.
# Changes in between go into one answer. A caller gets at most 50 answers a second.
FEW_QUEUES = 100
REST_MS = 20


@dataclass(frozen=True)
class OffsetQuery:
    """A query: topics by name and by pattern, the client's known maxima, and the wait time.

    `seen` has the checked names, and True if the pattern matches. `log_end` is the lowest log end
    of the recoveries that the client does not know. It is None if there are none, or if the
    client's recovery is unknown.
    """

    topics: Sequence[str]
    pattern: TopicPattern | None
    known: KnownOffsets
    wait_ms: int
    seen: dict[str, bool] = field(default_factory=dict)
    log_end: int | None = None

    @cached_property
    def named(self) -> frozenset[str]:
        """The topics named by the query."""
        return frozenset(self.topics)

    def asks_for(self, topic: str) -> bool:
        """True if the query names the topic, or its pattern has matched it."""
        return topic in self.named or self.seen.get(topic, False)


class OffsetQueryService:
    """Service that checks offset queries and holds queries with a known answer."""

    def __init__(
        self, store: MessageStore, topics: TopicConfigManager, held: LongPollWaiters, limits: Limits
    ) -> None:
        self._store = store
        self._topics = topics
        self._held = held
        self._wait_ms_max = limits.pull_wait_ms_max

    def query(
        self,
        topics: Sequence[str],
        pattern: str,
        known: KnownOffsets,
        wait_ms_max: int,
        recovery_id: str = "",
    ) -> OffsetQuery:
        """Checks a request; an empty pattern is none. Raises ParameterIllegalError.

        Ignores known maxima of topics that are not queried. A query with an older recovery id is
        not held: its answer contains more than maxima.
        """
        if not 0 <= wait_ms_max <= self._wait_ms_max:
            accepted = f"0 to {self._wait_ms_max}"
            raise ParameterIllegalError("wait_ms_max", wait_ms_max, accepted)
        wanted = topic_pattern(pattern) if pattern else None
        log_end = self._store.recoveries.log_end_since(recovery_id)
        wait_ms = wait_ms_max if log_end is None else 0
        return OffsetQuery(topics, wanted, known, wait_ms, log_end=log_end)

    @property
    def recovery_id(self) -> str:
        """The store's newest recovery."""
        return self._store.recoveries.newest_id

    def _may_be_found(self, pattern: TopicPattern, topic: str) -> bool:
        if self._topics.is_system(topic) or not caller.may_read(topic):
            return False
        return not is_retry(topic) or pattern.text.startswith(RETRY_PREFIX)

    async def _topics_of(self, query: OffsetQuery) -> list[str]:
        """Returns the named topics, existing or not, then the matched topics by name.

        Does not await after its last read of the table.
        """
        if query.pattern is None:
            return list(dict.fromkeys(query.topics))
        fresh: list[str] = list(query.known.epochs)
        while True:
            names = self._topics.names(include_system=True)
            fresh = list(dict.fromkeys(name for name in (*fresh, *names) if name not in query.seen))
            if not fresh:
                break
            await self._match_names(fresh, query.pattern, query.seen)
        found = [name for name in names if query.seen[name]]
        return list(dict.fromkeys([*query.topics, *found]))

    async def _match_names(
        self, names: Sequence[str], pattern: TopicPattern, seen: dict[str, bool]
    ) -> None:
        for begin in range(0, len(names), NAMES_A_SLOT):
            part = names[begin : begin + NAMES_A_SLOT]
            matches = pattern.matches(part)
            for name, is_match in zip(part, matches, strict=True):
                seen[name] = is_match and self._may_be_found(pattern, name)
            if len(names) > NAMES_A_SLOT:
                await take_slot("offsets")

    async def topics_when_new(self, query: OffsetQuery) -> list[str]:
        """Returns the topics once their queues or maxima differ from the known ones.

        Returns also at the query's deadline, and when the broker stops.
        """
        if not query.wait_ms:
            return await self._topics_of(query)
        deadline_ms = self._held.deadline_ms(query.wait_ms)
        with self._held.watch() as watch:
            # The watch starts before the first read of the table, so it misses no change.
            watch.add_topic_table()
            topics = await self._topics_of(query)
            await self._keep_asked(query)
            count = query.known.queue_count
            rest_ms = 0 if count <= FEW_QUEUES else min(REST_MS, query.wait_ms)
            soonest_ms = self._held.deadline_ms(rest_ms)
            is_known = await self._is_known(query, topics, watch)
            while is_known and await watch.wait(deadline_ms):
                await self._held.rest(soonest_ms)
                is_known = await self._is_still_known(query, watch.take_changes())
        # Topics may have been created and deleted during the wait.
        return await self._topics_of(query)

    async def _keep_asked(self, query: OffsetQuery) -> None:
        """Drops names that the query does not ask for. Raises KeptBytesError."""
        is_large = len(query.known.epochs) > QUEUES_A_SLOT
        query.known.keep(query.asks_for)
        if is_large:
            await take_slot("offsets")
        query.known.close_gaps()
        if is_large:
            await take_slot("offsets")
        for name in [name for name in query.seen if self._topics.find(name) is None]:
            if not query.asks_for(name):
                del query.seen[name]
        names = len(query.topics) + len(query.seen)
        call_memory.keep(query.known.kept_bytes + names * TOPIC_BYTES)

    async def _is_known(self, query: OffsetQuery, topics: Iterable[str], watch: Waiter) -> bool:
        """True if all maxima are known; each queue is watched before it is read."""
        if query.known.has_gaps:
            return False
        if any(self._is_recreated(topic, epoch) for topic, epoch in query.known.epochs.items()):
            return False
        count = await self._count_known(query, self._queues(topics), watch)
        return count == query.known.queue_count

    async def _is_still_known(self, query: OffsetQuery, changes: Changes) -> bool:
        """True if the answer is still known after `changes`; reads only what has changed."""
        if query.pattern is not None:
            fresh = [topic for topic in changes.topics if topic not in query.seen]
            await self._match_names(fresh, query.pattern, query.seen)
        if await self._count_known(query, filter(self._is_readable, changes.queues)) is None:
            return False
        for topic in changes.topics:
            if not query.asks_for(topic):
                continue
            if self._is_recreated(topic, query.known.epochs.get(topic, 0)):
                return False
            count = await self._count_known(query, self._queues([topic]))
            if count != query.known.count(topic):
                return False
        return True

    async def _count_known(
        self, query: OffsetQuery, queues: Iterator[QueueKey], watch: Waiter | None = None
    ) -> int | None:
        """Returns the number of queues; None if the maximum of one is not the known one."""
        count = 0
        for some in _parts(queues, QUEUES_A_SLOT):
            if watch is not None:
                watch.add_topics({queue.topic for queue in some})
            range_of, maximum = self._store.range_of, query.known.maximum
            if any(maximum(queue) != range_of(queue).max_offset for queue in some):
                return None
            count += len(some)
            if len(some) == QUEUES_A_SLOT:
                await take_slot("offsets")
        return count

    def _is_readable(self, queue: QueueKey) -> bool:
        config = self._topics.find(queue.topic)
        return config is not None and queue.queue_id < config.readable_queues

    def _is_recreated(self, topic: str, epoch: int) -> bool:
        return topic in self._topics and is_recreated(epoch, self._topics.epoch(topic))

    def _queues(self, topics: Iterable[str]) -> Iterator[QueueKey]:
        for topic in topics:
            config = self._topics.find(topic)
            for queue_id in range(0 if config is None else config.readable_queues):
                yield QueueKey(topic, queue_id)


def _parts(queues: Iterator[QueueKey], count: int) -> Iterator[list[QueueKey]]:
    while part := list(itertools.islice(queues, count)):
        yield part
