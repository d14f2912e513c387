"""Our name server among RocketMQ's brokers, clients and tools: each uses it alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rocketpy_proto.model.codes import RequestCode, ResponseCode
from rocketpy_proto.remoting.headers.cluster import KVConfigRequest
from tests.interop.cluster.cluster import OLD, A, B, Cluster
from tests.interop.cluster.connection import Answer, ask
from tests.interop.cluster.java_clients import JavaClient, JavaMessage, JavaQueue, mqadmin
from tests.interop.cluster.processes import until
from tests.interop.cluster.servers import CLUSTER, NameServer
from tests.interop.rocketmq import ENDS, RocketMQStore

Tool = Callable[..., str]


@pytest.fixture
def own(cluster: Cluster) -> NameServer:
    """Returns our name server."""
    return cluster.name_servers[-1]


@pytest.fixture(params=ENDS)
def tool(request: pytest.FixtureRequest, tmp_path: Path, own: NameServer) -> Tool:
    """Returns a function that runs a command of mqadmin, of the newest and the oldest version."""

    def run(command: str, *words: str) -> str:
        return mqadmin(request.param, tmp_path, command, "-n", own.address, *words)

    return run


def test_n02_mqadmin_shows_clusters_topics_and_routes(
    cluster: Cluster, own: NameServer, tool: Tool
) -> None:
    cluster.create_topic("shown", 3)
    listed = tool("clusterList")
    for name in (A, B, OLD):
        assert f" {name} " in f" {listed} ".replace("\n", " \n ")
        assert cluster.broker(name).address in listed
    assert "shown" in tool("topicList")
    route = tool("topicRoute", "-t", "shown")
    assert '"readQueueNums":3' in route.replace(" ", "")
    assert own.routes("shown").keys() == {A, B, OLD}


def test_n02_mqadmin_takes_and_gives_the_write_permission(
    cluster: Cluster, own: NameServer, tool: Tool
) -> None:
    cluster.create_topic("guarded", 1)

    def is_taken() -> bool:
        # A registration of changed topics that is under way gives it back.
        assert "wipe write perm of broker[broker-b]" in tool("wipeWritePerm", "-b", B)
        return '"perm":4' in tool("topicRoute", "-t", "guarded").replace(" ", "")

    until(is_taken, "the write permission is taken", [own])
    tool("addWritePerm", "-b", B)
    assert '"perm":4' not in tool("topicRoute", "-t", "guarded").replace(" ", "")


def test_n02_mqadmin_deletes_a_topic(cluster: Cluster, own: NameServer, tool: Tool) -> None:
    cluster.create_topic("unwanted", 1)

    def is_gone() -> bool:
        # A registration that is under way brings the topic back, as at RocketMQ's name server.
        tool("deleteTopic", "-c", CLUSTER, "-t", "unwanted")
        return not own.routes("unwanted")

    until(is_gone, "unwanted is gone", [own])


def test_n02_mqadmin_keeps_a_key_and_deletes_it(own: NameServer, tool: Tool) -> None:
    def kept() -> Answer:
        return ask(own.address, RequestCode.GET_KV_CONFIG, KVConfigRequest("space", "key"))

    tool("updateKvConfig", "-s", "space", "-k", "key", "-v", "value")
    assert kept().ok().header.value == "value"
    tool("deleteKvConfig", "-s", "space", "-k", "key")
    assert kept().code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize("version", ENDS)
def test_n02_java_clients_send_and_pull_by_its_routes(
    cluster: Cluster, own: NameServer, java_processes: dict[str, RocketMQStore], version: str
) -> None:
    topic = f"by-our-routes-{version.replace('.', '-')}"
    cluster.create_topic(topic, 1)
    client = JavaClient(java_processes[version], own.address, topic, topic)
    for name in (A, B, OLD):
        queue = JavaQueue(name, 0)
        client.send(queue, [JavaMessage(name.encode())])
        client.until_pulled(queue, [name.encode()])


def test_n01_a_killed_broker_is_gone_at_once_and_back_after_its_start(
    fragile_cluster: Cluster, own: NameServer
) -> None:
    broker = fragile_cluster.broker(B)
    broker.kill()
    until(lambda: (B, 0) not in own.members(), "broker-b is gone", [own])
    fragile_cluster.heal()
    assert (B, 0) in own.members()
