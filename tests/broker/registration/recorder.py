"""A name server of the test's own: it records requests, and answers them as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from rocketpy_proto.model.codes import RequestCode
from rocketpy_proto.remoting import (
    EXCHANGES,
    FrameDecoder,
    RemotingCommand,
    decode_body,
    encode_frame,
)
from rocketpy_proto.remoting.bodies.configs import TopicConfigTable
from rocketpy_proto.remoting.bodies.registration import RegisterBrokerBody, body_crc32
from tests.support.broker.running_broker import until

PASSES = 50


def success(command: RemotingCommand) -> bytes:
    """Returns a frame that accepts the request; versions are always the newest."""
    is_query = command.code == RequestCode.QUERY_DATA_VERSION
    fields = {"changed": "false"} if is_query else {}
    return b"".join(encode_frame(command.answer(0, ext_fields=fields)))


def silence(_command: RemotingCommand) -> bytes:
    """Answers nothing."""
    return b""


@dataclass
class Recorder:
    """A server whose `answer` returns the bytes that follow a request."""

    port: int = 0
    answer: Callable[[RemotingCommand], bytes] = success
    requests: list[RemotingCommand] = field(default_factory=list)
    connection_count: int = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def codes(self) -> list[str]:
        """The names of the requests so far."""
        return [RequestCode(each.code).name for each in self.requests]

    async def asked(self, count: int) -> None:
        """Waits until `count` requests have come, and the broker has read their answers."""
        await until(lambda: len(self.requests) >= count)
        # On loopback an answer can be read in the next pass of the loop.
        for _ in range(PASSES):
            await asyncio.sleep(0)

    def header(self, number: int) -> Any:
        """Returns the header of a request as a value."""
        request = self.requests[number]
        return EXCHANGES[RequestCode(request.code)].request.decode(request.ext_fields)

    def topics(self, number: int) -> TopicConfigTable:
        """Returns the topics of a registration."""
        body = bytes(self.requests[number].body)
        assert self.header(number).body_crc32 == body_crc32(body)
        return decode_body(RegisterBrokerBody, body).topics

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Records the requests of one connection until its end."""
        self.connection_count += 1
        decoder = FrameDecoder()
        try:
            while data := await reader.read(1 << 16):
                for command in decoder.feed(data):
                    self.requests.append(command)
                    writer.write(self.answer(command))
        except ConnectionError:
            pass
        finally:
            writer.close()


@pytest.fixture
async def record_name_server() -> AsyncIterator[Recorder]:
    """Yields a recorder on a free port."""
    recorder = Recorder()
    server = await asyncio.start_server(recorder.serve, "127.0.0.1", 0)
    recorder.port = server.sockets[0].getsockname()[1]
    try:
        yield recorder
    finally:
        server.close()
