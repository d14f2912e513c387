"""Unmodified mqadmin against a broker of ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from tests.broker.remoting.requests import commit, subscribe, update_topic
from tests.broker.remoting.test_sends_and_pulls import pull, send
from tests.interop.answered_calls import until_answered
from tests.interop.cluster.java_clients import answered, row
from tests.interop.cluster.processes import configure_logs
from tests.interop.rocketmq import VERSIONS, RocketMQStore
from tests.project.documents.request_codes import codes_of
from tests.support.broker.clients.remoting_client import RemotingBroker
from tests.support.broker.running_broker import StartBroker, start_broker

__all__ = ["start_broker"]

Tool = Callable[..., Awaitable[str]]


@pytest.fixture
async def remoting(
    start_broker: StartBroker, request: pytest.FixtureRequest
) -> AsyncIterator[RemotingBroker]:
    """Yields a broker with remoting and a name server.

    It must answer each request that the table names for the test.
    """
    async with (
        start_broker(remoting_port=0, name_server_port=0, http_port=0) as running,
        RemotingBroker.of(running) as started,
    ):
        yield started
        endpoint = f"127.0.0.1:{running.ready.http_port}"
        await asyncio.to_thread(until_answered, endpoint, codes_of(request.node.nodeid))


@pytest.fixture(scope="module", params=VERSIONS)
def java(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RocketMQStore]:
    """Yields a process that runs commands."""
    folder = tmp_path_factory.mktemp("mqadmin")
    configure_logs(folder)
    process = RocketMQStore(folder / "java.log", folder, request.param)
    yield process
    process.kill()


@pytest.fixture
def tool(java: RocketMQStore) -> Tool:
    """Returns a function that runs a command of mqadmin."""

    async def run(command: str, *words: str) -> str:
        def once() -> str:
            return str(java.ask("admin", words=[command, *words])["printed"])

        return await asyncio.to_thread(answered, once)

    return run


@pytest.fixture
async def address(remoting: RemotingBroker) -> str:
    """Returns the address of a broker with the topics T and U and a group."""
    for topic in ("T", "U"):
        await update_topic(remoting.client, topic=topic, read_queue_nums=2, write_queue_nums=2)
    for number in range(5):
        await send(remoting.client, b"%d" % number, properties="TAGS\x01a")
    await pull(remoting.client, max_msg_nums=4)
    await subscribe(remoting, "G", "T")
    await commit(remoting, "G", "T", 3)
    await remoting.sampled()
    return f"127.0.0.1:{remoting.running.ready.remoting_port}"


@pytest.fixture
def names(remoting: RemotingBroker, address: str) -> str:
    """Returns the address of the broker's own name server."""
    return f"127.0.0.1:{remoting.running.ready.name_server_port}"


async def test_topics_and_groups_change(remoting: RemotingBroker, tool: Tool, address: str) -> None:
    shown = await tool("updateTopic", "-b", address, "-t", "new", "-r", "3", "-w", "2", "-p", "4")
    assert f"create topic to {address} success." in shown
    topics = remoting.running.broker.services.topics
    created = topics.get("new")
    assert (created.read_queue_nums, created.write_queue_nums, created.perm) == (3, 2, 4)
    shown = await tool("updateTopic", "-b", address, "-t", "TBW102")
    assert "conflict with system topic" in shown
    shown = await tool("updateSubGroup", "-b", address, "-g", "new", "-r", "3")
    assert f"create subscription group to {address} success." in shown
    groups = remoting.running.broker.services.groups.configs
    assert groups.get("new").retry_max_times == 3
    await tool("deleteSubGroup", "-b", address, "-g", "new")
    assert "new" not in groups


async def test_the_status_and_the_configuration(tool: Tool, address: str) -> None:
    status = await tool("brokerStatus", "-b", address)
    assert row(status, "msgPutTotalTodayNow")[-1] == "5"
    config = await tool("getBrokerConfig", "-b", address)
    assert row(config, "brokerPermission")[-1] == "6"
    shown = await tool("updateBrokerConfig", "-b", address, "-k", "brokerPermission", "-v", "4")
    assert "update broker config success" in shown
    config = await tool("getBrokerConfig", "-b", address)
    assert row(config, "brokerPermission")[-1] == "4"
    shown = await tool("updateBrokerConfig", "-b", address, "-k", "brokerName", "-v", "other")
    assert "brokerName is 'broker-a' and cannot change while the broker runs" in shown


async def test_the_figures_of_a_cluster(tool: Tool, address: str, names: str) -> None:
    listed = row(await tool("clusterList", "-n", names), "DefaultCluster", "broker-a")
    assert listed[2:4] == ["0", address]
    assert listed[5].startswith("0.50(0,0ms")
    listed = row(await tool("clusterList", "-n", names, "-m"), "DefaultCluster", "broker-a")
    assert listed[2:] == ["0", "0", "5", "4"]
    shown = await tool("statsAll", "-n", names, "-t", "T")
    assert row(shown, "T", "G")[2:] == ["2", "0.50", "0.40", "5", "4"]


async def test_positions_of_topics_and_groups(tool: Tool, address: str, names: str) -> None:
    status = await tool("topicStatus", "-n", names, "-t", "T")
    assert row(status, "broker-a", "0")[2:4] == ["0", "5"]
    assert row(status, "broker-a", "1")[2:4] == ["0", "0"]
    progress = await tool("consumerProgress", "-n", names, "-g", "G")
    found = row(progress, "T", "broker-a", "0")
    assert found[3:5] == ["5", "3"]
    assert "2" in found[5:]
    stats = await tool("brokerConsumeStats", "-b", address)
    assert row(stats, "T", "G", "broker-a", "0")[4:7] == ["5", "3", "2"]


async def test_units_of_a_queue(tool: Tool, address: str, names: str) -> None:
    where = ("-b", address, "-t", "T", "-q", "0", "-i", "1", "-c", "2")
    shown = await tool("queryCq", "-n", names, *where, "-g", "G")
    assert shown.count("physicOffset=") == 2
    assert shown.count("eval=true") == 2


async def test_a_deleted_topic_is_gone(remoting: RemotingBroker, tool: Tool, names: str) -> None:
    shown = await tool("deleteTopic", "-n", names, "-c", "DefaultCluster", "-t", "U")
    assert "delete topic [U] from cluster [DefaultCluster] success." in shown
    assert "U" not in remoting.running.broker.services.topics
