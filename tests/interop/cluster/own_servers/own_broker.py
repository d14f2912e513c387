"""A broker of ours in a cluster of RocketMQ's, without a name server of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from rocketpy_proto.remoting import RequestCode
from rocketpy_proto.remoting.headers.topics import CreateTopicRequest
from tests.interop.cluster.cluster import Cluster
from tests.interop.cluster.connection import Connection
from tests.interop.cluster.processes import ServerProcess, until
from tests.interop.cluster.servers import CLUSTER, LOOPBACK, NameServer, OwnProgram, free_port

OWN = "broker-o"


class OwnBroker(ServerProcess):
    """A broker of ours with remoting, and no name server of its own."""

    def __init__(self, folder: Path, name_servers: Sequence[NameServer]) -> None:
        self._name_servers = name_servers
        port = free_port((0,))
        self.address = f"{LOOPBACK}:{port}"
        options = ["--data", str(folder / "store"), "--port", "0", "--remoting-port", str(port)]
        addresses = ";".join(each.address for each in name_servers)
        options += ["--name-server-port", "0", "--name-server", addresses]
        options += ["--broker-name", OWN, "--cluster-name", CLUSTER, "--disk-full-ratio", "1"]
        super().__init__(OWN, folder, OwnProgram(["broker", *options]))

    def create_topic(self, topic: str, queues: int) -> None:
        """Creates a topic at this broker; waits until every name server routes to it.

        The broker itself waits for a name server for a second at most.
        """
        header = CreateTopicRequest(topic=topic, read_queue_nums=queues, write_queue_nums=queues)
        with Connection(self.address) as connection:
            connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header).ok()
        until(
            lambda: all(OWN in each.routes(topic) for each in self._name_servers),
            f"routed to {topic}",
            [self, *self._name_servers],
        )


@pytest.fixture
def own_broker(cluster: Cluster, tmp_path: Path) -> Iterator[OwnBroker]:
    """Yields our broker, which both name servers list; they list it no more after its end."""
    broker = OwnBroker(tmp_path / OWN, cluster.name_servers)
    broker.start()
    servers = [broker, *cluster.name_servers]
    until(
        lambda: all((OWN, 0) in each.members() for each in cluster.name_servers),
        f"registered: {OWN}",
        servers,
    )
    yield broker
    broker.stop()
    until(
        lambda: all((OWN, 0) not in each.members() for each in cluster.name_servers),
        f"unregistered: {OWN}",
        cluster.name_servers,
    )
