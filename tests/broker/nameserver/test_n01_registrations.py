"""Brokers register, stay while they register, and go with their connection or their time."""

from __future__ import annotations

import pytest

from rocketpy_broker.nameserver.registration import EXPIRY_MS_MAX
from rocketpy_proto.model.codes import RequestCode, ResponseCode
from rocketpy_proto.model.configs import DataVersion
from rocketpy_proto.remoting import decode_body, encode_body
from rocketpy_proto.remoting.headers import EXCHANGES
from rocketpy_proto.remoting.headers.cluster import BrokerRequest
from tests.broker.nameserver.registrations import (
    ADDRESS,
    CLUSTER,
    HA_ADDRESS,
    NAME,
    addresses,
    register,
    route,
    table,
    unregister,
)
from tests.support.broker.clients.remoting_client import RunningNameServer
from tests.support.broker.running_broker import until

SLAVE = "10.0.0.2:10911"


@pytest.mark.parametrize("is_compressed", [False, True])
async def test_n01_a_registered_broker_has_its_topics_routed_to_it(
    name_server: RunningNameServer, is_compressed: bool
) -> None:
    async with name_server.client() as broker, name_server.client() as client:
        answer = await register(broker, table("T", "U"), is_compressed=is_compressed)
        assert answer.code == ResponseCode.SUCCESS
        assert await addresses(client, "T") == {NAME: {0: ADDRESS}}
        found = await route(client, "U")
        assert found is not None
        [queues] = found.queue_datas
        assert (queues.read_queue_nums, queues.write_queue_nums, queues.perm) == (4, 4, 6)
        assert await route(client, "V") is None


async def test_n01_a_broker_without_a_registration_in_its_time_is_gone(
    name_server: RunningNameServer,
) -> None:
    async with name_server.client() as broker, name_server.client() as client:
        await register(broker, table("T", "U"))
        await register(
            broker,
            table("T", "U"),
            broker_name="broker-b",
            broker_addr=SLAVE,
            heartbeat_timeout_ms=3_000,
        )
        name_server.clock.advance(5_000)
        await until(lambda: len(name_server.server.routes.cluster_info().broker_addr_table) == 1)
        assert await addresses(client, "T") == {NAME: {0: ADDRESS}}
        for _ in range(23):
            name_server.clock.advance(5_000)
            assert await addresses(client, "T") == {NAME: {0: ADDRESS}}
        name_server.clock.advance(5_000)
        await until(lambda: not name_server.server.routes.topics)
        assert await route(client, "T") is None


async def test_n01_a_broker_goes_with_its_connection(name_server: RunningNameServer) -> None:
    async with name_server.client() as client:
        async with name_server.client() as broker:
            await register(broker, table("T", "U"))
            assert await addresses(client, "T") == {NAME: {0: ADDRESS}}
        await until(lambda: not name_server.server.routes.topics)
        assert await route(client, "T") is None


async def test_n01_a_broker_that_registers_by_another_connection_stays(
    name_server: RunningNameServer,
) -> None:
    async with name_server.client() as broker:
        async with name_server.client() as first:
            await register(first, table("T", "U"))
            await register(broker, table("T", "U"))
        await until(lambda: len(name_server.server.server) == 1)
        assert await addresses(broker, "T") == {NAME: {0: ADDRESS}}


async def test_n01_a_slave_learns_its_master_and_outlives_it(
    name_server: RunningNameServer,
) -> None:
    async with name_server.client() as broker:
        await register(broker, table("T", "U"))
        answer = await register(broker, table("T", "U"), broker_id=1, broker_addr=SLAVE)
        form = EXCHANGES[RequestCode.REGISTER_BROKER].response
        found = form.decode(answer.ext_fields)
        assert (found.master_addr, found.ha_server_addr) == (ADDRESS, HA_ADDRESS)
        assert await addresses(broker, "T") == {NAME: {0: ADDRESS, 1: SLAVE}}
        await unregister(broker)
        assert await addresses(broker, "T") == {NAME: {1: SLAVE}}
        await unregister(broker, broker_id=1, broker_addr=SLAVE)
        assert await route(broker, "T") is None


async def test_n01_a_slave_that_becomes_the_master_has_one_place(
    name_server: RunningNameServer,
) -> None:
    async with name_server.client() as broker:
        await register(broker, table("T", "U"), broker_id=1)
        await register(broker, table("T", "U"), broker_id=0)
        assert await addresses(broker, "T") == {NAME: {0: ADDRESS}}


async def test_n01_an_address_with_a_newer_state_keeps_its_place(
    name_server: RunningNameServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with name_server.client() as broker:
        await register(broker, table("T", "U", state=2))
        await register(broker, table("T", "U", state=1), broker_addr=SLAVE)
        assert await addresses(broker, "T") == {NAME: {0: ADDRESS}}
        await register(broker, table("T", "U", state=3), broker_addr=SLAVE)
        assert await addresses(broker, "T") == {NAME: {0: SLAVE}}
    assert f"address {SLAVE} takes the place of {ADDRESS}" in caplog.text


async def test_n01_a_single_topic_of_an_unknown_broker_is_refused(
    name_server: RunningNameServer,
) -> None:
    async with name_server.client() as broker:
        answer = await register(broker, table("T"))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert "register broker failed" in answer.remark
        assert (await register(broker, None)).code == ResponseCode.SUCCESS
        assert (await register(broker, table("T"))).code == ResponseCode.SUCCESS
        assert await addresses(broker, "T") == {NAME: {0: ADDRESS}}


async def test_n01_a_body_with_another_checksum_is_refused(name_server: RunningNameServer) -> None:
    async with name_server.client() as broker:
        answer = await register(broker, table("T", "U"), body_crc32=1)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")
        assert await route(broker, "T") is None


async def test_n01_topics_change_with_their_version(name_server: RunningNameServer) -> None:
    async with name_server.client() as broker:
        await register(broker, table("T", "U"))
        await register(broker, table("T", "U", queues=8))
        for counter, queues in ((1, 4), (2, 8)):
            await register(broker, table("T", "U", counter=counter, queues=queues))
            found = await route(broker, "T")
            assert found is not None
            assert found.queue_datas[0].read_queue_nums == queues
        # A later registration without a topic keeps it.
        await register(broker, table("U", "V", counter=3))
        assert await addresses(broker, "T") == {NAME: {0: ADDRESS}}


async def test_n01_a_broker_asks_whether_its_topics_have_changed(
    name_server: RunningNameServer,
) -> None:
    async with name_server.client() as broker:
        header = BrokerRequest(NAME, ADDRESS, CLUSTER, 0)
        version = DataVersion(1, 1_000, 0)
        for is_changed, asked in ((True, version), (False, version), (True, DataVersion(2, 9, 0))):
            answer = await broker.ask(RequestCode.QUERY_DATA_VERSION, header, encode_body(asked))
            assert answer.ext_fields == {"changed": str(is_changed).lower()}
            if answer.body:
                assert decode_body(DataVersion, answer.body) == version
            await register(broker, table("T", "U"))


def takeovers(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Returns the warnings that name a broker."""
    return [
        each.getMessage()
        for each in caplog.records
        if each.levelname == "WARNING" and f"broker {NAME}, id 0" in each.getMessage()
    ]


async def test_n01_a_registration_beside_the_brokers_own_one_is_logged(
    name_server: RunningNameServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with name_server.client() as broker, name_server.client() as other:
        await register(broker, table("T", "U"))
        await register(broker, table("T", "U"))
        assert not takeovers(caplog)
        await register(other, table("T", "U", counter=9, queues=1), heartbeat_timeout_ms=1)
        [line] = takeovers(caplog)
        own, its = (each.writer.get_extra_info("sockname")[1] for each in (broker, other))
        assert f":{its}: takes the place of its registration by ipv4:127.0.0.1:{own};" in line


async def test_n01_the_end_of_another_connections_broker_is_logged(
    name_server: RunningNameServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with name_server.client() as broker, name_server.client() as other:
        await register(broker, table("T", "U"))
        await unregister(other, broker_addr="10.9.9.9:1")
        assert await addresses(other, "T") == {NAME: {0: ADDRESS}}
        assert not takeovers(caplog)
        await unregister(other)
        assert await route(other, "T") is None
        [line] = takeovers(caplog)
        own = broker.writer.get_extra_info("sockname")[1]
        assert f"ends its registration by ipv4:127.0.0.1:{own};" in line


async def test_n01_a_broker_that_connects_again_takes_nothing_over(
    name_server: RunningNameServer, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        async with name_server.client() as broker:
            await register(broker, table("T", "U"))
        await until(lambda: not name_server.server.routes.topics)
    async with name_server.client() as broker:
        await register(broker, table("T", "U"))
        await unregister(broker)
    assert {"is removed: its connection has ended" in each for each in takeovers(caplog)} == {True}


async def test_n01_a_broker_name_is_in_one_cluster_and_an_address_has_any_names(
    name_server: RunningNameServer,
) -> None:
    routes = name_server.server.routes
    async with name_server.client() as other:
        async with name_server.client() as broker:
            for number in range(3):
                await register(broker, table("T", "U"), cluster_name=f"C{number}")
                await register(broker, table("T", "U"), broker_name=f"b{number}")
            info = routes.cluster_info()
            assert info.cluster_addr_table == {"C2": (NAME,), CLUSTER: ("b0", "b1", "b2")}
            assert set(await addresses(other, "T")) == {NAME, "b0", "b1", "b2"}
        await until(lambda: not routes.topics)
        assert routes.cluster_info().broker_addr_table == {}


async def test_n01_no_registration_lasts_longer_than_an_hour_of_silence(
    name_server: RunningNameServer,
) -> None:
    routes = name_server.server.routes
    async with name_server.client() as broker:
        await register(broker, table("T", "U"), heartbeat_timeout_ms=(1 << 63) - 1)
        name_server.clock.advance(EXPIRY_MS_MAX)
        routes.remove_expired()
        assert routes.cluster_info().broker_addr_table
        name_server.clock.advance(1)
        routes.remove_expired()
        assert not routes.cluster_info().broker_addr_table
