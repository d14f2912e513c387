"""Fan-out of offset queries to all queues and all their brokers.

    fan-out   for each broker its master, or else a slave: ends of all queues, chunk by chunk
    chunk     requests for queues of one topic at one broker

At most CHUNKS_MAX chunks are under way: the oldest is processed while the rest wait. A broker that
does not answer is left out of the fan-out. It is also left out of later fan-outs for LEFT_MS if its
failure took SLOW_MS. Nothing is kept that a crash could lose.

Source: docs/design/cluster.md sections 2.4, 2.5 and 2.2, item 4.
"""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import BrokerError, ConnectionFailedError
from pyspark_rocketpy.transport.remoting.cluster.client import Cluster
from pyspark_rocketpy.transport.remoting.net.calls import Call
from pyspark_rocketpy.transport.remoting.net.responses import is_retriable
from rocketpy_proto.remoting import MessageQueue
from rocketpy_proto.remoting.headers.pulls import MASTER_ID

T = TypeVar("T")
# Queues of a chunk, and chunks under way. They limit the requests that wait at brokers, and the
# answers that wait here.
CHUNK_QUEUES_MAX = 128
CHUNKS_MAX = 8
# A broker that failed after SLOW_MS is not asked again for LEFT_MS.
SLOW_MS = 1_000
LEFT_MS = 10_000
# Broker ids of one name that are tried in one fan-out.
_TRIES_MAX = 3


@dataclass(frozen=True, slots=True)
class BrokerAnswer(Generic[T]):
    """A broker's answer for a queue, and the id of that broker."""

    value: T
    broker_id: int


# Sends the request for a queue to the broker with this id.
QueueQuery = Callable[[Cluster, MessageQueue, int], Call[T]]


@dataclass(frozen=True, slots=True)
class _Chunk(Generic[T]):
    queues: list[MessageQueue]
    broker_id: int
    since_ms: int
    calls: list[Call[T]] = field(default_factory=list)

    @property
    def broker_name(self) -> str:
        return self.queues[0].broker_name

    def ask(self, cluster: Cluster, query: QueueQuery[T]) -> None:
        for queue in self.queues:
            self.calls.append(query(cluster, queue, self.broker_id))

    def answers(self) -> dict[MessageQueue, BrokerAnswer[T]]:
        return {
            queue: BrokerAnswer(call.answer(), self.broker_id)
            for queue, call in zip(self.queues, self.calls, strict=True)
        }


_AnswersByBroker = dict[str, dict[MessageQueue, BrokerAnswer[T]]]


class FanOut:
    """Sender of queries to all queues of a cluster. State is the brokers that were slow to fail."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._left_until_ms: dict[tuple[str, int], int] = {}
        # The first reason for each missing broker, by name; a caller that reads it clears it first.
        self.failures: dict[str, ConnectionFailedError | BrokerError] = {}

    def ask(
        self, queues: Iterable[MessageQueue], query: QueueQuery[T]
    ) -> dict[MessageQueue, BrokerAnswer[T]]:
        """Returns each queue's answer; all queues of a broker that does not answer are missing.

        Raises BrokerError for a refusal that is not retriable.
        """
        answers: dict[MessageQueue, BrokerAnswer[T]] = {}
        missing = _by_broker(queues)
        for number in range(_TRIES_MAX):
            ids = {name: self._broker_id(its[0], number) for name, its in missing.items()}
            asked = {name: found for name, found in ids.items() if found is not None}
            if not asked:
                break
            answers |= self._ask_once({name: missing[name] for name in asked}, asked, query)
            missing = {name: its for name, its in missing.items() if its[0] not in answers}
        return answers

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

    def _ask_once(
        self,
        queues: Mapping[str, list[MessageQueue]],
        ids: Mapping[str, int],
        query: QueueQuery[T],
    ) -> dict[MessageQueue, BrokerAnswer[T]]:
        """Returns the answers of brokers that answered for all of their queues."""
        answers: _AnswersByBroker[T] = {name: {} for name in queues}
        under_way: deque[_Chunk[T]] = deque()
        for its in _interleaved(queues):
            chunk: _Chunk[T] = _Chunk(its, ids[its[0].broker_name], clock.monotonic_ms())
            self._try_step(answers, chunk, partial(chunk.ask, self._cluster, query))
            under_way.append(chunk)
            if len(under_way) >= CHUNKS_MAX:
                self._receive(answers, under_way.popleft())
        while under_way:
            self._receive(answers, under_way.popleft())
        return {queue: each for found in answers.values() for queue, each in found.items()}

    def _receive(self, answers: _AnswersByBroker[T], chunk: _Chunk[T]) -> None:
        self._try_step(answers, chunk, lambda: answers[chunk.broker_name].update(chunk.answers()))

    def _try_step(
        self, answers: _AnswersByBroker[T], chunk: _Chunk[T], step: Callable[[], None]
    ) -> None:
        """Takes a step for a chunk; leaves its broker out of the fan-out after an error.

        Raises an error that is not retriable.
        """
        name, broker_id = chunk.broker_name, chunk.broker_id
        try:
            if name in answers:
                step()
        except (ConnectionFailedError, BrokerError) as error:
            if not is_retriable(error, is_slave=broker_id != MASTER_ID):
                raise
            self.failures.setdefault(name, error)
            del answers[name]
            now_ms = clock.monotonic_ms()
            if now_ms - chunk.since_ms >= SLOW_MS:
                self._left_until_ms[name, broker_id] = now_ms + LEFT_MS
        if name not in answers:
            for call in chunk.calls:
                call.leave()


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
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
