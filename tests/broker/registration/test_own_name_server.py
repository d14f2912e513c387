"""The name server in the broker's process: its own topics at once, and other brokers' topics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from rocketpy_broker.errors import ConfigFileError
from rocketpy_broker.services.topics.entry import TopicEntry
from rocketpy_proto.model.codes import RequestCode, ResponseCode
from rocketpy_proto.remoting import decode_body
from rocketpy_proto.remoting.bodies.routes import (
    BrokerMemberGroupBody,
    ClusterInfo,
    TopicList,
)
from rocketpy_proto.remoting.headers.cluster import BrokerMemberGroupRequest, BrokerRequest
from tests.broker.nameserver.registrations import addresses, register, route, table
from tests.support.broker.clients.remoting_client import RemotingClient
from tests.support.broker.running_broker import RunningBroker, StartBroker

OWN = "broker-a"


@asynccontextmanager
async def client_of(
    running: RunningBroker, host: str = "127.0.0.1"
) -> AsyncIterator[RemotingClient]:
    """Yields a connection to the broker's name server."""
    reader, writer = await asyncio.open_connection(host, running.ready.name_server_port)
    try:
        yield RemotingClient(reader, writer)
    finally:
        writer.close()


def own(start_broker: StartBroker, **more: Any) -> Any:
    """Starts a broker with its own name server."""
    return start_broker(remoting_port=0, name_server_port=0, **more)


async def test_n02_topics_are_routed_when_the_broker_is_ready_and_at_each_change(
    start_broker: StartBroker,
) -> None:
    async with own(start_broker) as running, client_of(running) as client:
        here = {OWN: {0: f"127.0.0.1:{running.ready.remoting_port}"}}
        for topic in running.broker.services.topics.names(include_system=True):
            assert await addresses(client, topic) == here
        assert await route(client, "T") is None
        assert await running.create_topic("T", 3) == 0
        found = await route(client, "T")
        assert found is not None
        assert [each.read_queue_nums for each in found.queue_datas] == [3]
        await running.broker.services.topics.delete("T")
        assert await route(client, "T") is None
        # No time without a registration ends the broker's own.
        for _ in range(100):
            running.clock.advance(5_000)
            await asyncio.sleep(0)
        async with client_of(running) as later:
            assert await addresses(later, "TBW102") == here


def _made(entry: TopicEntry, _old: TopicEntry | None) -> TopicEntry:
    return entry


async def test_many_topics_that_change_at_once_are_routed(start_broker: StartBroker) -> None:
    async with own(start_broker) as running, client_of(running) as client:
        topics = running.broker.services.topics
        names = [f"T{number}" for number in range(2_000)]
        assert await route(client, names[-1]) is None
        template = topics.copy()["BenchmarkTest"]
        entries = {name: template.changed(topic=name) for name in names}
        await topics._change_all({name: partial(_made, each) for name, each in entries.items()})
        while await route(client, names[-1]) is None:
            pass
        await topics._change_all(dict.fromkeys(names, lambda _old: None))
        while await route(client, names[-1]) is not None:
            pass


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "127.9.8.7"])
async def test_a_client_gets_the_address_by_which_it_came(
    start_broker: StartBroker, host: str
) -> None:
    async with (
        own(start_broker, host="0.0.0.0", insecure=True) as running,
        client_of(running, host) as client,
    ):
        here = f"{host}:{running.ready.remoting_port}"
        await named(client, here)


async def named(client: RemotingClient, address: str) -> None:
    """Asserts that each answer of the name server gives this address."""
    assert await addresses(client, "TBW102") == {OWN: {0: address}}
    answer = await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
    info = decode_body(ClusterInfo, answer.body)
    assert info.broker_addr_table[OWN].broker_addrs == {0: address}
    assert info.cluster_addr_table["DefaultCluster"] == (OWN,)
    answer = await client.ask(
        RequestCode.GET_BROKER_MEMBER_GROUP, BrokerMemberGroupRequest("DefaultCluster", OWN)
    )
    members = decode_body(BrokerMemberGroupBody, answer.body).broker_member_group
    assert members.broker_addrs == {0: address}
    answer = await client.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert decode_body(TopicList, answer.body).broker_addr == address


@pytest.mark.parametrize(
    ("options", "address"),
    [
        ({"advertise_host": "rocketmq.example"}, "rocketmq.example:{port}"),
        ({"advertise_host": "10.1.2.3", "advertise_port": 20911}, "10.1.2.3:20911"),
        ({"advertise_host": "fd00::1", "advertise_port": 20911}, "[fd00::1]:20911"),
        ({"advertise_port": 20911}, "127.0.0.1:20911"),
    ],
)
async def test_a_client_gets_the_advertised_address(
    start_broker: StartBroker, options: dict[str, Any], address: str
) -> None:
    async with own(start_broker, **options) as running, client_of(running) as client:
        await named(client, address.format(port=running.ready.remoting_port))
        host = running.broker.store.store_host
        # Ids of messages hold IPv4 addresses only.
        ids = options.get("advertise_host") if "10.1" in address else "127.0.0.1"
        port = options.get("advertise_port", running.ready.remoting_port)
        assert str(host) == f"{ids}:{port}"


async def test_other_brokers_register_there_and_keep_their_address(
    start_broker: StartBroker,
) -> None:
    async with (
        own(start_broker) as running,
        client_of(running) as client,
        client_of(running) as other,
    ):
        names: dict[str, Any] = {"broker_name": "broker-b", "cluster_name": "DefaultCluster"}
        assert await running.create_topic("T") == 0
        answer = await register(other, table("T", "U"), **names)
        assert answer.code == ResponseCode.SUCCESS
        expected = {
            OWN: {0: f"127.0.0.1:{running.ready.remoting_port}"},
            "broker-b": {0: "10.0.0.1:10911"},
        }
        assert await addresses(client, "T") == expected
        await running.broker.services.topics.delete("T")
        assert await addresses(client, "T") == {"broker-b": {0: "10.0.0.1:10911"}}
        assert await addresses(client, "U") == {"broker-b": {0: "10.0.0.1:10911"}}


async def test_n01_no_other_broker_takes_or_ends_the_own_name(start_broker: StartBroker) -> None:
    async with own(start_broker) as running, client_of(running) as client:
        here = {OWN: {0: f"127.0.0.1:{running.ready.remoting_port}"}}
        for broker_id in (0, 1):
            answer = await register(client, table("T", "U"), broker_name=OWN, broker_id=broker_id)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "belongs to the broker in this name server's process" in (answer.remark or "")
        for address in (here[OWN][0], "0.0.0.0:0"):
            ended = BrokerRequest(OWN, address, "DefaultCluster", 0)
            answer = await client.ask(RequestCode.UNREGISTER_BROKER, ended)
            assert answer.code == ResponseCode.SYSTEM_ERROR
        assert await route(client, "T") is None
        assert await addresses(client, "TBW102") == here


async def test_without_remoting_the_name_server_serves_other_brokers_alone(
    start_broker: StartBroker,
) -> None:
    async with (
        start_broker(name_server_port=0) as running,
        client_of(running) as client,
        client_of(running) as other,
    ):
        assert running.ready.remoting_port is None
        assert await addresses(client, "TBW102") == {}
        await register(other, table("T", "U"))
        assert await addresses(client, "T") == {OWN: {0: "10.0.0.1:10911"}}


async def test_a_damaged_configuration_of_keys_is_named(start_broker: StartBroker) -> None:
    async with own(start_broker) as running:
        path = running.broker.store.config.folder / "rocketpy" / "kvConfig.json"
    path.write_text("{")
    with pytest.raises(ConfigFileError, match=r"kvConfig\.json"):
        async with own(start_broker):
            pass
