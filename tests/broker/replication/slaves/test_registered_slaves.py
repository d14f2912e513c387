"""N01, H01: slaves at the master's own name server cannot change the master's entry."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rocketpy_broker.config import SLAVES_MAX, Replication
from rocketpy_proto.model.codes import RequestCode, ResponseCode
from rocketpy_proto.remoting import RemotingCommand
from rocketpy_proto.remoting.headers.cluster import BrokerRequest
from tests.broker.nameserver import registrations
from tests.broker.nameserver.registrations import route, table
from tests.support.broker.clients.remoting_client import RemotingClient, connected
from tests.support.broker.running_broker import RunningBroker, StartBroker

SLAVE = "127.0.0.1:20911"


@pytest.fixture
async def master(start_broker: StartBroker) -> AsyncIterator[RunningBroker]:
    config = Replication(port=0)
    async with start_broker(replication=config, remoting_port=0, name_server_port=0) as running:
        await running.create_topic("T", queues=4)
        yield running


@pytest.fixture
async def client(master: RunningBroker) -> AsyncIterator[RemotingClient]:
    assert master.ready.name_server_port is not None
    async with connected(master.ready.name_server_port) as opened:
        yield opened


def address(master: RunningBroker) -> str:
    return f"127.0.0.1:{master.ready.remoting_port}"


async def register(client: RemotingClient, **changes: Any) -> RemotingCommand:
    """Registers a slave with two queues of each topic; returns the answer."""
    fields = {"broker_addr": SLAVE, "broker_id": 1, "cluster_name": "DefaultCluster", **changes}
    return await registrations.register(client, table("T", "U", queues=2), **fields)


async def seen(client: RemotingClient) -> tuple[dict[int, str], int]:
    """Returns the addresses of the topic's broker, and its number of queues."""
    found = await route(client, "T")
    assert found is not None
    (data,), (queues,) = found.broker_datas, found.queue_datas
    return dict(data.broker_addrs), queues.read_queue_nums


async def test_h01_a_slave_registers_and_learns_its_master(
    master: RunningBroker, client: RemotingClient
) -> None:
    answer = await register(client)
    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext_fields["haServerAddr"] == f"127.0.0.1:{master.ready.ha_port}"
    assert answer.ext_fields["masterAddr"] == address(master)
    assert await seen(client) == ({0: address(master), 1: SLAVE}, 4)


@pytest.mark.parametrize("broker_id", [0, -1, SLAVES_MAX + 1, (1 << 63) - 1])
async def test_n01_an_id_that_no_slave_has_is_refused(
    master: RunningBroker, client: RemotingClient, broker_id: int
) -> None:
    answer = await register(client, broker_id=broker_id)
    assert answer.code != ResponseCode.SUCCESS
    assert await seen(client) == ({0: address(master)}, 4)


async def test_n01_a_slave_of_another_cluster_or_of_a_long_address_is_refused(
    master: RunningBroker, client: RemotingClient
) -> None:
    for wrong in ({"cluster_name": "other"}, {"broker_addr": f"{'h' * 3_000}:1"}):
        answer = await register(client, **wrong)
        assert answer.code != ResponseCode.SUCCESS
    assert await seen(client) == ({0: address(master)}, 4)


@pytest.mark.parametrize("name", ["broker-a", "broker-z"])
async def test_n01_the_masters_own_address_is_taken_by_nobody(
    master: RunningBroker, client: RemotingClient, name: str
) -> None:
    wrong = await register(client, broker_addr=address(master), broker_name=name)
    assert wrong.code != ResponseCode.SUCCESS
    end = BrokerRequest("broker-a", address(master), "DefaultCluster", 1)
    assert (await client.ask(RequestCode.UNREGISTER_BROKER, end)).code != ResponseCode.SUCCESS
    assert await seen(client) == ({0: address(master)}, 4)
    assert await master.create_topic("another") == 0
