"""A relay of a broker's remoting port that answers some requests itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import replace

from rocketpy_proto.remoting import FrameDecoder, RemotingCommand, encode_frame
from tests.support.broker.running_broker import RunningBroker

# Returns the answer to a request, or None: the broker answers.
Answer = Callable[[RemotingCommand], RemotingCommand | None]
RECEIVED_BYTES_MAX = 64 << 10


@asynccontextmanager
async def relayed(running: RunningBroker, answer: Answer) -> AsyncIterator[RunningBroker]:
    """Yields the broker, with the relay's port as its remoting port."""
    target = running.ready.remoting_port
    calls = set[asyncio.Task[None]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Either side may leave at any time, and a broker that is down refuses the connection.
        with closing(writer), suppress(OSError, asyncio.CancelledError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
            with closing(far_writer):
                back = asyncio.ensure_future(pass_back(far_reader, writer))
                calls.add(back)
                decoder = FrameDecoder()
                while data := await reader.read(RECEIVED_BYTES_MAX):
                    for request in decoder.feed(data):
                        own = answer(request)
                        sink = far_writer if own is None else writer
                        sink.writelines(encode_frame(request if own is None else own))

    async def pass_back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(RECEIVED_BYTES_MAX):
                writer.write(data)

    async def track(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.add(asyncio.ensure_future(serve(reader, writer)))

    server = await asyncio.start_server(track, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield replace(running, ready=replace(running.ready, remoting_port=port))
    finally:
        server.close()
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls)
