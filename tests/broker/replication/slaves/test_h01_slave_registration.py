"""H01: a slave registers with its id, and its master's entry is the master's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rocketpy_proto.apache.rocketmq.v2 import service_pb2
from rocketpy_proto.model.codes import RequestCode, ResponseCode
from rocketpy_proto.remoting.headers.cluster import BrokerRequest
from tests.broker.nameserver import registrations
from tests.broker.nameserver.registrations import addresses, route, table
from tests.broker.replication.slaves.own_slave import slave
from tests.support.broker.clients.apache_client import ACCESS_POINT, ApacheClient, group, topic
from tests.support.broker.clients.remoting_client import (
    RemotingClient,
    StartNameServer,
    connected,
    start_name_server,
)
from tests.support.broker.running_broker import RunningBroker, StartBroker, until

__all__ = ["start_name_server"]
CLUSTER, MASTER = "DefaultCluster", "127.0.0.1:20911"


def own(running: RunningBroker) -> str:
    return f"127.0.0.1:{running.ready.remoting_port}"


@pytest.fixture
async def running(start_broker: StartBroker) -> AsyncIterator[RunningBroker]:
    """Yields a slave with the id 2, the topic R, and its own name server."""
    async with start_broker() as master:
        await master.create_topic("R")
    async with slave(start_broker, 2) as started:
        yield started


@pytest.fixture
async def client(running: RunningBroker) -> AsyncIterator[RemotingClient]:
    """Yields a connection to the slave's name server."""
    assert running.ready.name_server_port is not None
    async with connected(running.ready.name_server_port) as opened:
        yield opened


async def test_h01_a_slave_is_beside_its_master_whose_topics_count(
    start_broker: StartBroker, start_name_server: StartNameServer
) -> None:
    async with start_name_server() as server, server.client() as client:
        await registrations.register(
            client, table("TBW102", "T", queues=3), cluster_name=CLUSTER, broker_addr=MASTER
        )
        async with slave(start_broker, 2, name_servers=(f"127.0.0.1:{server.port}",)) as running:
            both = {"broker-a": {0: MASTER, 2: own(running)}}
            known = server.server.routes._brokers["broker-a"]
            await until(lambda: 2 in known.addresses)
            assert await addresses(client, "TBW102") == both
            found = await route(client, "TBW102")
            assert found is not None
            assert [each.read_queue_nums for each in found.queue_datas] == [3]
            # A clean stop ends the slave's entry alone.
        assert await addresses(client, "T") == {"broker-a": {0: MASTER}}


async def test_h01_a_slave_is_registered_again_at_a_name_server_that_has_lost_it(
    start_broker: StartBroker, start_name_server: StartNameServer
) -> None:
    async with start_name_server() as server, server.client() as client:
        names = (f"127.0.0.1:{server.port}",)
        async with slave(start_broker, name_servers=names) as running:
            brokers = server.server.routes._brokers
            await until(lambda: "broker-a" in brokers)
            request = BrokerRequest("broker-a", own(running), CLUSTER, 1)
            [member] = brokers["broker-a"].members.values()
            assert member.connection is not None
            server.server.routes.unregister(request, member.connection)
            assert await addresses(client, "TBW102") == {}

            def is_back() -> bool:
                running.clock.advance(1_000)
                return "broker-a" in brokers

            await until(is_back)
            assert await addresses(client, "TBW102") == {"broker-a": {1: own(running)}}


async def test_h01_each_route_of_a_slave_has_its_id(
    running: RunningBroker, client: RemotingClient
) -> None:
    assert await addresses(client, "TBW102") == {"broker-a": {2: own(running)}}
    found = await ApacheClient(running).route("R")
    assert {each.broker.id for each in found.message_queues} == {2}
    asked = service_pb2.QueryAssignmentRequest(
        topic=topic("R"), group=group("g"), endpoints=ACCESS_POINT
    )
    assigned = await ApacheClient(running).call("QueryAssignment", asked)
    assert {each.message_queue.broker.id for each in assigned.assignments} == {2}


async def test_h01_a_master_registers_at_its_slaves_name_server(
    running: RunningBroker, client: RemotingClient
) -> None:
    before = await route(client, "TBW102")
    assert before is not None
    where: dict[str, Any] = {"cluster_name": CLUSTER, "broker_addr": MASTER}
    answer = await registrations.register(client, table("TBW102", "T", queues=3), **where)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    both = {"broker-a": {0: MASTER, 2: own(running)}}
    assert await addresses(client, "T") == both
    # The slave's tables change no queues of its master.
    running.broker.services.topics.changed(["TBW102"])
    after = await route(client, "TBW102")
    assert after is not None
    assert [each.read_queue_nums for each in after.queue_datas] == [3]
    # Another slave learns its master from there.
    third: dict[str, Any] = {**where, "broker_addr": "127.0.0.1:30911", "broker_id": 3}
    answer = await registrations.register(client, table("T", "U"), **third)
    assert answer.ext_fields["masterAddr"] == MASTER
    await registrations.unregister(client, cluster_name=CLUSTER, broker_addr=MASTER)
    assert await addresses(client, "T") == {"broker-a": {2: own(running), 3: "127.0.0.1:30911"}}


@pytest.mark.parametrize(
    "wrong",
    [{"broker_id": 2}, {"broker_id": 17}, {"broker_id": -1}, {"cluster_name": "other"}],
    ids=str,
)
async def test_h01_the_slaves_entry_is_its_own(
    running: RunningBroker, client: RemotingClient, wrong: dict[str, object]
) -> None:
    fields: dict[str, Any] = {"cluster_name": CLUSTER, "broker_addr": MASTER, **wrong}
    answer = await registrations.register(client, table("T", "U"), **fields)
    assert answer.code != ResponseCode.SUCCESS
    own_end = BrokerRequest("broker-a", own(running), CLUSTER, 2)
    assert (await client.ask(RequestCode.UNREGISTER_BROKER, own_end)).code != ResponseCode.SUCCESS
    assert await addresses(client, "TBW102") == {"broker-a": {2: own(running)}}
