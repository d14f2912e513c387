"""Offset queries of the planning process, at name servers and brokers.

Queues come from the route. A queue that does not exist has the offset 0 at a broker, without an
error. A broker that is away is left out, and its slave is asked instead, if it has one. Minimum
offsets are kept for some seconds. Topics are kept while no name server answers. The very first
query is not repeated: a wrong address is an error at once. Nothing is kept that a crash could lose.
Source: docs/design/cluster.md sections 2.2 to 2.6.

An idle query has a held pull at each of up to 256 queues. It looks at the ends of all queues every
5 s, or every 50 ms times their number if longer. It also looks at the end of a wait:

    queues      held pulls/s    fan-outs: requests/s
    4           0.3             0.8
    100         7               20
    10,000      17              333 (once in a wait of 30 s)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import (
    BrokerBusyError,
    BrokerError,
    ConnectionFailedError,
    OptionError,
    TopicNotExistError,
)
from pyspark_rocketpy.offsets import (
    Bounds,
    Epochs,
    Positions,
    QueueRange,
)
from pyspark_rocketpy.transport.remoting.cluster.bounds import (
    has_news,
    hidden_bounds,
    joined_bounds,
    no_broker_error,
)
from pyspark_rocketpy.transport.remoting.cluster.client import Cluster
from pyspark_rocketpy.transport.remoting.cluster.fan_out import BrokerAnswer, FanOut
from pyspark_rocketpy.transport.remoting.cluster.groups import check_expression, make_group
from pyspark_rocketpy.transport.remoting.cluster.queue_requests import (
    consumer_offset,
    max_offset,
    min_offset,
    update_consumer_offset,
)
from pyspark_rocketpy.transport.remoting.net.calls import outcomes
from pyspark_rocketpy.transport.remoting.net.peers import Timeouts
from pyspark_rocketpy.transport.remoting.pull.held_pulls import HeldPulls
from pyspark_rocketpy.transport.remoting.pull.sampler import Sampler
from pyspark_rocketpy.transport.retries import RETRIABLE_ERRORS, Retries, retried
from pyspark_rocketpy.transport.values import QueueTime, RetryPolicy, Subscription
from rocketpy_proto.model import is_system_topic, retry_topic
from rocketpy_proto.remoting import MessageQueue, ResponseCode

T = TypeVar("T")
_Progress: TypeAlias = tuple[MessageQueue, int]
# Minimum offsets move when files are removed, hours apart.
MIN_OFFSET_MS_MAX = 10_000
FAN_OUT_MS_MIN, FAN_OUT_MS_A_QUEUE = 5_000, 50
# Limit for all topics of a query; a plan has some entries of 300 bytes for each queue.
QUERY_QUEUES_MAX = 262_144


class RemotingOffsetQueries:
    """OffsetQueries of a cluster."""

    def __init__(
        self, cluster: Cluster, retries: RetryPolicy, group: str, timeouts: Timeouts
    ) -> None:
        self._cluster = cluster
        self._retries = retries
        self._answered = False
        self._fan_out = FanOut(cluster)
        self._held = HeldPulls(cluster, timeouts)
        self._sampler = Sampler(cluster, self._fan_out, group, timeouts)
        self._group = group
        self._topics: tuple[str, ...] | None = None
        # Minimum offsets by queue, and until when they count.
        self._mins: dict[MessageQueue, BrokerAnswer[int]] = {}
        self._mins_until_ms = 0
        self._made: set[tuple[str, str]] = set()
        self._unanswered: ConnectionFailedError | BrokerError | None = None

    @property
    def unanswered(self) -> ConnectionFailedError | BrokerError | None:
        """The reason for missing queues; see OffsetQueries.

        Queues that left the route together with their broker do not count as missing.
        """
        return self._unanswered

    @property
    def store_id(self) -> str:
        """Always empty: RocketMQ's brokers have no store ids."""
        return ""

    @property
    def recovery_id(self) -> str:
        """Always empty: RocketMQ's brokers have no recovery ids."""
        return ""

    def require_store(self, store_id: str) -> None:
        """Ignores the id: brokers have none to compare it with."""

    # Bounds.

    def bounds(
        self,
        subscription: Subscription,
        known: Bounds | None = None,
        wait_ms_max: int = 0,
        recovery_id: str = "",
    ) -> Bounds:
        """Implements OffsetQueries.

        Brokers that do not answer are missing, but their topics are not.
        """
        end_ms = clock.monotonic_ms() + wait_ms_max
        while True:
            found = self._retried(partial(self._bounds_now, subscription))
            left_ms = end_ms - clock.monotonic_ms()
            if known is None or left_ms <= 0 or has_news(known, found):
                return found
            ends = [
                (MessageQueue(queue.broker_name, queue.queue_id, topic), each.max_offset)
                for topic, queues in found.items()
                for queue, each in queues.items()
                if not each.is_lagging
            ]
            fan_out_ms = max(FAN_OUT_MS_MIN, FAN_OUT_MS_A_QUEUE * len(ends))
            self._held.wait(self._group, ends, min(left_ms, fan_out_ms))

    def _bounds_now(self, subscription: Subscription) -> Bounds:
        queues = self._queues(subscription)
        everything = [queue for its in queues.values() for queue in its]
        failures = self._fan_out.failures
        failures.clear()
        ends = self._fan_out.ask(everything, max_offset)
        if everything and not ends and not self._answered:
            raise next(iter(failures.values()), no_broker_error(subscription))
        begins = self._min_offsets(list(ends))
        committed = self._committed(subscription, list(ends))
        there = ends.keys() & begins.keys() & committed.keys()
        bounds: Bounds = {topic: {} for topic in queues} | joined_bounds(ends, begins, committed)
        missing = next((queue for queue in everything if queue not in there), None)
        self._unanswered = None
        if missing is not None:
            self._unanswered = failures.get(missing.broker_name, no_broker_error(subscription))
        if not self._answered and isinstance(self._unanswered, BrokerBusyError):
            # A query needs all queues at its start. Absence later has a time limit of its own.
            raise self._unanswered
        return bounds

    def hidden_bounds(self, queues: Positions, recovery_id: str = "") -> Bounds:
        """Implements OffsetQueries. Brokers answer also for queues that left the route."""
        return self._retried(partial(hidden_bounds, self._cluster, self._fan_out, queues))

    def _queues(self, subscription: Subscription) -> dict[str, list[MessageQueue]]:
        """Returns the queues to read of each existing topic, by the name servers."""
        found: dict[str, list[MessageQueue]] = {}
        left = QUERY_QUEUES_MAX
        names = self._names(subscription)
        self._cluster.prepare(names)
        for topic in names:
            try:
                counts = self._cluster.route(topic).read_queue_nums()
            except TopicNotExistError:
                continue
            left -= sum(counts.values())
            if left < 0:
                raise BrokerError(
                    f"the query's topics have too many queues: {QUERY_QUEUES_MAX - left} in "
                    f"{len(found) + 1} of {len(names)} topics, limit {QUERY_QUEUES_MAX}; read "
                    "fewer topics with one query"
                )
            found[topic] = [
                MessageQueue(name, queue_id, topic)
                for name, count in sorted(counts.items())
                for queue_id in range(count)
            ]
        return found

    def _names(self, subscription: Subscription) -> list[str]:
        named = list(subscription.named)
        if subscription.topic_pattern is None:
            return named
        try:
            own = self._cluster.names()
            self._topics = tuple(topic for topic in self._cluster.topics() if topic not in own)
        except RETRIABLE_ERRORS:
            if self._topics is None:
                raise
        users = [topic for topic in self._topics if not is_system_topic(topic)]
        return sorted(subscription.reads(users) | set(named))

    def _min_offsets(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, BrokerAnswer[int]]:
        now_ms = clock.monotonic_ms()
        if now_ms >= self._mins_until_ms:
            self._mins, self._mins_until_ms = {}, now_ms + MIN_OFFSET_MS_MAX
        new = [queue for queue in queues if queue not in self._mins]
        self._mins |= self._fan_out.ask(new, min_offset)
        return self._mins

    def _committed(
        self, subscription: Subscription, queues: Sequence[MessageQueue]
    ) -> dict[MessageQueue, int]:
        """Returns the group's committed offsets, -1 for none; all are -1 if they are not wanted.

        0 also counts as none: 4.9 does not distinguish the two.
        """
        if not subscription.wants_committed:
            return dict.fromkeys(queues, -1)
        group = subscription.consumer_group
        seen = self._fan_out.ask(queues, lambda *at: consumer_offset(at[0], group, at[1]))
        return {queue: each.value or -1 for queue, each in seen.items()}

    # Single questions.

    def search(self, times: Sequence[QueueTime]) -> list[int | None]:
        """Implements OffsetQueries."""
        return self._retried(lambda: self._sampler.search(times))

    def limit_bytes(self, ranges: Sequence[QueueRange], bytes_max: int) -> list[int]:
        """Implements OffsetQueries, by an estimate from some records of the ranges."""
        return self._retried(lambda: self._sampler.limit_bytes(ranges, bytes_max))

    def find_keys(self, ranges: Sequence[QueueRange], keys: Sequence[str]) -> list[QueueRange]:
        """Returns whole ranges: brokers find messages by key, but not ranges without them."""
        return list(ranges)

    def expression_fault(self, expression: str) -> str | None:
        """Implements OffsetQueries. Every master is asked.

        Raises OptionError if masters refuse SQL92 and no other master accepts it.
        """
        return self._retried(lambda: self._fault(expression))

    def _fault(self, expression: str) -> str | None:
        masters = sorted(self._cluster.masters().items())
        check = partial(check_expression, self._cluster)
        found = outcomes(partial(check, peer, self._group, expression) for _, peer in masters)
        refusals: list[BrokerError] = []
        for each in found:
            if isinstance(each, str):
                return each
            if isinstance(each, BrokerError):
                is_busy = isinstance(each, BrokerBusyError)
                if is_busy or each.response_code != ResponseCode.SYSTEM_ERROR:
                    raise each
                refusals.append(each)
        failures = [each for each in found if isinstance(each, ConnectionFailedError)]
        if len(refusals) + len(failures) < len(found):
            return None
        if refusals:
            raise OptionError(
                f"option filter is an SQL92 expression, which brokers refuse ({refusals[0]}); "
                "set enablePropertyFilter=true in their configuration, or filter by tags"
            )
        if failures:
            raise failures[0]
        return None

    def broker_name(self) -> str:
        """Returns the first broker name, in alphabetical order, with a master; "" without any."""
        return min(self._retried(self._cluster.masters), default="")

    # Progress.

    def commit(self, group: str, positions: Positions, epochs: Epochs) -> None:
        """Implements OffsetQueries. Commits at masters alone: a commit at a slave is lost.

        All masters get their commits before the first failure is raised. A master that is away gets
        the next commit. A broker of 4.9 loses one of two concurrent first commits of a new group.
        So the first commit of a topic to each broker is sent before the remaining ones.
        """
        failures: list[ConnectionFailedError | BrokerError] = []
        firsts: list[_Progress] = []
        others: list[_Progress] = []
        for topic, queues in positions.items():
            by_broker: dict[str, list[_Progress]] = {}
            for queue, offset in queues.items():
                position = MessageQueue(queue.broker_name, queue.queue_id, topic), offset
                by_broker.setdefault(queue.broker_name, []).append(position)
            for broker_name, (first, *rest) in sorted(by_broker.items()):
                try:
                    made = partial(self._make_group, group, topic, broker_name)
                    if retried(self._retries, made, (BrokerBusyError,)):
                        firsts.append(first)
                        others += rest
                except (ConnectionFailedError, BrokerError) as error:
                    failures.append(error)
        failures += self._commit_all(group, firsts)
        failures += self._commit_all(group, others)
        if failures:
            raise failures[0]

    def _commit_all(
        self, group: str, progress: Iterable[_Progress]
    ) -> list[ConnectionFailedError | BrokerError]:
        """Commits all progress at once; returns the failures.

        Repeats commits that a busy broker refused.
        """
        failures = list[ConnectionFailedError | BrokerError]()
        left, retries = list(progress), Retries(self._retries)
        while left:
            commit = partial(update_consumer_offset, self._cluster, group)
            found = outcomes(partial(commit, *each) for each in left)
            failures += [each for each in found if each and not isinstance(each, BrokerBusyError)]
            busy = [each for each in found if isinstance(each, BrokerBusyError)]
            left = [at for at, each in zip(left, found, strict=True) if each in busy]
            try:
                if busy:
                    retries.pause(busy[0])
            except BrokerBusyError as error:
                return [*failures, error]
        return failures

    def _make_group(self, group: str, topic: str, broker_name: str) -> bool:
        """Creates the group at a broker, and its retry topic, by which tools find it.

        Returns False if the broker is away.
        """
        try:
            master = self._cluster.route(topic).peer(broker_name)
        except TopicNotExistError:
            master = None
        if master is None or (group, broker_name) in self._made:
            return master is not None
        try:
            known = self._cluster.route(retry_topic(group)).peer(broker_name)
        except TopicNotExistError:
            known = None
        if known is None:
            make_group(self._cluster, topic, broker_name, group)
        self._made.add((group, broker_name))
        return True

    def _retried(self, ask: Callable[[], T]) -> T:
        """Returns the answer; a connection that fails before the first one is an error at once."""
        retriable = RETRIABLE_ERRORS if self._answered else (BrokerBusyError,)
        answer = retried(self._retries, ask, retriable)
        self._answered = True
        return answer
