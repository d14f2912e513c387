"""Name servers and the brokers registered there.

    two name servers, one of them our own | broker-a: master and slave | broker-b: master of 5.3.3
    broker-4: master of 4.9.7

The other servers are of the newest version, so one cluster has brokers of all versions.

They start side by side. The cluster asks every name server repeatedly for the registered brokers: a
broker's first registration may be lost, and the next one comes ten seconds later.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rocketpy_proto.remoting import RequestCode
from rocketpy_proto.remoting.headers.topics import CreateTopicRequest
from tests.interop.cluster.connection import Connection, ask
from tests.interop.cluster.processes import ServerProcess, until
from tests.interop.cluster.servers import MASTER_ID, SLAVE_ID, Broker, BrokerSpec, NameServer
from tests.interop.rocketmq import V4, V5_3

A, B, OLD = "broker-a", "broker-b", "broker-4"
USUAL = (
    BrokerSpec(A),
    BrokerSpec(A, SLAVE_ID),
    BrokerSpec(B, version=V5_3),
    BrokerSpec(OLD, version=V4),
)
NAME_SERVERS = 2


class Cluster:
    """A cluster with a folder for each server in its own folder. Nothing runs before `start`."""

    def __init__(
        self, folder: Path, brokers: Sequence[BrokerSpec] = USUAL, name_servers: int = NAME_SERVERS
    ) -> None:
        self._folder = folder
        names = [f"name-server-{number}" for number in range(1, name_servers + 1)]
        # The last one is our own.
        self.name_servers = [
            NameServer(name, folder / name, is_own=name == names[-1] != names[0]) for name in names
        ]
        self.brokers: dict[tuple[str, int], Broker] = {}
        for spec in brokers:
            self._place(spec)

    @property
    def addresses(self) -> str:
        """The name servers' addresses, in the form of RocketMQ's clients."""
        return ";".join(server.address for server in self.name_servers)

    @property
    def masters(self) -> list[Broker]:
        """The brokers that accept messages."""
        return [broker for broker in self.brokers.values() if broker.spec.broker_id == MASTER_ID]

    def broker(self, name: str, broker_id: int = MASTER_ID) -> Broker:
        """Returns one broker, by name and id."""
        return self.brokers[name, broker_id]

    def start(self) -> None:
        """Starts all servers that do not run, and waits until all are registered."""
        for server in self._servers:
            if not server.is_running:
                server.start()
        self.until_registered()

    def add(self, spec: BrokerSpec) -> Broker:
        """Adds a broker, and waits until every name server has registered it."""
        broker = self._place(spec)
        self.start()
        return broker

    def remove(self, broker: Broker) -> None:
        """Kills a broker and removes it; the name servers notice its closed connection."""
        broker.kill()
        del self.brokers[broker.spec.name, broker.spec.broker_id]
        self.until_registered()

    def move(self, broker: Broker) -> Broker:
        """Kills a broker and starts it with its store at other ports."""
        broker.kill()
        moved = self._place(broker.spec)
        self.start()
        until(
            lambda: all(
                moved.address in server.addresses(moved.spec.name)
                for server in self.name_servers
                if server.is_running
            ),
            f"known at its new address: {moved.name}",
            self._servers,
        )
        return moved

    def heal(self) -> None:
        """Thaws frozen servers, starts ended ones, and waits until all are registered."""
        for server in self._servers:
            if server.is_running:
                server.thaw()
        self.start()

    def until_registered(self) -> None:
        """Waits until every name server lists exactly the running brokers."""
        expected = {key for key, broker in self.brokers.items() if broker.is_running}
        running = [server for server in self.name_servers if server.is_running]
        until(
            lambda: all(server.members() == expected for server in running),
            f"registered: {sorted(expected)}",
            [server for server in self._servers if server.is_running],
        )

    def until_dispatched(self) -> None:
        """Waits until each master's queues have all messages of its log.

        A broker of RocketMQ answers a send before its queue has the message.
        """

        def is_behind(master: Broker) -> bool:
            table = ask(master.address, RequestCode.GET_BROKER_RUNTIME_INFO).ok().content.table
            return int(table["dispatchBehindBytes"]) > 0

        until(lambda: not any(is_behind(each) for each in self.masters), "dispatched", self.masters)

    def create_topic(
        self, topic: str, queues: int = 2, brokers: Sequence[Broker] | None = None
    ) -> None:
        """Creates it at these brokers or every master; waits until name servers route to them."""
        header = CreateTopicRequest(topic=topic, read_queue_nums=queues, write_queue_nums=queues)
        places = self.masters if brokers is None else brokers
        for broker in places:
            with Connection(broker.address) as connection:
                connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header).ok()
        names = {broker.spec.name for broker in places}
        until(
            lambda: all(names <= set(server.routes(topic)) for server in self.name_servers),
            f"routed to {topic}",
            self._servers,
        )

    def kill(self) -> None:
        """Kills all servers; the folder stays."""
        for server in self._servers:
            server.kill()

    @property
    def _servers(self) -> list[ServerProcess]:
        return [*self.name_servers, *self.brokers.values()]

    def _place(self, spec: BrokerSpec) -> Broker:
        folder = self._folder / f"{spec.name}-{spec.broker_id}"
        addresses = [server.address for server in self.name_servers]
        broker = Broker(spec, folder, addresses)
        self.brokers[spec.name, spec.broker_id] = broker
        return broker
