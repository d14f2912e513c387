"""Clients that break the protocol, stall or flood are refused, and other clients are served."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from rocketpy_broker.nameserver.name_server import REQUESTS_OF_CONNECTION
from rocketpy_broker.runtime.process_tuning import raise_descriptor_limit
from rocketpy_broker.server.remoting import buffer_limiter
from rocketpy_broker.server.remoting import connection as connections
from rocketpy_broker.server.remoting import server as servers
from rocketpy_broker.server.remoting.connection import REQUESTS_PER_TURN
from rocketpy_broker.server.remoting.connection_limit import CONNECTIONS_MAX, CONNECTIONS_OF_HOST
from rocketpy_proto.model.codes import RequestCode, ResponseCode
from rocketpy_proto.remoting import EXCHANGES, ONE_WAY_FLAG, RemotingCommand, encode_frame
from rocketpy_proto.remoting.headers.topics import GetRouteInfoRequest
from tests.broker.nameserver.registrations import (
    NAME,
    addresses,
    register,
    registration,
    route,
    table,
)
from tests.support.broker.clients.remoting_client import (
    RemotingClient,
    RunningNameServer,
    connected,
)
from tests.support.broker.running_broker import until


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 16_777_213),
        struct.pack(">iI", 4, 1_000),
        struct.pack(">iI", 8, 4) + b"{}{}",
        struct.pack(">iI", 8, 2 << 24 | 4) + b"abcd",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["negative", "too long", "header beyond", "no JSON", "unknown form", "http"],
)
async def test_n14_bytes_that_are_no_frame_close_their_connection_alone(
    name_server: RunningNameServer, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    async with name_server.client() as other, name_server.client() as hostile:
        await register(other, table("T", "U"))
        hostile.writer.write(data)
        assert await hostile.is_closed()
        assert await route(other, "T") is not None
    assert len([line for line in caplog.messages if "is closed" in line]) == 1


@pytest.mark.parametrize("cut", [1, 3, 4, 20])
async def test_n14_requests_in_pieces_are_answered(
    name_server: RunningNameServer, cut: int
) -> None:
    async with name_server.client() as client:
        frame = b"".join(encode_frame(RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO, 7)))
        for begin in range(0, len(frame), cut):
            client.writer.write(frame[begin : begin + cut])
            await asyncio.sleep(0)
        assert (await client.next()).opaque == 7


async def test_n14_an_unknown_code_is_answered_and_a_one_way_request_is_not(
    name_server: RunningNameServer,
) -> None:
    async with name_server.client() as client:
        answer = await client.ask(99_999)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark == "request type 99999 not supported"
        one_way = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO, 50, flag=2)
        client.writer.writelines(encode_frame(one_way))
        assert (await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).code == 0


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"topicConfigSerializeWrapper":7}', b"\xff"])
async def test_n14_a_malformed_registration_is_refused_by_name(
    name_server: RunningNameServer, body: bytes
) -> None:
    async with name_server.client() as client:
        header: Any = {"brokerName": "b", "brokerAddr": "a", "clusterName": "c"}
        answer = await client.ask(RequestCode.REGISTER_BROKER, None, body, ext_fields=header)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        whole = {**header, "brokerId": "0", "haServerAddr": "h", "compressed": "false"}
        again = await client.ask(RequestCode.REGISTER_BROKER, None, body, ext_fields=whole)
        assert again.code == ResponseCode.SYSTEM_ERROR
        assert again.remark is not None
        assert await route(client, "T") is None


async def test_n14_a_client_that_reads_no_answer_is_read_no_more(
    name_server: RunningNameServer,
) -> None:
    """Sends more requests than the server may answer into its memory."""
    async with name_server.client() as other, name_server.client() as hostile:
        names = [f"topic-{number}" for number in range(2_000)]
        await register(other, table(*names))
        command = RemotingCommand(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, 1)
        frame = b"".join(encode_frame(command))
        hostile.writer.write(frame * 20_000)
        server = name_server.server.server
        await until(lambda: any(not each.is_drained for each in server._connections))
        [mine] = [each for each in server._connections if not each.is_drained]
        answers_bytes = REQUESTS_OF_CONNECTION * 64 * 1_024
        assert mine.unread_bytes <= connections.UNREAD_BYTES_MAX + answers_bytes
        assert await route(other, names[0]) is not None


async def test_n14_connections_beyond_the_limit_are_closed_and_other_addresses_get_some(
    name_server: RunningNameServer,
) -> None:
    """Opens as many connections as one address may have, at the real limit."""
    raise_descriptor_limit()
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(name_server.client()) for _ in range(CONNECTIONS_MAX)
        ]
        await until(lambda: len(name_server.server.server) == CONNECTIONS_MAX)
        async with name_server.client() as further:
            assert await further.is_closed()
        others = [
            await stack.enter_async_context(connected(name_server.port, "127.0.0.2"))
            for _ in range(CONNECTIONS_OF_HOST)
        ]
        async with connected(name_server.port, "127.0.0.2") as further:
            assert await further.is_closed()
        for client in (*others, clients[0], clients[-1]):
            assert (await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).code == 0
        clients[1].writer.close()
        others[1].writer.close()
        count = CONNECTIONS_MAX + CONNECTIONS_OF_HOST - 2
        await until(lambda: len(name_server.server.server) == count)
        async with connected(name_server.port, "127.0.0.2") as again:
            assert (await again.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).code == 0
    await until(lambda: not len(name_server.server.server))


@asynccontextmanager
async def stalled_frames(
    name_server: RunningNameServer, count: int
) -> AsyncIterator[list[RemotingClient]]:
    """Yields clients that have each begun a frame of 16 MiB, and send no more of it."""
    async with AsyncExitStack() as closing:
        clients = [await closing.enter_async_context(name_server.client()) for _ in range(count)]
        for each in clients:
            each.writer.write(struct.pack(">i", 16_000_000) + bytes(200_000))
        await until(lambda: len(name_server.server.server._large) == count)
        yield clients


async def test_n14_large_frames_wait_for_a_place_and_stalled_ones_lose_theirs(
    name_server: RunningNameServer,
) -> None:
    """Holds all places with unfinished frames; small requests need none."""
    server = name_server.server.server
    names = [f"topic-{number}" for number in range(3_000)]
    async with (
        stalled_frames(name_server, servers.LARGE_FRAMES_MAX) as stalled,
        name_server.client() as broker,
        name_server.client() as client,
    ):
        registering = asyncio.ensure_future(register(broker, table(*names)))
        await until(lambda: len(server._queued) == 1)
        assert (await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).code == 0
        name_server.clock.advance(servers.CROWDED_MS_MAX)
        assert (await registering).code == ResponseCode.SUCCESS
        assert await stalled[0].is_closed()
        assert set(await addresses(client, names[-1])) == {NAME}
        await until(lambda: not server._large)


async def test_n14_an_idle_connection_is_closed_in_two_minutes(
    name_server: RunningNameServer,
) -> None:
    async with name_server.client() as idle, name_server.client() as used:
        await idle.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        for _ in range(24):
            name_server.clock.advance(5_000)
            await used.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        assert await idle.is_closed()
        assert (await used.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).code == 0


async def test_n14_a_route_of_a_long_name_is_refused_in_few_bytes(
    name_server: RunningNameServer,
) -> None:
    async with name_server.client() as client:
        header = GetRouteInfoRequest("x" * 100_000)
        answer = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert answer.remark is not None
        assert len(answer.remark) < 1_000


async def test_n14_a_client_that_closes_in_the_middle_leaves_nothing(
    name_server: RunningNameServer,
) -> None:
    server = name_server.server.server
    async with name_server.client() as client:
        client.writer.write(struct.pack(">i", 16_000_000) + bytes(500_000))
        await until(lambda: len(server._large) == 1)
    await until(lambda: not len(server))
    assert not server._large
    assert not server._queued


async def test_n14_a_list_of_all_topics_is_refused_while_too_much_is_unread(
    name_server: RunningNameServer,
) -> None:
    server = name_server.server.server
    async with name_server.client() as client:
        names = [f"topic-{number:0100d}" for number in range(2_000)]
        await register(client, table(*names))
        [connection] = server._connections
        server._buffer_limiter.try_reserve(connection, buffer_limiter.UNREAD_BYTES_MAX + 1)
        answer = await client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert answer.remark is not None
        assert "ask again later" in answer.remark
        assert await route(client, names[0]) is not None
        name_server.clock.advance(buffer_limiter.SUM_MS)
        answer = await client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        assert answer.code == ResponseCode.SUCCESS


async def test_n14_a_broker_that_goes_while_its_topics_are_stored_leaves_none(
    name_server: RunningNameServer,
) -> None:
    routes = name_server.server.routes
    names = [f"topic-{number}" for number in range(5_000)]
    async with name_server.client() as other:
        async with name_server.client() as broker:
            registering = asyncio.ensure_future(register(broker, table(*names)))
            await until(lambda: bool(routes.topics))
        registering.cancel()
        await until(lambda: not routes.topics)
        assert await route(other, names[0]) is None


async def test_n14_a_large_request_keeps_its_place_until_it_is_handled(
    name_server: RunningNameServer,
) -> None:
    """Sends a large request after requests whose answers the client never reads."""
    server, most = name_server.server.server, servers.LARGE_FRAMES_MAX
    names = [f"topic-{number}" for number in range(3_000)]
    lists = RemotingCommand(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, 1)
    large = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO, 2, body=bytes(1 << 20))
    async with name_server.client() as other, name_server.client() as hostile:
        await register(other, table(*names))
        async with stalled_frames(name_server, most - 1):
            frames = b"".join(encode_frame(lists)) * 900 + b"".join(encode_frame(large))
            hostile.writer.write(frames)
            await until(lambda: len(server._large) == most)
            await until(lambda: any(not each.is_drained for each in server._connections))
            assert len(server._large) == most
            again = asyncio.ensure_future(register(other, table(*names, counter=2)))
            await until(lambda: len(server._queued) == 1)
            name_server.clock.advance(servers.CROWDED_MS_MAX)
            assert (await again).code == ResponseCode.SUCCESS
            assert len(server) == 1


async def test_n14_one_way_registrations_of_a_closed_connection_leave_nothing(
    name_server: RunningNameServer,
) -> None:
    """Sends more registrations than a turn takes, and closes before they are handled."""
    routes, server = name_server.server.routes, name_server.server.server
    form = EXCHANGES[RequestCode.REGISTER_BROKER].request
    async with name_server.client() as client:
        for number in range(10 * REQUESTS_PER_TURN):
            fields = form.encode(registration(broker_name=f"b{number}"))
            client.tell(
                RemotingCommand(
                    RequestCode.REGISTER_BROKER, number, flag=ONE_WAY_FLAG, ext_fields=fields
                )
            )
    await until(lambda: not len(server))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not routes.cluster_info().broker_addr_table
    async with name_server.client() as client:
        assert (await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).code == 0
