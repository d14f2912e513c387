"""A client of the remoting protocol in the event loop of a test, and a name server beside it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker.nameserver.name_server import NameServer, NameServerConfig
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.server.bind_address import ListenAddress
from rocketpy_broker.server.remoting.server import RemotingServer
from rocketpy_proto.model.codes import RequestCode
from rocketpy_proto.remoting import (
    EXCHANGES,
    FrameDecoder,
    Header,
    RemotingCommand,
    encode_frame,
)
from tests.support.broker.running_broker import RunningBroker, StartBroker, serving


@dataclass
class RemotingClient:
    """One connection; requests go one at a time.

    `requests` has the server's requests that came before an answer.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    decoder: FrameDecoder = field(default_factory=FrameDecoder)
    opaque: int = 0
    requests: deque[RemotingCommand] = field(default_factory=deque)
    arrived: deque[RemotingCommand] = field(default_factory=deque)

    async def ask(
        self, code: int, header: Header | None = None, body: bytes = b"", **more: Any
    ) -> RemotingCommand:
        """Returns the answer to a request; `more` has fields of its command."""
        self.opaque += 1
        if header is not None:
            more["ext_fields"] = EXCHANGES[RequestCode(code)].request.encode(header)
        self.tell(RemotingCommand(code, self.opaque, body=body, **more))
        while not (answer := await self.next()).is_response:
            self.requests.append(answer)
        assert answer.opaque == self.opaque
        return answer

    async def request(self) -> RemotingCommand:
        """Returns the next request of the server."""
        return self.requests.popleft() if self.requests else await self.next()

    def tell(self, command: RemotingCommand) -> None:
        """Sends a command without waiting for an answer."""
        self.writer.writelines(encode_frame(command))

    async def next(self) -> RemotingCommand:
        """Returns the next command of the server. Raises EOFError after its end."""
        while not self.arrived:
            data = await self.reader.read(1 << 16)
            if not data:
                raise EOFError
            self.arrived.extend(self.decoder.feed(data))
        return self.arrived.popleft()

    async def is_closed(self) -> bool:
        """Waits for a byte or the end; True for the end."""
        try:
            return not await self.reader.read(1)
        except ConnectionError:
            return True


@asynccontextmanager
async def connected(port: int, host: str = "127.0.0.1") -> AsyncIterator[RemotingClient]:
    """Yields a connection of its own to a server of this machine, from its address `host`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
    try:
        yield RemotingClient(reader, writer)
    finally:
        writer.close()


@dataclass
class RunningNameServer:
    """A name server, its clock, and its port."""

    server: NameServer
    clock: ManualClock
    port: int

    def client(self) -> AbstractAsyncContextManager[RemotingClient]:
        """Returns a connection of its own."""
        return connected(self.port)


StartNameServer = Callable[..., AbstractAsyncContextManager[RunningNameServer]]


@pytest.fixture
def start_name_server(tmp_path: Path) -> StartNameServer:
    """Returns a function that starts name servers with one folder."""

    @asynccontextmanager
    async def start(port: int = 0, **settings: Any) -> AsyncIterator[RunningNameServer]:
        clock = ManualClock()
        address = ListenAddress("127.0.0.1", port, "--port")
        server = NameServer(NameServerConfig(address, data=tmp_path, **settings), clock)
        async with serving(server.serve_until) as own_port:
            yield RunningNameServer(server, clock, own_port)

    return start


@dataclass
class RemotingBroker:
    """A running broker with remoting, and a connection of its own."""

    running: RunningBroker
    client: RemotingClient

    @classmethod
    @asynccontextmanager
    async def of(cls, running: RunningBroker) -> AsyncIterator[RemotingBroker]:
        """Yields a running broker and a connection to it."""
        assert running.ready.remoting_port is not None
        async with connected(running.ready.remoting_port) as client:
            yield cls(running, client)

    @property
    def connection_count(self) -> int:
        """The number of connections that the broker has."""
        return len(self.server)

    @property
    def server(self) -> RemotingServer:
        """The broker's server."""
        server = self.running.broker.remoting.server
        assert server is not None
        return server

    def another(self) -> AbstractAsyncContextManager[RemotingClient]:
        """Returns another connection."""
        port = self.running.ready.remoting_port
        assert port is not None
        return connected(port)

    async def sampled(self) -> None:
        """Moves the clock to the next sample of the statistics, and takes it."""
        self.running.clock.advance(10_000)
        await self.running.broker.services.statistics.sample()


@pytest.fixture
async def remoting(start_broker: StartBroker) -> AsyncIterator[RemotingBroker]:
    """Yields a running broker with remoting."""
    async with start_broker(remoting_port=0) as running, RemotingBroker.of(running) as remoting:
        yield remoting


@pytest.fixture
async def name_server(start_name_server: StartNameServer) -> AsyncIterator[RunningNameServer]:
    """Yields a running name server."""
    async with start_name_server() as running:
        yield running
