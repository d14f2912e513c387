"""One request of each protocol to a broker, in plaintext or in TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import grpc

from rocketpy_broker.broker import Ready
from rocketpy_proto.rocketpy.v1 import admin_pb2, admin_pb2_grpc
from rocketpy_proto.tls import TlsConfig
from rocketpy_proto.tls_channel import credentials_of
from tests.support.broker.clients.remoting_client import RemotingClient

# A code that no processor serves: each server answers it.
UNKNOWN_CODE = 29_999
ANSWER_SECONDS = 20.0


@asynccontextmanager
async def opened(
    port: int, tls: TlsConfig | None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yields a connection to a port. Raises OSError."""
    context = None if tls is None else tls.context()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def ask_remoting(port: int, tls: TlsConfig | None) -> None:
    """Raises OSError, EOFError unless a remoting server answers."""
    async with opened(port, tls) as (reader, writer):
        await RemotingClient(reader, writer).ask(UNKNOWN_CODE)


async def ask_http(port: int, tls: TlsConfig | None) -> None:
    """Raises OSError, EOFError unless the HTTP server answers."""
    async with opened(port, tls) as (reader, writer):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: broker\r\n\r\n")
        if not (await reader.readline()).startswith(b"HTTP/1.1 200"):
            raise EOFError


async def ask_grpc(port: int, tls: TlsConfig | None) -> None:
    """Raises EOFError unless the gRPC server answers."""
    target, options = f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)]
    channel = (
        grpc.aio.insecure_channel(target, options=options)
        if tls is None
        else grpc.aio.secure_channel(target, credentials_of(tls), options=options)
    )
    async with channel:
        stub = admin_pb2_grpc.AdminStub(channel)
        request = admin_pb2.GetBrokerInfoRequest()
        try:
            await stub.GetBrokerInfo(request, timeout=ANSWER_SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            raise EOFError from error


Ask = Callable[[int, TlsConfig | None], Awaitable[None]]


async def is_served(ask: Ask, port: int | None, tls: TlsConfig | None) -> bool:
    """True if a request is answered."""
    assert port is not None
    try:
        await asyncio.wait_for(ask(port, tls), ANSWER_SECONDS)
    except (ssl.SSLError, ConnectionError, EOFError):
        return False
    return True


def tls_port(ready: Ready) -> int:
    """Returns the gRPC port that serves TLS."""
    return ready.port if ready.tls_port is None else ready.tls_port
