"""Clients of the HTTP server that read nothing, send without end, or disconnect."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import pytest

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.server.bind_address import ListenAddress
from rocketpy_broker.server.http.connections import (
    AHEAD_BYTES_MAX,
    CONNECTIONS_OF_HOST,
    IDLE_SECONDS,
    MAKING_SECONDS,
    REPLY_SECONDS,
    REQUEST_SECONDS,
)
from rocketpy_broker.server.http.server import HttpServer
from tests.support.broker.running_broker import until

GET = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE = b"x" * (64 << 20)


Text = Callable[[], Awaitable[Sequence[bytes]]]


@dataclass
class Serving:
    """An HTTP server and its clock."""

    http: HttpServer
    clock: ManualClock
    port: int


async def large_page() -> Sequence[bytes]:
    return [LARGE]


async def small_page() -> Sequence[bytes]:
    return [b"small"]


@asynccontextmanager
async def serving(text: Text = small_page) -> AsyncIterator[Serving]:
    """Yields a server of this page of metrics; stops it after the block."""
    clock = ManualClock()
    address = ListenAddress("127.0.0.1", 0, "--http-port")
    server = HttpServer(address, text, lambda: "", clock, ())
    async with TaskScope() as scope:
        port = await server.start(scope)
        try:
            yield Serving(server, clock, port)
        finally:
            await server.stop()


async def status_of(running: Serving, path: str) -> tuple[int, int]:
    """Returns the status of an answer, and the length of its text."""
    url = f"http://127.0.0.1:{running.port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, len(await response.read())


async def connected(
    running: Serving, receive_buffer_bytes: int = 4_096
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connects a client that receives little ahead of its reads."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    client.setblocking(False)
    address = ("127.0.0.1", running.port)
    await asyncio.get_running_loop().sock_connect(client, address)
    return await asyncio.open_connection(sock=client, limit=1)


async def asking(running: Serving) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connects such a client and requests the metrics."""
    reader, writer = await connected(running)
    writer.write(GET % b"/metrics")
    return reader, writer


async def is_dropped_after(running: Serving, seconds: int) -> None:
    """Asserts that the one connection is dropped after this time and not before."""
    await pass_seconds(running, seconds - 1)
    assert running.http.connection_count == 1
    await pass_seconds(running, 2)
    await until(lambda: running.http.connection_count == 0)


async def is_cut(reader: asyncio.StreamReader) -> None:
    """Reads on until the connection is closed."""
    try:
        while await reader.read(65_536):
            pass
    except ConnectionError:
        pass


async def pass_seconds(running: Serving, seconds: int) -> None:
    for _ in range(seconds):
        running.clock.advance(1_000)
        for _ in range(5):
            await asyncio.sleep(0)


async def test_a_page_that_nobody_reads_is_dropped_in_time_and_takes_little_memory() -> None:
    async with serving(large_page) as running:
        reader, writer = await asking(running)
        connections = running.http.connections
        await until(lambda: any(each.is_busy for each in connections))
        await until(lambda: any(each.unread_bytes for each in connections))
        assert sum(each.unread_bytes for each in connections) < 1 << 20
        await is_dropped_after(running, REPLY_SECONDS)
        writer.transport.abort()
        await is_cut(reader)


async def test_a_page_that_is_read_slowly_comes_whole() -> None:
    async with serving(large_page) as running:
        assert await status_of(running, "/metrics") == (200, len(LARGE))


@pytest.mark.parametrize("beginning", [b"", b"GET /healthz HTTP/1.1\r\nHost: "])
async def test_a_request_that_never_is_whole_ends_its_connection(beginning: bytes) -> None:
    async with serving() as running:
        reader, writer = await connected(running)
        await until(lambda: running.http.connection_count == 1)
        for _ in range(REQUEST_SECONDS - 1):
            writer.write(beginning)
            beginning = beginning and b"x"
            await pass_seconds(running, 1)
        assert running.http.connection_count == 1
        await pass_seconds(running, 2)
        await until(lambda: running.http.connection_count == 0)
        await is_cut(reader)
        writer.transport.abort()


async def test_a_connection_is_kept_from_scrape_to_scrape_and_not_for_ever() -> None:
    async with serving() as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        for _ in range(3):
            writer.write(GET % b"/healthz")
            assert b" 200 " in await reader.readline()
            await reader.readuntil(b"}\n")
            await pass_seconds(running, 60)
        await pass_seconds(running, IDLE_SECONDS - 59)
        assert await reader.read() == b""
        writer.close()


POST = b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999\r\n\r\n"


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n", b"X-Header: x\r\n"),
        (GET % b"/metrics", GET % b"/healthz"),
        (POST, b"x" * 4_096),
    ],
    ids=["headers", "pipelined", "body"],
)
async def test_who_sends_without_end_is_cut(begin: bytes, more: bytes) -> None:
    async with serving(large_page) as running:
        reader, writer = await connected(running)
        await until(lambda: running.http.connection_count == 1)
        writer.write(begin + more * (2 * AHEAD_BYTES_MAX // len(more)))
        await until(lambda: running.http.connection_count == 0)
        await is_cut(reader)
        writer.transport.abort()
        assert (await status_of(running, "/healthz"))[0] == 200


async def test_requests_whose_clients_have_gone_are_as_few_as_connections() -> None:
    may_end, asked = asyncio.Event(), 0

    async def text() -> Sequence[bytes]:
        nonlocal asked
        asked += 1
        await may_end.wait()
        return []

    async with serving(text) as running:
        for number in range(CONNECTIONS_OF_HOST + 10):
            reader, writer = await asking(running)
            while asked < min(number + 1, CONNECTIONS_OF_HOST):  # noqa: ASYNC110 (as `until`)
                await asyncio.sleep(0.001)
            writer.transport.abort()
            await is_cut(reader)
        assert asked == CONNECTIONS_OF_HOST
        may_end.set()
        await until(lambda: running.http.connection_count == 0)
        assert (await status_of(running, "/healthz"))[0] == 200


async def test_what_is_no_http_is_told_of_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as running:
        for _ in range(20):
            reader, writer = await connected(running)
            writer.write(b"GET / HTTP/1.1\r\nHost x\nforged line\r\n\r\n" + GET % b"/")
            assert b" 400 " in await reader.read()
            writer.close()
        assert len(caplog.records) == 1
        assert len(caplog.text.splitlines()) == 1
        running.clock.advance(60_001)
        reader, writer = await connected(running)
        writer.write(b"GET / HTTP/1.1\r\nHost x\r\n\r\n")
        await reader.read()
        writer.close()
        assert len(caplog.records) == 2


async def test_a_client_that_leaves_in_the_middle_of_a_page_is_no_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(large_page) as running:
        reader, writer = await asking(running)
        await reader.read(1_000)
        writer.transport.abort()
        await is_cut(reader)
        await until(lambda: running.http.connection_count == 0)
    assert not caplog.records


async def test_a_broker_stops_with_a_page_under_way_and_leaves_no_connection() -> None:
    async with serving(large_page) as running:
        reader, writer = await asking(running)
        connections = running.http.connections
        await until(lambda: any(each.unread_bytes for each in connections))
    await until(lambda: not len(connections))
    await is_cut(reader)
    writer.transport.abort()


async def test_a_page_that_takes_long_to_make_may_be_read_as_long_as_another() -> None:
    is_made = asyncio.Event()

    async def text() -> Sequence[bytes]:
        await is_made.wait()
        return [LARGE]

    async with serving(text) as running:
        reader, writer = await asking(running)
        await until(lambda: any(each.is_busy for each in running.http.connections))
        await pass_seconds(running, MAKING_SECONDS - 1)
        is_made.set()
        assert b" 200 " in await reader.read(100)
        await is_dropped_after(running, REPLY_SECONDS)
        writer.transport.abort()
        await is_cut(reader)
