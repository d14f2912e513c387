"""Name servers that are gone, slow or hostile hold up neither the broker nor its callers."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from rocketpy_broker.embedded.process import ReservedPort
from rocketpy_proto.remoting import RemotingCommand, encode_frame
from tests.broker.nameserver.registrations import addresses
from tests.broker.registration.recorder import Recorder, silence, success
from tests.support.broker.clients.remoting_client import RunningNameServer, StartNameServer
from tests.support.broker.running_broker import RunningBroker, StartBroker, until

LOGGER = "rocketpy_broker.services.registration.name_server"
REGISTER, UNREGISTER = "REGISTER_BROKER", "UNREGISTER_BROKER"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Returns the lines that an operator sees about registrations."""
    records = [each for each in caplog.records if each.name == LOGGER]
    return [each.getMessage() for each in records if each.levelname == "WARNING"]


async def failed(caplog: pytest.LogCaptureFixture) -> str:
    """Waits for the line about a failure and returns it."""
    await until(lambda: bool(told(caplog)))
    [line] = told(caplog)
    assert line.startswith("the broker is not registered at name server ")
    return line


async def passes() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


@pytest.fixture
def port() -> Iterator[int]:
    """Yields a port that no other program is given; a name server may listen there."""
    with closing(ReservedPort()) as reserved:
        yield reserved.number


async def test_a_name_server_that_starts_later_gets_the_broker(
    start_broker: StartBroker,
    start_name_server: StartNameServer,
    caplog: pytest.LogCaptureFixture,
    port: int,
) -> None:
    config = {"remoting_port": 0, "name_servers": (f"127.0.0.1:{port}",)}
    async with start_broker(**config) as running:
        assert "Connection refused" in await failed(caplog)
        assert await running.create_topic("T") == 0
        for _ in range(2):
            async with start_name_server(port) as server:
                await registered_again(running, server, "T")
            # Its end is another failure.
            await until(lambda: "is not registered" in told(caplog)[-1])
        states = ["is not registered" in line for line in told(caplog)]
        assert states == [True, False, True, False, True]


async def registered_again(running: RunningBroker, server: RunningNameServer, topic: str) -> None:
    """Moves the broker's clock until the topic is routed."""
    async with server.client() as client:
        while not await addresses(client, topic):
            running.clock.advance(1_000)
            await passes()


async def test_a_failure_is_repeated_with_growing_pauses_and_one_line(
    start_broker: StartBroker, record_name_server: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = record_name_server
    recorder.answer = lambda command: b"".join(
        encode_frame(command.answer(1, remark="register broker failed\n2026 WARNING forged"))
    )
    async with start_broker(remoting_port=0, name_servers=(recorder.address,)) as running:
        line = await failed(caplog)
        assert "it refuses REGISTER_BROKER with code 1: 'register broker failed\\n2026" in line
        for count, pause_ms in enumerate((1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000), 2):
            await passes()
            running.clock.advance(pause_ms - 1)
            await passes()
            assert recorder.connection_count == count - 1
            running.clock.advance(1)
            await recorder.asked(count)
        assert len(told(caplog)) == 1
        recorder.answer = success
        running.clock.advance(30_000)
        await until(lambda: len(told(caplog)) == 2)
        assert "is registered at name server" in told(caplog)[1]
    assert recorder.codes[-1] == UNREGISTER


def huge(_command: RemotingCommand) -> bytes:
    return struct.pack(">i", 5 << 20) + bytes(1 << 20)


def garbage(_command: RemotingCommand) -> bytes:
    return b"HTTP/1.1 400 Bad Request\r\n\r\n"


def broken_json(_command: RemotingCommand) -> bytes:
    return struct.pack(">iI", 10, 6) + b"{[\x00}}}"


def strange_version(command: RemotingCommand) -> bytes:
    if command.code == 322:
        return b"".join(encode_frame(command.answer(0, ext_fields={"changed": "perhaps"})))
    return success(command)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (huge, "accepted: 8 to 4194304"),
        (garbage, "frame"),
        (broken_json, "header"),
        (strange_version, "changed"),
    ],
)
async def test_n14_a_hostile_answer_is_a_failure_with_a_reason(
    start_broker: StartBroker,
    record_name_server: Recorder,
    caplog: pytest.LogCaptureFixture,
    answer: Callable[[RemotingCommand], bytes],
    reason: str,
) -> None:
    recorder = record_name_server
    recorder.answer = answer
    async with start_broker(remoting_port=0, name_servers=(recorder.address,)) as running:
        await recorder.asked(1)
        if answer is strange_version:
            running.clock.advance(30_000)
        line = await failed(caplog)
        assert reason in line, line
        assert await running.create_topic("T") == 0
        recorder.answer = success
        running.clock.advance(1_000)
        await until(lambda: len(told(caplog)) == 2)


async def test_n14_answers_without_a_request_and_requests_are_harmless(
    start_broker: StartBroker, record_name_server: Recorder
) -> None:
    recorder = record_name_server

    def chatty(command: RemotingCommand) -> bytes:
        stray = RemotingCommand(0, 999, flag=1), RemotingCommand(105, 7), RemotingCommand(40, 8, 2)
        return b"".join(b"".join(encode_frame(each)) for each in stray) + success(command)

    recorder.answer = chatty
    async with start_broker(remoting_port=0, name_servers=(recorder.address,)) as running:
        await recorder.asked(1)
        assert await running.create_topic("T") == 0
    asked = [each for each in recorder.requests if not each.is_response]
    refused = [each for each in recorder.requests if each.is_response]
    assert [each.code for each in asked] == [103, 103, 104]
    # One request at each answer; the last came after the broker's end.
    assert [(each.opaque, each.code) for each in refused[:2]] == [(7, 3), (7, 3)]


async def test_a_slow_name_server_delays_a_topic_once_and_for_a_second(
    start_broker: StartBroker, record_name_server: Recorder, name_server: RunningNameServer
) -> None:
    recorder = record_name_server
    servers = (recorder.address, f"127.0.0.1:{name_server.port}")
    async with start_broker(remoting_port=0, name_servers=servers) as running:
        await recorder.asked(1)
        recorder.answer = silence
        creation = asyncio.ensure_future(running.create_topic("T"))
        await recorder.asked(2)
        async with name_server.client() as client:
            # The other name server has it already.
            await until(lambda: "T" in name_server.server.routes.topics)
            assert not creation.done()
            running.clock.advance(1_000)
            assert await creation == 0
            assert await running.create_topic("U") == 0
            assert await addresses(client, "U")
        # An answer without end is a failure; the connection is replaced.
        recorder.answer = success
        running.clock.advance(10_000)
        await passes()
        running.clock.advance(1_000)
        await recorder.asked(3)
        assert recorder.connection_count == 2
        assert {"T", "U"} < recorder.topics(2).topic_configs.keys()


async def test_a_silent_name_server_delays_the_stop_by_a_second(
    start_broker: StartBroker, record_name_server: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = record_name_server
    async with start_broker(remoting_port=0, name_servers=(recorder.address,)) as running:
        await recorder.asked(1)
        recorder.answer = silence

        async def move_clock() -> None:
            await recorder.asked(2)
            running.clock.advance(1_000)

        moving = asyncio.ensure_future(move_clock())
    await moving
    assert recorder.codes == [REGISTER, UNREGISTER]
    reason = "has not answered the broker's unregistration within 1000 ms"
    assert told(caplog) == [f"name server {recorder.address} {reason}"]


@pytest.mark.parametrize("address", ["nowhere.invalid:9876", "a" * 64 + ".invalid:9876"])
async def test_a_name_that_does_not_resolve_delays_nothing(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture, address: str
) -> None:
    async with start_broker(remoting_port=0, name_servers=(address,)) as running:
        assert await running.create_topic("T") == 0
        await failed(caplog)


async def test_a_name_server_is_found_by_its_name(
    start_broker: StartBroker, record_name_server: Recorder
) -> None:
    port = record_name_server.address.rpartition(":")[2]
    async with start_broker(remoting_port=0, name_servers=(f"localhost:{port}",)):
        await record_name_server.asked(1)


async def test_a_connection_that_is_never_accepted_delays_nothing(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        async with start_broker(remoting_port=0, name_servers=(address,)) as running:
            assert await running.create_topic("T") == 0
            await passes()
            # The system accepts the connection; only its answer is missing.
            while not told(caplog):
                running.clock.advance(1_000)
                await passes()
        assert "has not answered within" in told(caplog)[0]
