"""Handshakes that never end, that come in pieces, and many plaintext connections beside."""

from __future__ import annotations

import asyncio
import os
import ssl
from contextlib import AsyncExitStack

import pytest

from rocketpy_broker.runtime.process_tuning import raise_descriptor_limit
from rocketpy_broker.server.http.connections import CONNECTIONS_OF_HOST, REQUEST_SECONDS
from rocketpy_broker.server.remoting.connection_limit import CONNECTIONS_MAX
from rocketpy_broker.server.remoting.server import IDLE_MS_MAX
from rocketpy_proto.remoting import RemotingCommand, encode_frame
from tests.broker.security.tls.callers import (
    UNKNOWN_CODE,
    ask_grpc,
    ask_http,
    ask_remoting,
    is_served,
    opened,
)
from tests.support.broker.clients.remoting_client import RemotingClient
from tests.support.broker.running_broker import StartBroker, until
from tests.support.broker.tls_files import TlsFiles

STUCK = 64
# The start of a TLS record with a client's hello, which never comes.
BEGIN = bytes.fromhex("1603010200010001fc0303")


async def stuck(stack: AsyncExitStack, port: int | None, count: int) -> list[RemotingClient]:
    found = []
    for _ in range(count):
        reader, writer = await stack.enter_async_context(opened(port or 0, None))
        writer.write(BEGIN)
        found.append(RemotingClient(reader, writer))
    return found


async def test_n14_handshakes_without_end_hold_no_other_client(
    start_broker: StartBroker, tls_files: TlsFiles
) -> None:
    raise_descriptor_limit()
    plain_count = CONNECTIONS_MAX - STUCK - 2
    tls = tls_files.authority.client()
    async with (
        AsyncExitStack() as stack,
        start_broker(tls=tls_files.tls(), remoting_port=0) as running,
    ):
        port, server = running.ready.remoting_port, running.broker.remoting.server
        assert server is not None
        clients = await stuck(stack, port, STUCK)
        plain = [
            RemotingClient(*await stack.enter_async_context(opened(port or 0, None)))
            for _ in range(plain_count)
        ]
        for client in plain:
            await client.ask(UNKNOWN_CODE)
        assert await is_served(ask_remoting, port, tls)
        await stuck(stack, running.ready.tls_port, STUCK)
        assert await is_served(ask_grpc, running.ready.tls_port, tls)
        assert await is_served(ask_grpc, running.ready.port, None)
        # They end as silent connections do.
        await until(lambda: len(server) == STUCK + plain_count)
        running.clock.advance(IDLE_MS_MAX)
        for client in clients:
            assert await client.is_closed()


async def test_n14_handshakes_at_http_end_as_requests_that_do_not_come(
    start_broker: StartBroker, tls_files: TlsFiles
) -> None:
    async with AsyncExitStack() as stack, start_broker(tls=tls_files.tls(), http_port=0) as running:
        port, http = running.ready.http_port, running.broker.http
        assert http is not None
        clients = await stuck(stack, port, CONNECTIONS_OF_HOST - 1)
        assert await is_served(ask_http, port, tls_files.authority.client())
        running.clock.advance(REQUEST_SECONDS * 1_000)
        for client in clients:
            assert await client.is_closed()
        await until(lambda: not http.connection_count)


@pytest.mark.parametrize("sent", [b"", BEGIN[:1]])
async def test_a_client_that_leaves_before_its_handshake_ends_is_forgotten(
    start_broker: StartBroker, tls_files: TlsFiles, sent: bytes
) -> None:
    async with start_broker(tls=tls_files.tls(), remoting_port=0, http_port=0) as running:
        server, http = running.broker.remoting.server, running.broker.http
        assert server is not None
        assert http is not None
        for port in (running.ready.remoting_port, running.ready.http_port):
            async with opened(port or 0, None) as (_, writer):
                writer.write(sent)
                await until(lambda: len(server) + http.connection_count == 1)
            await until(lambda: len(server) + http.connection_count == 0)


async def test_a_hello_is_read_in_pieces(start_broker: StartBroker, tls_files: TlsFiles) -> None:
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = (
        tls_files.authority.client().context().wrap_bio(received, sent, server_hostname="localhost")
    )
    async with (
        start_broker(tls=tls_files.tls(), remoting_port=0) as running,
        opened(running.ready.remoting_port or 0, None) as (reader, writer),
    ):
        while client.version() is None:
            try:
                client.do_handshake()
            except ssl.SSLWantReadError:
                await in_pieces(writer, sent.read())
                received.write(await reader.read(1 << 16))
        client.write(b"".join(encode_frame(RemotingCommand(UNKNOWN_CODE, 1))))
        await in_pieces(writer, sent.read())
        assert await reader.read(1)


async def test_a_plaintext_frame_is_read_in_pieces(
    start_broker: StartBroker, tls_files: TlsFiles
) -> None:
    async with (
        start_broker(tls=tls_files.tls(), remoting_port=0) as running,
        opened(running.ready.remoting_port or 0, None) as (reader, writer),
    ):
        await in_pieces(writer, b"".join(encode_frame(RemotingCommand(UNKNOWN_CODE, 1))))
        assert (await RemotingClient(reader, writer).next()).opaque == 1


async def in_pieces(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Sends one byte in each pass of the loop."""
    for number in range(len(data)):
        writer.write(data[number : number + 1])
        await asyncio.sleep(0)


async def test_bytes_after_the_handshake_that_are_no_tls_end_the_connection(
    start_broker: StartBroker, tls_files: TlsFiles
) -> None:
    async with start_broker(tls=tls_files.tls(), remoting_port=0) as running:
        server = running.broker.remoting.server
        assert server is not None
        async with opened(running.ready.remoting_port or 0, tls_files.authority.client()) as (
            reader,
            writer,
        ):
            await RemotingClient(reader, writer).ask(UNKNOWN_CODE)
            raw = writer.get_extra_info("socket")

            os.write(raw.fileno(), b"no record of TLS" * 8)
            with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
                await reader.read(1)
        await until(lambda: not len(server))
