"""Which topics an offset query is about, and waiting until its answer is a new one.

A pattern stands for the topics whose whole name matches it, looked at again each time, so topics
may come and go while a call is held. The broker's own topics have to be named, and so have retry
topics, unless the pattern begins as their names do. A held call waits on the queues of its topics
and on the table of topics, in the waiting list of `holding`. Holds no state. Rows C08, K05.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rocketpy_broker.config import Limits
from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.services.holding.calls import TOPIC_TABLE, HeldCalls
from rocketpy_broker.services.topics.manager import TopicConfigManager, is_retry
from rocketpy_broker.services.topics.system import RETRY_PREFIX
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey


@dataclass(frozen=True, slots=True)
class OffsetQuery:
    """Topics by name and by pattern, the maxima that the client knows, how long to hold it."""

    topics: Sequence[str]
    pattern: re.Pattern[str] | None
    known: Mapping[QueueKey, int]
    wait_ms: int


class OffsetQueryService:
    """Checks offset queries, and holds those whose answer is known."""

    def __init__(
        self, store: MessageStore, topics: TopicConfigManager, held: HeldCalls, limits: Limits
    ) -> None:
        self._store = store
        self._topics = topics
        self._held = held
        self._wait_ms_max = limits.pull_wait_ms_max

    def query(
        self,
        topics: Sequence[str],
        topic_pattern: str,
        known: Mapping[QueueKey, int],
        wait_ms_max: int,
    ) -> OffsetQuery:
        """Check a request; an empty pattern is none. Raises ParameterIllegalError.

        What is said to be known of topics that are not queried does not matter.
        """
        if not 0 <= wait_ms_max <= self._wait_ms_max:
            accepted = f"0 to {self._wait_ms_max}"
            raise ParameterIllegalError("wait_ms_max", wait_ms_max, accepted)
        try:
            pattern = re.compile(topic_pattern) if topic_pattern else None
        except (re.error, OverflowError, RecursionError) as error:
            accepted = f"a regular expression of Python's ({error})"
            raise ParameterIllegalError("topic_pattern", topic_pattern, accepted) from error
        named = frozenset(topics)
        relevant = {
            queue: known[queue]
            for queue in known
            if queue.topic in named or self._is_found(pattern, queue.topic)
        }
        return OffsetQuery(topics, pattern, relevant, wait_ms_max)

    def _is_found(self, pattern: re.Pattern[str] | None, topic: str) -> bool:
        if pattern is None or self._topics.is_system(topic):
            return False
        if is_retry(topic) and not pattern.pattern.startswith(RETRY_PREFIX):
            return False
        return pattern.fullmatch(topic) is not None

    def _topics_of(self, query: OffsetQuery) -> list[str]:
        """The topics it is about: those named, there or not, then those found, by name."""
        if query.pattern is None:
            return list(dict.fromkeys(query.topics))
        names = (config.topic for config in self._topics.list(include_system=True))
        found = [name for name in names if self._is_found(query.pattern, name)]
        return list(dict.fromkeys([*query.topics, *found]))

    async def topics_when_new(self, query: OffsetQuery) -> list[str]:
        """The topics; held until a maximum is not the known one, or a queue has come or gone.

        Returns also when the time of the query is over, or when the broker stops.
        """
        deadline_ms = self._held.deadline_ms(query.wait_ms)
        while True:
            topics = self._topics_of(query)
            if not query.wait_ms:
                return topics
            # In one turn, up to the begin of the wait: nothing new is missed.
            maxima = self._maxima(topics)
            waits = maxima == query.known and await self._held.wait(
                [TOPIC_TABLE, *maxima], deadline_ms
            )
            if not waits:
                return topics

    def _maxima(self, topics: Iterable[str]) -> dict[QueueKey, int]:
        queues = (
            QueueKey(topic, queue_id)
            for topic in topics
            if topic in self._topics
            for queue_id in range(self._topics.get(topic).read_queue_nums)
        )
        return {queue: self._store.range_of(queue).max_offset for queue in queues}
