"""Routes: the brokers of a topic's queues, and their addresses.

A route is kept for 30 s, as in RocketMQ's clients. It is queried again after a broker has
contradicted it or has not answered. The last route stays valid while no name server answers: it may
be right. Nothing is kept that a crash could lose.

Source: docs/design/remoting.md section 4.2, docs/design/cluster.md sections 2 and 3.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import BrokerError, ConnectionFailedError, TopicNotExistError
from pyspark_rocketpy.transport.remoting.net.peers import NAME_SERVER_OPTION, Peer
from rocketpy_proto.model.configs import Perm
from rocketpy_proto.remoting.bodies.routes import QueueData, TopicRouteData
from rocketpy_proto.remoting.headers.pulls import MASTER_ID

ROUTE_MS_MAX = 30_000
# Pause before the next query, after name servers have not answered.
_UNANSWERED_MS_MAX = 5_000
_ROUTES_MAX = 10_000
# Limit for all kept routes: queues and addresses, each of some 300 bytes.
_ENTRIES_MAX = 500_000
# Requests that are under way together.
_ROUTES_TOGETHER = 128
# More than any topic has at all of its brokers; a plan has an entry for each.
QUEUES_MAX = 65_536
_COUNT_DIGITS_MAX = 10


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """The route of one topic.

    Raises BrokerError for brokers without a name, or with the same name.
    """

    topic: str
    data: TopicRouteData
    # By broker name and id.
    _addresses: dict[str, dict[int, str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        addresses = {broker.broker_name: broker.broker_addrs for broker in self.data.broker_datas}
        object.__setattr__(self, "_addresses", addresses)
        for named in (self.data.broker_datas, self.data.queue_datas):
            names = {each.broker_name for each in named}
            if "" in names:
                raise self._invalid("a broker without a name")
            if len(names) < len(named):
                raise self._invalid("two brokers of the same name")

    @property
    def entry_count(self) -> int:
        """The number of entries of queues and brokers that it holds in memory."""
        addresses = sum(1 + len(each) for each in self._addresses.values())
        return len(self.data.queue_datas) + addresses

    def read_queue_nums(self) -> dict[str, int]:
        """Returns the number of queues for reading at each broker, by name; their ids start at 0.

        A broker may be away. Raises BrokerError for numbers out of range.
        """
        return self._checked(
            {
                queues.broker_name: queues.read_queue_nums
                for queues in self.data.queue_datas
                if queues.perm & Perm.READ
            }
        )

    def write_queue_nums(self) -> dict[str, int]:
        """Returns the number of queues for writing at each broker that has a master, by name.

        Raises BrokerError for numbers out of range, or an invalid order configuration.
        """
        ordered = self._ordered()
        return self._checked(
            {
                queues.broker_name: (
                    queues.write_queue_nums if ordered is None else ordered[queues.broker_name]
                )
                for queues in self.data.queue_datas
                if self._is_written(queues) and (ordered is None or queues.broker_name in ordered)
            }
        )

    def peer(self, broker_name: str, broker_id: int = MASTER_ID) -> Peer | None:
        """Returns the address of a broker; None if it has none now."""
        address = self._addresses.get(broker_name, {}).get(broker_id)
        return None if address is None else Peer(address)

    def broker_ids(self, broker_name: str) -> list[int]:
        """Returns the ids of a broker that have an address now: its master, then its slaves."""
        return sorted(self._addresses.get(broker_name, {}))

    def _is_written(self, queues: QueueData) -> bool:
        has_master = MASTER_ID in self._addresses.get(queues.broker_name, {})
        return bool(queues.perm & Perm.WRITE) and has_master

    def _ordered(self) -> dict[str, int] | None:
        """Returns the queues of a topic with a configured order, like `broker-a:4;broker-b:2`.

        None for a topic without one.
        """
        if not self.data.order_topic_conf:
            return None
        ordered = {}
        for entry in self.data.order_topic_conf.rstrip(";").split(";"):
            name, _, count = entry.rpartition(":")
            is_number = count.isascii() and count.isdecimal() and len(count) <= _COUNT_DIGITS_MAX
            if not (name and is_number) or name in ordered:
                raise self._invalid(f"the order configuration {entry!r:.200}")
            ordered[name] = int(count)
        return ordered

    def _checked(self, counts: dict[str, int]) -> dict[str, int]:
        """Returns the numbers of queues by broker. Raises BrokerError for numbers out of range."""
        for count in counts.values():
            if not 0 <= count <= QUEUES_MAX:
                raise self._invalid(f"{count} queues at one broker, limit {QUEUES_MAX}")
        total = sum(counts.values())
        if total > QUEUES_MAX:
            raise self._invalid(f"{total} queues at {len(counts)} brokers, limit {QUEUES_MAX}")
        return counts

    def _invalid(self, what: str) -> BrokerError:
        return BrokerError(
            f"a name server of option {NAME_SERVER_OPTION} reports that topic {self.topic} has "
            f"{what}; find this name server, and register its brokers there again"
        )


@dataclass(slots=True)
class _CachedRoute:
    route: TopicRoute
    asked_again_ms: int


class Routes:
    """The routes of the queried topics, by topic; for all threads."""

    def __init__(self, look_up: Callable[[str], TopicRouteData]) -> None:
        self._look_up = look_up
        self._lock = threading.Lock()
        self._cached: dict[str, _CachedRoute] = {}
        self._entry_count = 0

    def route(self, topic: str) -> TopicRoute:
        """Returns a topic's route.

        Raises TopicNotExistError, ConnectionFailedError, BrokerError.
        """
        kept = self._cached.get(topic)
        if kept is not None and clock.monotonic_ms() < kept.asked_again_ms:
            return kept.route
        try:
            route = TopicRoute(topic, self._look_up(topic))
        except TopicNotExistError:
            self._drop(topic)
            raise
        except (ConnectionFailedError, BrokerError):
            if kept is None:
                raise
            kept.asked_again_ms = clock.monotonic_ms() + _UNANSWERED_MS_MAX
            return kept.route
        self._keep(route)
        return route

    def prepare(
        self,
        topics: Sequence[str],
        look_up: Callable[[Sequence[str]], Mapping[str, TopicRouteData]],
    ) -> None:
        """Queries the due routes together, if they are more than one.

        `route` queries a route that is missing after that.
        """
        now_ms, kept = clock.monotonic_ms(), self._cached
        due = [
            topic for topic in topics if topic not in kept or kept[topic].asked_again_ms <= now_ms
        ]
        for begin in range(0, len(due) if len(due) > 1 else 0, _ROUTES_TOGETHER):
            for topic, data in look_up(due[begin : begin + _ROUTES_TOGETHER]).items():
                with contextlib.suppress(BrokerError):
                    self._keep(TopicRoute(topic, data))

    def doubt(self, topic: str) -> None:
        """Marks the route to be queried again at its next use: a broker has contradicted it."""
        kept = self._cached.get(topic)
        if kept is not None:
            kept.asked_again_ms = clock.monotonic_ms()

    def _keep(self, route: TopicRoute) -> None:
        with self._lock:
            self._leave(route.topic)
            self._cached[route.topic] = _CachedRoute(route, clock.monotonic_ms() + ROUTE_MS_MAX)
            self._entry_count += route.entry_count
            while len(self._cached) > _ROUTES_MAX or self._entry_count > _ENTRIES_MAX:
                self._leave(next(iter(self._cached)))

    def _drop(self, topic: str) -> None:
        with self._lock:
            self._leave(topic)

    def _leave(self, topic: str) -> None:
        """Removes a route. The caller holds the lock."""
        kept = self._cached.pop(topic, None)
        if kept is not None:
            self._entry_count -= kept.route.entry_count
