"""Routes: topics with their queues by broker, and brokers with their addresses.

Maps: topic -> broker name -> queues; broker name -> addresses by broker id; cluster -> names;
address -> the last registration from there. In memory only: after a restart the brokers register
again within 30 s. Topics that a later registration lacks stay, as in RocketMQ.

Work on all topics of a broker is a generator of steps, so that the caller can serve requests
between them.
Source: RouteInfoManager, docs/design/cluster.md sections 3.1 to 3.3.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field

import msgspec

from rocketpy_broker.nameserver.errors import NoRouteError, RegistrationError, TooManyEntriesError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_proto.remoting.bodies.configs import DataVersion, TopicConfig, TopicConfigTable
from rocketpy_proto.remoting.bodies.routes import (
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    QueueData,
    TopicRouteData,
)
from rocketpy_proto.remoting.headers.cluster import (
    BrokerRequest,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from rocketpy_proto.remoting.headers.topics import PERM_READ, PERM_WRITE

logger = logging.getLogger(__name__)
MASTER_ID = 0
# The silence after which a broker is removed, unless its registration gives another time.
EXPIRY_MS = 120_000
BROKERS_MAX = 10_000
# Topics of one step: about a millisecond.
STEP_TOPICS = 500
# Entries of all topics and brokers: a topic at two brokers counts twice.
ENTRIES_MAX = 1_000_000
NO_VERSION = DataVersion(counter=0, changed_ms=0, state_version=0)

Address = tuple[str, str]


@dataclass(slots=True)
class Registration:
    """The last registration from an address. `connection` is the broker's connection."""

    broker_name: str
    updated_ms: float
    expiry_ms: int
    data_version: DataVersion
    connection: object
    ha_server_addr: str


@dataclass(slots=True)
class Broker:
    """The brokers of one name, and the topics that they have registered."""

    cluster: str
    is_acting_master_enabled: bool = False
    addresses: dict[int, str] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)
    # Of static topics; kept as received.
    mappings: dict[str, object] = field(default_factory=dict)

    def data(self, name: str) -> BrokerData:
        """Returns the addresses as clients get them."""
        return BrokerData(
            name,
            dict(sorted(self.addresses.items())),
            self.cluster,
            self.is_acting_master_enabled,
        )


class RouteTable:
    """The routes of all clusters that register here."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, Broker] = {}
        self._clusters: dict[str, set[str]] = {}
        # By cluster and address.
        self._registrations: dict[Address, Registration] = {}
        self._entry_count = 0
        # Names and topics of removed brokers, whose entries are to be dropped.
        self._removed: deque[tuple[str, set[str]]] = deque()

    # --- Brokers ---

    def register(
        self, request: RegisterBrokerRequest, topics: TopicConfigTable | None, connection: object
    ) -> Generator[None, None, RegisterBrokerResponse]:
        """Stores a broker's addresses and topics; returns its master's addresses for a slave.

        The first step does all but the topics. A broker that is removed between two steps gets no
        more topics. Raises RegistrationError, TooManyEntriesError.
        """
        topics = topics or TopicConfigTable()
        self._check(request, topics)
        name, address = request.broker_name, (request.cluster_name, request.broker_addr)
        broker, is_first = self._broker(request)
        for broker_id, known in [*broker.addresses.items()]:
            # A slave that became the master, or the other way.
            if known == request.broker_addr and broker_id != request.broker_id:
                del broker.addresses[broker_id]
        before = broker.addresses.get(request.broker_id)
        version = topics.data_version or NO_VERSION
        if before is not None and before != request.broker_addr:
            if self._is_newer((request.cluster_name, before), version):
                self._registrations.pop(address, None)
                return RegisterBrokerResponse()
            logger.warning(
                "broker %s, id %d: address %s takes the place of %s",
                *(name, request.broker_id, request.broker_addr, before),
            )
        broker.addresses[request.broker_id] = request.broker_addr
        last = self._registrations.get(address)
        is_changed = is_first or before is None or last is None or last.data_version != version
        registration = self._registrations[address] = Registration(
            name,
            self._clock.monotonic_ms(),
            request.heartbeat_timeout_ms or EXPIRY_MS,
            NO_VERSION if last is None else last.data_version,
            connection,
            request.ha_server_addr,
        )
        if self._has_topics(request, broker):
            yield from self._store(name, broker, topics, is_changed=is_changed)
        # After the topics: an interrupted registration is changed at its repetition.
        registration.data_version = version
        return self._master_of(request, broker)

    def _check(self, request: RegisterBrokerRequest, topics: TopicConfigTable) -> None:
        known = self._brokers.get(request.broker_name)
        if known is None and len(self._brokers) >= BROKERS_MAX:
            raise TooManyEntriesError("brokers", BROKERS_MAX)
        new = set(topics.topic_configs) - (known.topics if known else set())
        if self._entry_count + len(new) > ENTRIES_MAX:
            raise TooManyEntriesError("topics", ENTRIES_MAX)
        is_known = known is not None and request.broker_id in known.addresses
        if len(topics.topic_configs) == 1 and not is_known:
            # A broker registers a single changed topic only after all of them.
            raise RegistrationError(
                f"register broker failed: broker {request.broker_name:.200} has not registered all "
                "its topics yet"
            )

    def _broker(self, request: RegisterBrokerRequest) -> tuple[Broker, bool]:
        """Returns the entry of a broker's name, and True for a new one."""
        name, cluster = request.broker_name, request.cluster_name
        broker = self._brokers.get(name)
        is_first = broker is None
        if broker is None:
            broker = self._brokers[name] = Broker(cluster)
            logger.info("broker %s of cluster %s: first registration", name, cluster)
        elif broker.cluster != cluster:
            logger.warning(
                "broker %s registers for cluster %s, and was of cluster %s: names of brokers must "
                "be unique",
                *(name, cluster, broker.cluster),
            )
            broker.cluster = cluster
        self._clusters.setdefault(cluster, set()).add(name)
        broker.is_acting_master_enabled = bool(request.is_acting_master_enabled)
        return broker, is_first

    def _is_newer(self, address: Address, version: DataVersion) -> bool:
        """True if the registration of an address has a newer state than `version`."""
        known = self._registrations.get(address)
        if known is None:
            return False
        return (known.data_version.state_version or 0) > (version.state_version or 0)

    @staticmethod
    def _has_topics(request: RegisterBrokerRequest, broker: Broker) -> bool:
        """True if the registration's topics count: a master's, or the first slave's alone."""
        if request.broker_id == MASTER_ID:
            return True
        if MASTER_ID in broker.addresses:
            return False
        is_old = request.is_acting_master_enabled is None
        return not is_old and request.broker_id == min(broker.addresses)

    def _store(
        self, name: str, broker: Broker, topics: TopicConfigTable, *, is_changed: bool
    ) -> Iterator[None]:
        if not is_changed and topics.topic_configs.keys() <= broker.topics:
            return
        for number, (topic, config) in enumerate(topics.topic_configs.items(), 1):
            if number % STEP_TOPICS == 0:
                yield
                if self._brokers.get(name) is not broker:
                    return
            queues = self._topics.setdefault(topic, {})
            if name not in queues:
                self._entry_count += 1
            elif not is_changed:
                continue
            queues[name] = _queue_data(name, config)
            broker.topics.add(topic)
        if is_changed and topics.topic_queue_mapping_info_map:
            broker.mappings |= topics.topic_queue_mapping_info_map

    def _master_of(self, request: RegisterBrokerRequest, broker: Broker) -> RegisterBrokerResponse:
        master = broker.addresses.get(MASTER_ID)
        if request.broker_id == MASTER_ID or master is None:
            return RegisterBrokerResponse()
        live = self._registrations.get((request.cluster_name, master))
        if live is None:
            return RegisterBrokerResponse()
        return RegisterBrokerResponse(live.ha_server_addr, master)

    def unregister(self, request: BrokerRequest) -> None:
        """Removes a broker's address, and with its last one the broker and its queues."""
        self._registrations.pop((request.cluster_name, request.broker_addr), None)
        self._remove(request.broker_name, request.broker_id, request.broker_addr)

    def connection_lost(self, connection: object) -> None:
        """Removes the brokers that have registered by a connection."""
        self._remove_all(lambda known: known.connection is connection, "its connection has ended")

    def remove_expired(self) -> None:
        """Removes brokers without a registration in their time."""
        now_ms = self._clock.monotonic_ms()
        self._remove_all(
            lambda known: known.updated_ms + known.expiry_ms < now_ms, "it registers no more"
        )

    def _remove_all(self, is_over: Callable[[Registration], bool], why: str) -> None:
        over = [each for each in self._registrations.items() if is_over(each[1])]
        for (cluster, address), known in over:
            logger.warning("broker %s at %s is removed: %s", known.broker_name, address, why)
            del self._registrations[cluster, address]
            self._remove(known.broker_name, None, address)

    def _remove(self, name: str, broker_id: int | None, address: str) -> None:
        broker = self._brokers.get(name)
        if broker is None:
            return
        for known_id, known in [*broker.addresses.items()]:
            if known == address and broker_id in (None, known_id):
                del broker.addresses[known_id]
        if broker.addresses:
            return
        del self._brokers[name]
        for cluster in [*self._clusters]:
            self._clusters[cluster].discard(name)
            if not self._clusters[cluster]:
                del self._clusters[cluster]
        if broker.topics:
            self._removed.append((name, broker.topics))

    def drop_removed(self) -> Generator[None, None, None]:
        """Drops the queues of removed brokers; routes show them no more."""
        while self._removed:
            name, topics = self._removed[0]
            for _ in range(min(STEP_TOPICS, len(topics))):
                topic = topics.pop()
                again = self._brokers.get(name)
                if again is None or topic not in again.topics:
                    self._drop(topic, name)
            if not topics:
                self._removed.popleft()
            yield

    def _drop(self, topic: str, name: str) -> None:
        queues = self._topics.get(topic, {})
        if queues.pop(name, None) is not None:
            self._entry_count -= 1
        if not queues:
            self._topics.pop(topic, None)

    def data_version(self, request: BrokerRequest) -> DataVersion | None:
        """Returns the version that a broker has registered; a query counts as a sign of life."""
        known = self._registrations.get((request.cluster_name, request.broker_addr))
        if known is None:
            return None
        known.updated_ms = self._clock.monotonic_ms()
        return known.data_version

    # --- Topics ---

    def route(self, topic: str) -> TopicRouteData:
        """Returns a topic's queues and the addresses of its brokers. Raises NoRouteError."""
        known = self._topics.get(topic, {})
        queues = {name: data for name, data in known.items() if name in self._brokers}
        if not queues:
            raise NoRouteError(topic)
        brokers = [(name, self._brokers[name]) for name in queues]
        mappings = {
            name: broker.mappings[topic] for name, broker in brokers if topic in broker.mappings
        }
        return TopicRouteData(
            tuple(broker.data(name) for name, broker in brokers),
            tuple(queues.values()),
            topic_queue_mapping_by_broker=mappings or None,
        )

    def register_topic(self, topic: str, queues: tuple[QueueData, ...]) -> None:
        """Stores a topic's queues at brokers that are known. Raises TooManyEntriesError."""
        known = [each for each in queues if each.broker_name in self._brokers]
        if self._entry_count + len(known) > ENTRIES_MAX:
            raise TooManyEntriesError("topics", ENTRIES_MAX)
        for each in known:
            at = self._topics.setdefault(topic, {})
            self._entry_count += each.broker_name not in at
            at[each.broker_name] = each
            self._brokers[each.broker_name].topics.add(topic)

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Deletes a topic, at the brokers of one cluster if it is named."""
        for name in [*self._topics.get(topic, {})]:
            if not cluster or name in self._clusters.get(cluster, ()):
                self.remove_topic(name, topic)

    def remove_topic(self, name: str, topic: str) -> None:
        """Removes a topic of one broker."""
        self._drop(topic, name)
        broker = self._brokers.get(name)
        if broker is not None:
            broker.topics.discard(topic)
            broker.mappings.pop(topic, None)

    def set_writable(self, name: str, *, is_writable: bool) -> Generator[None, None, int]:
        """Gives or takes the write permission of a broker's topics; returns their number."""
        broker = self._brokers.get(name)
        topics = [] if broker is None else [*broker.topics]
        for number, topic in enumerate(topics, 1):
            if number % STEP_TOPICS == 0:
                yield
            before = self._topics.get(topic, {}).get(name)
            if before is not None:
                perm = PERM_READ | PERM_WRITE if is_writable else before.perm & ~PERM_WRITE
                self._topics[topic][name] = msgspec.structs.replace(before, perm=perm)
        return len(topics)

    # --- Lists ---

    @property
    def topics(self) -> list[str]:
        """The names of all topics."""
        return [*self._topics]

    def topics_of_cluster(self, cluster: str) -> Generator[None, None, list[str]]:
        """Returns the topics with a broker in the cluster; a step is one broker."""
        found: set[str] = set()
        for name in [*self._clusters.get(cluster, ())]:
            broker = self._brokers.get(name)
            if broker is not None:
                found |= broker.topics
            yield
        return sorted(found)

    def system_topics(self) -> tuple[list[str], str | None]:
        """Returns the names of clusters and brokers, which are topics, and one broker's address."""
        names = [each for cluster, of in self._clusters.items() for each in (cluster, *sorted(of))]
        addresses = (
            each for broker in self._brokers.values() for each in broker.addresses.values()
        )
        return names, next(addresses, None)

    def cluster_info(self) -> ClusterInfo:
        """Returns the brokers and their clusters."""
        return ClusterInfo(
            {name: broker.data(name) for name, broker in self._brokers.items()},
            {cluster: tuple(sorted(names)) for cluster, names in self._clusters.items()},
        )

    def members(self, cluster: str, name: str) -> BrokerMemberGroup:
        """Returns the addresses of one broker name."""
        broker = self._brokers.get(name)
        addresses = broker.addresses if broker is not None else {}
        return BrokerMemberGroup(name, cluster, dict(sorted(addresses.items())))


def _queue_data(name: str, config: TopicConfig) -> QueueData:
    return QueueData(
        name,
        config.read_queue_nums,
        config.write_queue_nums,
        config.perm,
        config.topic_sys_flag,
    )
