"""Fan-out of offset queries to all queues and all their brokers.

    look    for each broker its master, or else a slave: the ends of all queues, chunk by chunk
    chunk   requests for queues of one topic at one broker, which leave in one write

At most CHUNKS_MAX chunks are under way: the oldest is processed while the rest wait. A broker that
does not answer is left out of the look. It is also left out of later looks for LEFT_MS if its
failure took SLOW_MS. Nothing is kept that a crash could lose.

Source: docs/design/cluster.md sections 2.4, 2.5 and 2.2, item 4.
"""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import BrokerError, ConnectionFailedError
from pyspark_rocketpy.transport.remoting.cluster.client import Cluster
from pyspark_rocketpy.transport.remoting.cluster.refusals import is_passing
from pyspark_rocketpy.transport.remoting.net.calls import Call
from rocketpy_proto.remoting import MessageQueue

T = TypeVar("T")
# Queues of a chunk, and chunks under way: limits for what brokers hold for us, and we of them.
CHUNK_QUEUES_MAX = 128
CHUNKS_MAX = 8
# A broker that failed after SLOW_MS is not asked again for LEFT_MS.
SLOW_MS = 1_000
LEFT_MS = 10_000
# Broker ids of one name that are tried in one look.
_TRIES_MAX = 3


@dataclass(frozen=True, slots=True)
class BrokerAnswer(Generic[T]):
    """A broker's answer for a queue, and the id of that broker."""

    value: T
    broker_id: int


Ask = Callable[[Sequence[MessageQueue], int], list[Call[T]]]


@dataclass(frozen=True, slots=True)
class _Chunk(Generic[T]):
    queues: list[MessageQueue]
    calls: list[Call[T]]
    broker_id: int
    since_ms: int

    @property
    def broker_name(self) -> str:
        return self.queues[0].broker_name


class FanOut:
    """Looks at a cluster. State is the brokers that were slow to fail."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._left_until_ms: dict[tuple[str, int], int] = {}
        # The reasons for brokers missing in the last look, by name.
        self.failures: dict[str, ConnectionFailedError | BrokerError] = {}

    def look(
        self, queues: Sequence[MessageQueue], ask: Ask[T]
    ) -> dict[MessageQueue, BrokerAnswer[T]]:
        """Returns the answers for each queue; a broker that does not answer is missing as a whole.

        `ask` sends requests for queues of one topic at one broker id. Raises BrokerError for a
        refusal that does not pass.
        """
        self.failures = {}
        seen: dict[MessageQueue, BrokerAnswer[T]] = {}
        missing = _by_broker(queues)
        for number in range(_TRIES_MAX):
            if not missing:
                break
            ids = {name: self._broker_id(missing[name][0], number) for name in missing}
            asked = {name: missing[name] for name, found in ids.items() if found is not None}
            if not asked:
                break
            found = self._look_once(asked, ids, ask)
            seen |= found
            missing = {name: its for name, its in missing.items() if its[0] not in found}
        return seen

    def broker_id(self, queue: MessageQueue) -> int | None:
        """Returns the broker id to ask first about a queue; None if there is none now."""
        return self._broker_id(queue, 0)

    def _broker_id(self, queue: MessageQueue, number: int) -> int | None:
        try:
            ids = self._cluster.route(queue.topic).broker_ids(queue.broker_name)
        except (ConnectionFailedError, BrokerError):
            return None
        now_ms = clock.monotonic_ms()
        left = self._left_until_ms
        ready = [each for each in ids if left.get((queue.broker_name, each), 0) <= now_ms]
        return ready[number] if number < len(ready) else None

    def _look_once(
        self,
        queues: Mapping[str, list[MessageQueue]],
        ids: Mapping[str, int | None],
        ask: Ask[T],
    ) -> dict[MessageQueue, BrokerAnswer[T]]:
        """Returns the answers of brokers that answered for all of their queues."""
        seen: dict[str, dict[MessageQueue, BrokerAnswer[T]]] = {name: {} for name in queues}
        under_way: deque[_Chunk[T]] = deque()
        for chunk in _interleaved(queues):
            name = chunk[0].broker_name
            broker_id = ids[name]
            assert broker_id is not None
            if name in seen:
                since_ms = clock.monotonic_ms()
                try:
                    calls = ask(chunk, broker_id)
                except (ConnectionFailedError, BrokerError) as error:
                    self._leave(seen, name, broker_id, since_ms, error)
                else:
                    under_way.append(_Chunk(chunk, calls, broker_id, since_ms))
            if len(under_way) >= CHUNKS_MAX:
                self._hear(seen, under_way.popleft())
        while under_way:
            self._hear(seen, under_way.popleft())
        return {queue: each for found in seen.values() for queue, each in found.items()}

    def _hear(self, seen: dict[str, dict[MessageQueue, BrokerAnswer[T]]], chunk: _Chunk[T]) -> None:
        name = chunk.broker_name
        if name not in seen:
            for call in chunk.calls:
                call.leave()
            return
        try:
            for queue, call in zip(chunk.queues, chunk.calls, strict=True):
                seen[name][queue] = BrokerAnswer(call.answer(), chunk.broker_id)
        except (ConnectionFailedError, BrokerError) as error:
            self._leave(seen, name, chunk.broker_id, chunk.since_ms, error)
            for call in chunk.calls:
                call.leave()

    def _leave(
        self,
        seen: dict[str, dict[MessageQueue, BrokerAnswer[T]]],
        name: str,
        broker_id: int,
        since_ms: int,
        error: ConnectionFailedError | BrokerError,
    ) -> None:
        """Leaves a broker out of the look. Raises an error that does not pass."""
        if not is_passing(error, is_slave=broker_id != 0) or getattr(error, "is_lasting", False):
            raise error
        self.failures.setdefault(name, error)
        seen.pop(name, None)
        now_ms = clock.monotonic_ms()
        if now_ms - since_ms >= SLOW_MS:
            self._left_until_ms[name, broker_id] = now_ms + LEFT_MS


def _by_broker(queues: Sequence[MessageQueue]) -> dict[str, list[MessageQueue]]:
    found: dict[str, list[MessageQueue]] = defaultdict(list)
    for queue in queues:
        found[queue.broker_name].append(queue)
    return found


def _interleaved(queues: Mapping[str, list[MessageQueue]]) -> Iterator[list[MessageQueue]]:
    """Yields chunks, one of each broker in turn."""
    chunks = [list(_chunks(its)) for its in queues.values()]
    for turn in itertools.zip_longest(*chunks):
        yield from (chunk for chunk in turn if chunk is not None)


def _chunks(queues: Sequence[MessageQueue]) -> Iterator[list[MessageQueue]]:
    for _, its in itertools.groupby(queues, key=lambda queue: queue.topic):
        of_topic = list(its)
        for begin in range(0, len(of_topic), CHUNK_QUEUES_MAX):
            yield of_topic[begin : begin + CHUNK_QUEUES_MAX]
