"""Routes: topics with their queues by broker, and brokers with their addresses.

Maps: topic -> broker name -> queues; broker name -> the last registration of each broker id;
cluster -> names. In memory only: after a restart the brokers register again within 30 s. Topics
that a later registration lacks stay, as in RocketMQ.

Work on all topics of a broker is a generator of steps; the caller serves requests between them. All
other work is short, since the bytes of all brokers are limited.
Source: RouteInfoManager, docs/design/cluster.md sections 3.1 to 3.3.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Generator, Iterator

import msgspec

from rocketpy_broker.nameserver.entry_bytes import EntryBytes
from rocketpy_broker.nameserver.errors import NoRouteError, RegistrationError
from rocketpy_broker.nameserver.registration import BrokerGroup, BrokerRegistration, RegistrationLog
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.server.remoting.connection import RemotingConnection
from rocketpy_proto.model.configs import (
    NO_VERSION,
    READ_WRITE,
    DataVersion,
    Perm,
    TopicConfig,
)
from rocketpy_proto.remoting.bodies.configs import TopicConfigTable
from rocketpy_proto.remoting.bodies.routes import (
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

MASTER_ID = 0
# Topics of one step: about a millisecond.
STEP_TOPICS = 500
# BROKER_BYTES_MAX is enough for 1,300 brokers; the answer with a cluster names all of them.
# TOPIC_BYTES_MAX is enough for 900,000 topics; a topic at two brokers counts twice.
BROKER_BYTES_MAX, TOPIC_BYTES_MAX, MAPPING_BYTES_MAX = 1 << 20, 512 << 20, 256 << 10


class RouteTable:
    """The routes of all clusters that register here."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, BrokerGroup] = {}
        self._clusters: defaultdict[str, set[str]] = defaultdict(set)
        # The brokers, by name and id, whose last registration came by a connection.
        self._registered: defaultdict[object, set[tuple[str, int]]] = defaultdict(set)
        self._broker_bytes = EntryBytes("brokers", BROKER_BYTES_MAX)
        self._topic_bytes = EntryBytes("topics", TOPIC_BYTES_MAX)
        self._mapping_bytes = EntryBytes("static topics", MAPPING_BYTES_MAX)
        self._log = RegistrationLog(clock)
        # Names and topics of removed brokers; their entries are dropped later.
        self._removed: deque[tuple[str, set[str]]] = deque()

    # --- Brokers ---

    def register(
        self,
        request: RegisterBrokerRequest,
        topics: TopicConfigTable | None,
        connection: RemotingConnection | None,
    ) -> Generator[None, None, RegisterBrokerResponse]:
        """Stores a broker's addresses and topics; returns its master's addresses for a slave.

        The first step does all but the topics. A broker that is removed between two steps gets no
        more topics. One that reaches the limit of topics keeps its earlier topics. Raises
        RegistrationError, TooManyEntriesError.
        """
        topics = topics or TopicConfigTable()
        name, broker_id = request.broker_name, request.broker_id
        last = self._member(name, broker_id)
        if last is None and len(topics.topic_configs) == 1:
            # A broker registers a single changed topic only after all of them.
            raise RegistrationError(
                f"register broker failed: broker {name:.200} has not registered all its topics yet"
            )
        version = topics.data_version or NO_VERSION
        # The last registration from the same address.
        before = self._known(request)
        if last is not None and before is None and _is_newer(last.data_version, version):
            return RegisterBrokerResponse()
        is_changed = before is None or before.data_version != version
        registration = BrokerRegistration(
            request,
            connection,
            self._clock.monotonic_ms(),
            NO_VERSION if before is None else before.data_version,
        )
        broker = self._place(registration, last)
        for other, known in [*broker.members.items()]:
            # A slave that became the master, or the reverse.
            if known.address == request.broker_addr and other != broker_id:
                self._remove(name, other)
        if self._has_topics(request, broker):
            yield from self._store(name, broker, topics, is_changed=is_changed)
        # Set after the topics: after an interruption, the next registration counts as changed.
        registration.data_version = version
        return self._master_of(request, broker)

    def _member(self, name: str, broker_id: int) -> BrokerRegistration | None:
        broker = self._brokers.get(name)
        return None if broker is None else broker.members.get(broker_id)

    def _place(self, new: BrokerRegistration, last: BrokerRegistration | None) -> BrokerGroup:
        """Puts a registration in the place of the last one; returns the entry of its name.

        Raises TooManyEntriesError; then nothing has changed.
        """
        request = new.request
        name, cluster = request.broker_name, request.cluster_name
        place = name, request.broker_id
        self._broker_bytes.change(new.texts, () if last is None else last.texts)
        broker = self._brokers.get(name)
        self._log.begun(new, last, None if broker is None else broker.cluster)
        if broker is None:
            broker = self._brokers[name] = BrokerGroup(cluster)
        elif broker.cluster != cluster:
            self._leave(broker.cluster, name)
            broker.cluster = cluster
        self._clusters[cluster].add(name)
        broker.is_acting_master_enabled = bool(request.is_acting_master_enabled)
        if last is not None:
            self._registered[last.connection].discard(place)
        broker.members[request.broker_id] = new
        self._registered[new.connection].add(place)
        return broker

    @staticmethod
    def _has_topics(request: RegisterBrokerRequest, broker: BrokerGroup) -> bool:
        """True if the registration's topics count.

        A master's topics count. Without a master, the topics of the slave with the lowest id count.
        """
        if request.broker_id == MASTER_ID:
            return True
        if MASTER_ID in broker.members:
            return False
        is_old = request.is_acting_master_enabled is None
        return not is_old and request.broker_id == min(broker.members)

    def _store(
        self, name: str, broker: BrokerGroup, topics: TopicConfigTable, *, is_changed: bool
    ) -> Iterator[None]:
        if not is_changed and topics.topic_configs.keys() <= broker.topics:
            return
        for number, (topic, config) in enumerate(topics.topic_configs.items(), 1):
            if number % STEP_TOPICS == 0:
                yield
                if self._brokers.get(name) is not broker:
                    return
            if is_changed or name not in self._topics.get(topic, ()):
                self._put(topic, _queue_data(name, config))
        for topic, mapping in (topics.topic_queue_mapping_info_map or {}).items():
            if is_changed:
                text, before = msgspec.json.encode(mapping), broker.mappings.get(topic)
                old = () if before is None else (topic, before)
                self._mapping_bytes.change((topic, text), old)
                broker.mappings[topic] = text

    def _put(self, topic: str, queues: QueueData) -> None:
        """Stores a topic's queues at a broker that is known. Raises TooManyEntriesError."""
        name = queues.broker_name
        if name not in self._topics.get(topic, ()):
            self._topic_bytes.change([topic])
        self._topics.setdefault(topic, {})[name] = queues
        self._brokers[name].topics.add(topic)

    def _master_of(
        self, request: RegisterBrokerRequest, broker: BrokerGroup
    ) -> RegisterBrokerResponse:
        master = broker.members.get(MASTER_ID)
        if request.broker_id == MASTER_ID or master is None:
            return RegisterBrokerResponse()
        return RegisterBrokerResponse(master.request.ha_server_addr, master.address)

    def unregister(self, request: BrokerRequest, connection: RemotingConnection) -> None:
        """Removes a broker, and the queues of its name if no other broker has the name."""
        known = self._known(request)
        if known is not None:
            self._log.unregistered(known, request, connection)
            self._remove(request.broker_name, request.broker_id)

    def _known(self, request: RegisterBrokerRequest | BrokerRequest) -> BrokerRegistration | None:
        """Returns the registration from the request's address."""
        known = self._member(request.broker_name, request.broker_id)
        return known if known is not None and known.address == request.broker_addr else None

    def connection_lost(self, connection: object) -> None:
        """Removes the brokers that have registered by a connection."""
        for name, broker_id in self._registered.pop(connection, ()):
            self._remove(name, broker_id, "its connection has ended")

    def remove_expired(self) -> None:
        """Removes brokers that have not registered again in time."""
        now_ms = self._clock.monotonic_ms()
        for name, broker in [*self._brokers.items()]:
            for broker_id, known in [*broker.members.items()]:
                if known.end_ms < now_ms:
                    self._remove(name, broker_id, "it registers no more")

    def _remove(self, name: str, broker_id: int, why: str = "") -> None:
        broker = self._brokers[name]
        known = broker.members.pop(broker_id)
        if why:
            self._log.ended(known, why)
        self._broker_bytes.change(old=known.texts)
        if known.connection in self._registered:
            self._registered[known.connection].discard((name, broker_id))
        if broker.members:
            return
        del self._brokers[name]
        self._leave(broker.cluster, name)
        for topic, mapping in broker.mappings.items():
            self._mapping_bytes.change(old=(topic, mapping))
        if broker.topics:
            self._removed.append((name, broker.topics))

    def _leave(self, cluster: str, name: str) -> None:
        self._clusters[cluster].discard(name)
        if not self._clusters[cluster]:
            del self._clusters[cluster]

    def drop_removed(self) -> Generator[None, None, None]:
        """Drops the queues of removed brokers, which routes already leave out."""
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
            self._topic_bytes.change(old=[topic])
        if not queues:
            self._topics.pop(topic, None)

    def data_version(self, request: BrokerRequest) -> DataVersion | None:
        """Returns the version that a broker has registered; a query counts as a heartbeat."""
        known = self._known(request)
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
            name: msgspec.json.decode(broker.mappings[topic])
            for name, broker in brokers
            if topic in broker.mappings
        }
        return TopicRouteData(
            tuple(broker.data(name) for name, broker in brokers),
            tuple(queues.values()),
            topic_queue_mapping_by_broker=mappings or None,
        )

    def register_topic(self, topic: str, queues: tuple[QueueData, ...]) -> None:
        """Stores a topic's queues at brokers that are known. Raises TooManyEntriesError."""
        for each in queues:
            if each.broker_name in self._brokers:
                self._put(topic, each)

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Deletes a topic at all brokers, or at the brokers of `cluster` if it is named."""
        for name in [*self._topics.get(topic, {})]:
            if not cluster or name in self._clusters.get(cluster, ()):
                self.remove_topic(name, topic)

    def remove_topic(self, name: str, topic: str) -> None:
        """Removes a topic of one broker."""
        self._drop(topic, name)
        broker = self._brokers.get(name)
        if broker is not None:
            broker.topics.discard(topic)
            mapping = broker.mappings.pop(topic, None)
            self._mapping_bytes.change(old=() if mapping is None else (topic, mapping))

    def set_writable(self, name: str, *, is_writable: bool) -> Generator[None, None, int]:
        """Gives or takes the write permission of a broker's topics; returns their number."""
        broker = self._brokers.get(name)
        topics = [] if broker is None else [*broker.topics]
        for number, topic in enumerate(topics, 1):
            if number % STEP_TOPICS == 0:
                yield
            before = self._topics.get(topic, {}).get(name)
            if before is not None:
                perm = READ_WRITE if is_writable else before.perm & ~Perm.WRITE
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
        return BrokerMemberGroup(name, cluster, addresses)


def _queue_data(name: str, config: TopicConfig) -> QueueData:
    return QueueData(
        name,
        config.read_queue_nums,
        config.write_queue_nums,
        config.perm,
        config.topic_sys_flag,
    )


def _is_newer(version: DataVersion, other: DataVersion) -> bool:
    return version.state_version > other.state_version
