"""H01, H03: what operators see of a slave and its master."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rocketpy_broker.services.slave.state import SlaveState
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.remoting.bodies.stats import HAClientInfo, HARuntimeInfo
from rocketpy_proto.rocketpy.v1 import admin_pb2
from tests.broker.http.api_client import get
from tests.broker.metrics.scrape import scrape
from tests.broker.remoting.requests import answered
from tests.broker.replication.pair import state_of
from tests.broker.replication.slaves.own_slave import MASTER, slave
from tests.support.broker.clients.remoting_client import RemotingBroker
from tests.support.broker.running_broker import RunningBroker, StartBroker, until


@pytest.fixture
async def running(start_broker: StartBroker) -> AsyncIterator[RunningBroker]:
    """Yields a slave whose master cannot be reached."""
    async with slave(start_broker, 3, http_port=0) as started:
        await until(lambda: state_of(started).failure != "")
        yield started


async def status_of(running: RunningBroker) -> admin_pb2.GetBrokerStatusResponse:
    asked = admin_pb2.GetBrokerStatusRequest()
    response: admin_pb2.GetBrokerStatusResponse = await running.admin.GetBrokerStatus(asked)
    return response


def test_h03_the_lag_is_the_part_of_the_masters_log_that_is_missing() -> None:
    assert SlaveState(master_end=100).lag_bytes(40) == 60
    assert SlaveState().lag_bytes(40) == 0


async def test_h03_the_status_names_the_master_and_the_failure(running: RunningBroker) -> None:
    found = await status_of(running)
    assert (found.broker_role, found.broker_id) == ("SLAVE", 3)
    assert not found.master.connected
    assert found.master.failure == state_of(running).failure
    shown = await get(running, "/broker/status")
    assert (shown["brokerRole"], shown["brokerId"]) == ("SLAVE", 3)
    assert shown["master"]["failure"] == found.master.failure
    assert shown["master"]["syncedTimestamp"] is None


async def test_h03_a_slave_that_follows_shows_its_lag(running: RunningBroker) -> None:
    state, end = state_of(running), running.broker.store.positions().log_end
    state.master, state.is_connected, state.failure = MASTER, True, ""
    state.master_end, state.synced_ms = end + 77, 5_000
    assert (await status_of(running)).master == admin_pb2.MasterStatus(
        address=MASTER,
        connected=True,
        log_end_offset=end + 77,
        lag_bytes=77,
        synced_timestamp_ms=5_000,
    )
    scraped = await scrape(running)
    for name, value in (("connected", 1), ("lag_bytes", 77)):
        assert [*scraped.samples[f"rocketpy_replication_{name}"].values()] == [value]
    async with RemotingBroker.of(running) as remoting:
        found = await answered(remoting.client, Code.GET_BROKER_HA_STATUS)
        table = (await answered(remoting.client, Code.GET_BROKER_RUNTIME_INFO)).table
    client = HAClientInfo(MASTER, max_offset=end, master_flush_offset=end + 77)
    assert found == HARuntimeInfo(False, client=client)
    assert (table["brokerRole"], table["brokerId"]) == ("SLAVE", "3")
    assert (table["masterAddress"], table["masterLagBytes"]) == (MASTER, "77")


async def test_h03_a_master_has_no_master(start_broker: StartBroker) -> None:
    async with start_broker(http_port=0) as running:
        found = await status_of(running)
        assert (found.broker_role, found.broker_id) == ("ASYNC_MASTER", 0)
        assert not found.HasField("master")
        assert (await get(running, "/broker/status"))["master"] is None
