"""Our broker in a cluster of RocketMQ's: it registers at both name servers beside Java brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.cluster.cluster import A, Cluster
from tests.interop.cluster.java_clients import JavaClient, JavaMessage, JavaQueue, mqadmin
from tests.interop.cluster.own_servers.own_broker import OWN, OwnBroker, own_broker
from tests.interop.rocketmq import ENDS, RocketMQStore

__all__ = ["own_broker"]


@pytest.mark.parametrize("version", ENDS)
def test_n01_java_clients_use_our_broker_and_javas_in_one_topic(
    cluster: Cluster,
    own_broker: OwnBroker,
    java_processes: dict[str, RocketMQStore],
    version: str,
) -> None:
    topic = f"at-both-{version.replace('.', '-')}"
    cluster.create_topic(topic, 1, [cluster.broker(A)])
    own_broker.create_topic(topic, 1)
    for server in cluster.name_servers:
        assert server.routes(topic).keys() == {A, OWN}
    client = JavaClient(java_processes[version], cluster.addresses, topic, topic)
    for name in (A, OWN):
        queue = JavaQueue(name, 0)
        client.send(queue, [JavaMessage(name.encode())])
        client.until_pulled(queue, [name.encode()])


@pytest.mark.parametrize("version", ENDS)
def test_n01_mqadmin_lists_our_broker_in_the_cluster(
    cluster: Cluster, own_broker: OwnBroker, tmp_path: Path, version: str
) -> None:
    for server in cluster.name_servers:
        listed = mqadmin(version, tmp_path, "clusterList", "-n", server.address)
        assert own_broker.address in listed
        assert f" {OWN} " in f" {listed} ".replace("\n", " \n ")
