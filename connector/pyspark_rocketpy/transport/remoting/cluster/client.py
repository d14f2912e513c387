"""Client of a cluster: topics, routes, and requests to a queue's broker.

A process has one object for each configuration (`cluster_for`). A topic's route is queried again
before the next request if a broker does not answer, or lacks the queue. The route is queried again
at once if an address accepts no connection. Nothing is kept that a crash could lose.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

from pyspark_rocketpy.errors import BrokerError, ConnectionFailedError
from pyspark_rocketpy.transport.remoting.cluster.name_servers import NameServers
from pyspark_rocketpy.transport.remoting.cluster.routes import Routes, TopicRoute
from pyspark_rocketpy.transport.remoting.net.calls import (
    Call,
    ClusterConfig,
    Request,
    RequestSender,
)
from pyspark_rocketpy.transport.remoting.net.connections import SHARED, Connections
from pyspark_rocketpy.transport.remoting.net.peers import NAME_SERVER_OPTION, Peer
from pyspark_rocketpy.transport.remoting.net.responses import WRONG_ROUTE_CODES
from rocketpy_proto.remoting.headers.pulls import MASTER_ID

T = TypeVar("T")


class Cluster:
    """Requests to name servers and to brokers; for all threads."""

    def __init__(self, config: ClusterConfig, connections: Connections = SHARED) -> None:
        self._caller = RequestSender(config, connections)
        self._name_servers = NameServers(config.name_servers, self._caller)
        self._routes = Routes(self._name_servers.route)

    def topics(self) -> tuple[str, ...]:
        """Returns every topic, including RocketMQ's own.

        Raises ConnectionFailedError, BrokerError.
        """
        return self._name_servers.topics()

    def route(self, topic: str) -> TopicRoute:
        """Returns a topic's route.

        Raises TopicNotExistError, ConnectionFailedError, BrokerError.
        """
        return self._routes.route(topic)

    def prepare(self, topics: Sequence[str]) -> None:
        """Queries the routes of many topics together; `route` would query them one by one."""
        self._routes.prepare(topics, self._name_servers.routes)

    def doubt(self, topic: str) -> None:
        """Marks the topic's route to be queried again at its next use."""
        self._routes.doubt(topic)

    def masters(self) -> dict[str, Peer]:
        """Returns the masters of all brokers that have one, by name.

        Raises ConnectionFailedError, BrokerError.
        """
        brokers = self._name_servers.cluster_info().broker_addr_table
        return {
            name: Peer(broker.broker_addrs[MASTER_ID])
            for name, broker in brokers.items()
            if MASTER_ID in broker.broker_addrs
        }

    def names(self) -> frozenset[str]:
        """Returns the names of clusters and brokers, each of which has a topic of its own name.

        Raises ConnectionFailedError, BrokerError.
        """
        brokers = self._name_servers.cluster_info().broker_addr_table
        clusters = (broker.cluster for broker in brokers.values())
        return frozenset({*brokers, *(name for name in clusters if name)})

    def ask(self, peer: Peer, request: Request[T]) -> Call[T]:
        """Sends a broker a request about itself. Raises ConnectionFailedError."""
        return self._caller.ask(peer, request)

    def ask_owner(
        self, topic: str, broker_name: str, request: Request[T], broker_id: int = MASTER_ID
    ) -> Call[T]:
        """Sends a request to a broker that has queues of a topic.

        Raises ConnectionFailedError, also if the route has no such broker now, TopicNotExistError,
        BrokerError.
        """
        return self.ask_owner_all(topic, broker_name, [request], broker_id)[0]

    def ask_owner_all(
        self,
        topic: str,
        broker_name: str,
        requests: Sequence[Request[T]],
        broker_id: int = MASTER_ID,
    ) -> list[Call[T]]:
        """Sends many requests as `ask_owner` does, in one write.

        If no connection can be opened, queries the route again and tries a new address: the broker
        may have moved. No request was sent before that.
        """
        peer = self.route(topic).peer(broker_name, broker_id)
        if peer is None:
            self._routes.doubt(topic)
            raise ConnectionFailedError(
                f"no name server of option {NAME_SERVER_OPTION} knows an address of broker "
                f"{broker_name} with id {broker_id}, which has queues of topic {topic}; check "
                "that the broker runs"
            )

        def on_failure(error: ConnectionFailedError | BrokerError) -> None:
            if isinstance(error, ConnectionFailedError) or error.response_code in WRONG_ROUTE_CODES:
                self._routes.doubt(topic)

        try:
            return self._caller.ask_all(peer, requests, on_failure)
        except ConnectionFailedError:
            moved_to = self._new_address(topic, broker_name, broker_id)
            if moved_to in {None, peer}:
                raise
        return self._caller.ask_all(moved_to, requests, on_failure)

    def _new_address(self, topic: str, broker_name: str, broker_id: int) -> Peer | None:
        """Returns a broker's address by a new route; None if there is none now."""
        self._routes.doubt(topic)
        try:
            return self.route(topic).peer(broker_name, broker_id)
        except (ConnectionFailedError, BrokerError):
            return None


_clusters: dict[ClusterConfig, Cluster] = {}
# A thread of the parent may hold a cluster's lock, and does not exist in a forked process.
os.register_at_fork(after_in_child=_clusters.clear)


def cluster_for(config: ClusterConfig) -> Cluster:
    """Returns this process's cluster for `config`. It connects at its first request."""
    return _clusters.setdefault(config, Cluster(config))
