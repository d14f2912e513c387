"""Calls that fail unexpectedly: a declared answer to the client, one line in the log."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.runtime.process_tuning import raise_descriptor_limit
from rocketpy_broker.server.apache_v2.handlers import SERVICE
from rocketpy_broker.server.calls import failure_log, guard
from rocketpy_broker.server.calls.failure_log import FailureLog
from rocketpy_broker.server.calls.stream_limits import TooManyCallsError
from rocketpy_broker.server.grpc.server import CONNECTIONS_MAX
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2
from tests.broker.runtime.test_request_sizes import METHODS, first_answer
from tests.broker.server.raw_http2 import RawConnection
from tests.support.blocks import wire_block
from tests.support.broker.running_broker import (
    RunningBroker,
    StartBroker,
    another_connection,
    until,
)
from tests.support.store.disk_calls import DiskCall, before_call

MALFORMED = b"\x0a\xff\xff\xff\x0f"
BUSY = ResponseCode.SYSTEM_BUSY


@pytest.mark.parametrize("name", METHODS)
async def test_b10_a_malformed_request_is_answered_by_a_code(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    async with start_broker() as running:
        answer = await first_answer(running, METHODS[name], MALFORMED)
    assert answer.status.code == ResponseCode.INVALID_PARAMETER
    assert "malformed" in answer.status.remark
    assert not caplog.records


@pytest.mark.parametrize("method", list(SERVICE.methods), ids=lambda each: each.name)
async def test_b10_a_malformed_request_of_an_sdk_is_answered_by_a_code(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture, method: MethodDescriptor
) -> None:
    async with start_broker() as running:
        answer = await first_answer(running, method, MALFORMED, [("x-mq-client-id", "c")])
    assert answer.status.code == v2.BAD_REQUEST
    assert "malformed" in answer.status.message
    assert not caplog.records


@pytest.mark.parametrize("name", METHODS)
def test_b10_every_response_begins_with_a_status(name: str) -> None:
    response = GetMessageClass(METHODS[name].output_type)
    field: Any = response.DESCRIPTOR.fields_by_number[1]
    assert field.message_type.full_name == "rocketpy.v1.Status"


@pytest.mark.parametrize(
    "path",
    [
        "/grpc.health.v1.Health/Check",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    ],
)
async def test_b10_malformed_requests_of_other_protocols_end_by_name(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    async with start_broker() as running:
        method: Any = running.channel.stream_stream(path)
        call = method(iter([MALFORMED]))
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            [_ async for _ in call]
    assert ended.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "malformed" in str(ended.value.details())
    assert not caplog.records


def lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [each for each in caplog.records if each.levelno >= logging.ERROR]


async def test_b10_what_no_one_expected_is_a_system_error_and_one_line_a_minute(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_call: DiskCall) -> None:
        raise OSError(errno.EIO, "x" * 1_000_000)

    before_call(monkeypatch, "statvfs", "*", fail)
    async with start_broker() as running:
        request = admin_pb2.GetBrokerStatusRequest()
        for _ in range(50):
            answer = await running.admin.GetBrokerStatus(request)
            assert answer.status.code == ResponseCode.SYSTEM_ERROR
            assert "OSError" not in answer.status.remark
        [line] = lines(caplog)
        assert "GetBrokerStatus" in line.getMessage()
        assert "OSError" in line.getMessage()
        assert len(line.getMessage()) < 500
        running.clock.advance(failure_log.INTERVAL_MS)
        await running.admin.GetBrokerStatus(request)
    [_, second] = lines(caplog)
    assert "49 more" in second.getMessage()
    assert second.exc_info is None


async def test_b10_a_stream_that_fails_ends_with_a_code(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_call: DiskCall) -> None:
        raise ZeroDivisionError

    async with start_broker() as running:
        await running.create_topic("T")
        await running.append("T", 0, b"x")
        before_call(monkeypatch, "pread", "*/consumequeue/*", fail)
        [answer] = await running.pull(topic="T")
    assert answer.status.code == ResponseCode.SYSTEM_ERROR
    assert len(lines(caplog)) == 1


def test_b10_lines_are_withheld_by_peer_not_by_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    log = FailureLog(clock)
    for port in range(10):
        for host in ("ipv4:10.0.0.1", "ipv4:10.0.0.2"):
            log.log(f"{host}:{port}", "/m", ValueError("bad"))
    assert len(lines(caplog)) == 2


def test_b10_what_is_known_of_peers_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    log = FailureLog(ManualClock())
    for host in range(failure_log.PEERS_MAX + 10):
        log.log(f"ipv4:h{host}:1", "/m", ValueError("bad"))
    assert len(log._peers) == failure_log.PEERS_MAX
    assert len(lines(caplog)) == failure_log.PEERS_MAX + 10


@contextmanager
def other_calls(running: RunningBroker, count: int) -> Iterator[None]:
    """Counts `count` calls of another connection during the block."""
    counted = running.broker.server.guard
    charges = [counted.begin("another client", 0) for _ in range(count)]
    yield
    for charge in charges:
        counted.end(charge)


async def test_n14_beyond_the_bound_calls_are_answered_system_busy(running: RunningBroker) -> None:
    most, own = guard.CALLS_MAX, guard.CALLS_SHARE + 1
    await running.create_topic("T")
    with other_calls(running, most - own):
        held = [asyncio.ensure_future(hold(running)) for _ in range(own)]
        await running.held(own)
        [busy] = await running.pull(topic="T", wait_ms_max=1_000)
        assert busy.status.code == ResponseCode.SYSTEM_BUSY
        assert f"too many calls are running, limit {most}" in busy.status.remark
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await health(running)
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
        for each in held:
            each.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        await running.held(0)
        assert (await running.admin.ListTopics(admin_pb2.ListTopicsRequest())).status.code == 0


async def test_n14_beyond_the_bound_streams_of_requests_are_answered_system_busy(
    start_broker: StartBroker,
) -> None:
    share, most = guard.STREAMS_OF_CONNECTION, guard.STREAMS_MAX
    async with (
        start_broker() as running,
        another_connection(running) as another,
        another_connection(running) as third,
    ):
        await running.create_topic("T")
        first = [await stream(running) for _ in range(share + 1)]
        assert [status.code for _, status in first] == [0] * share + [BUSY]
        limit = f"streams of requests of one connection are running, limit {share}"
        assert limit in first[-1][1].remark
        second = [await stream(another) for _ in range(most - share)]
        assert {status.code for _, status in second} == {0}
        _, refused = await stream(third)
        assert refused.code == BUSY
        assert f"too many streams of requests are running, limit {most}" in refused.remark
        first[0][0].cancel()
        await until(lambda: running.broker.server.guard.running == most - 1)
        assert (await stream(third))[1].code == 0


async def test_n14_calls_of_others_leave_each_connection_its_share(
    running: RunningBroker,
) -> None:
    most, share = guard.CALLS_MAX, guard.CALLS_SHARE
    await running.create_topic("T")
    with other_calls(running, most - share):
        async with another_connection(running) as another:
            held = [asyncio.ensure_future(hold(running)) for _ in range(share)]
            await running.held(share)
            await health(another)
            held += [asyncio.ensure_future(hold(another)) for _ in range(share)]
            await running.held(2 * share)
            for each in (another, running):
                [busy] = await each.pull(topic="T", wait_ms_max=1_000)
                assert busy.status.code == BUSY
            for call in held:
                call.cancel()
            await asyncio.gather(*held, return_exceptions=True)
    await until(lambda: running.broker.server.guard.running == 0)


async def test_n14_streams_of_reflection_take_no_place_of_other_streams(
    running: RunningBroker,
) -> None:
    path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    async with another_connection(running) as another:
        await running.create_topic("T")
        method: Any = another.channel.stream_stream(path)
        calls = [method() for _ in range(guard.OPEN_STREAMS_OF_CONNECTION)]
        for call in calls:
            await call.write(
                reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString()
            )
            assert await call.read()
        with ExitStack() as taken:
            streams = running.broker.server.guard.streams
            for number in range(guard.STREAMS_MAX - 1):
                taken.enter_context(streams.stream(f"client {number}"))
            assert (await stream(running))[1].code == 0
        # Streams of one connection arrive in any order: this one starts after eight answers.
        refused = method()
        await refused.write(b"")
        assert await refused.code() is grpc.StatusCode.UNAVAILABLE


async def test_n14_connections_beyond_the_bound_are_closed(running: RunningBroker) -> None:
    raise_descriptor_limit()
    async with AsyncExitStack() as closing:
        await running.create_topic("T")
        opened = [RawConnection() for _ in range(CONNECTIONS_MAX + 1)]
        for each in opened:
            await each.open(running.ready.port)
            closing.push_async_callback(each.close)
        await until(lambda: sum(each.is_closed for each in opened) == 2)
        assert (await running.admin.ListTopics(admin_pb2.ListTopicsRequest())).status.code == 0


async def stream(running: RunningBroker) -> tuple[Any, Any]:
    """Returns a stream after its first block, which stays open, and the block's status."""
    block = wire_block("T", [b"body"])
    request = broker_pb2.AppendRequest(
        topic="T", records=block.records, record_sizes=block.record_sizes
    )

    async def requests() -> AsyncIterator[broker_pb2.AppendRequest]:
        yield request
        await asyncio.Event().wait()

    # A refused stream may end before its first request is sent.
    call = running.data.Append(requests())
    return call, (await call.read()).status


async def hold(running: RunningBroker) -> None:
    await running.pull(topic="T", wait_ms_max=60_000)


async def health(running: RunningBroker) -> None:
    await health_pb2_grpc.HealthStub(running.channel).Check(health_pb2.HealthCheckRequest())


def test_b10_a_remark_is_bounded_and_keeps_what_to_do() -> None:
    remark = BrokerError(f"topic {'x' * 30_000_000!r} is illegal; take a shorter one").remark
    assert len(remark) <= 1_000
    assert remark.startswith("topic 'xxx")
    assert remark.endswith("is illegal; take a shorter one")
    assert TooManyCallsError(3).remark.startswith("too many calls are running, limit 3.")


async def test_n14_a_flood_of_resets_ends_nobody_else_s_calls(running: RunningBroker) -> None:
    async with AsyncExitStack() as closing:
        await running.create_topic("T")
        attackers = []
        for _ in range(4):
            attacker = RawConnection()
            await attacker.open(running.ready.port)
            closing.push_async_callback(attacker.close)
            attackers.append(attacker)
        for _ in range(20):
            for attacker in attackers:
                for _ in range(250):
                    attacker.reset(attacker.begin("/rocketpy.v1.Broker/Pull"))
            answer = await running.admin.ListTopics(admin_pb2.ListTopicsRequest())
            assert answer.status.code == ResponseCode.SUCCESS
        await until(lambda: running.broker.server.guard.running == 0)
