"""Commands to clients of RocketMQ's SDKs on their telemetry streams, and their results."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rocketpy_broker.server.apache_v2.servicers.telemetry_commands import ANSWER_MS_MAX
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.apache.rocketmq.v2 import service_pb2
from rocketpy_proto.apache.rocketmq.v2.service_pb2 import TelemetryCommand
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting import RemotingCommand
from rocketpy_proto.remoting.bodies.clients import ConsumeMessageDirectlyResult
from rocketpy_proto.remoting.headers.clients import (
    ConsumeMessageDirectlyRequest,
    GetConsumerRunningInfoRequest,
)
from tests.broker.remoting.test_sends_and_pulls import send
from tests.support.broker.clients.apache_client import ApacheClient, consuming
from tests.support.broker.clients.remoting_client import RemotingBroker
from tests.support.broker.clients.remoting_groups import body_of
from tests.support.broker.running_broker import StartBroker

UNSUPPORTED = ResponseCode.REQUEST_CODE_NOT_SUPPORTED


@pytest.fixture
async def remote(start_broker: StartBroker) -> AsyncIterator[RemotingBroker]:
    """Yields a broker with the topic T, and a remoting connection to it."""
    async with start_broker(remoting_port=0) as running, RemotingBroker.of(running) as remoting:
        await running.create_topic("T")
        yield remoting


def verification(msg_id: str) -> ConsumeMessageDirectlyRequest:
    return ConsumeMessageDirectlyRequest("g", "host@1@0@abc", msg_id)


def running_info(*, stacks: bool) -> GetConsumerRunningInfoRequest:
    return GetConsumerRunningInfoRequest("g", "host@1@0@abc", stacks)


def asked(remote: RemotingBroker, code: Code, header: Any) -> asyncio.Future[RemotingCommand]:
    return asyncio.ensure_future(remote.client.ask(code, header))


def status(code: v2.Code) -> v2.Status:
    return v2.Status(code=code, message="why")


@pytest.mark.parametrize(
    ("code", "answered", "result"),
    [
        (v2.OK, ResponseCode.SUCCESS, "CR_SUCCESS"),
        (v2.FAILED_TO_CONSUME_MESSAGE, ResponseCode.SUCCESS, "CR_LATER"),
        (v2.MESSAGE_CORRUPTED, ResponseCode.SUCCESS, "CR_RETURN_NULL"),
        (v2.VERIFY_FIFO_MESSAGE_UNSUPPORTED, UNSUPPORTED, None),
        (v2.NOT_IMPLEMENTED, UNSUPPORTED, None),
    ],
)
async def test_a_message_is_consumed_by_a_named_sdk(
    remote: RemotingBroker, code: v2.Code, answered: int, result: str | None
) -> None:
    sent = await send(remote.client, b"again", queue_id=2, properties="TAGS\x01a")
    apache = ApacheClient(remote.running)
    async with apache.telemetry(consuming("g", "T")) as call:
        asking = asked(remote, Code.CONSUME_MESSAGE_DIRECTLY, verification(sent.msg_id))
        command = (await call.read()).verify_message_command
        system = command.message.system_properties
        assert (command.message.topic.name, command.message.body) == ("T", b"again")
        assert (system.tag, system.queue_id, system.body_digest.type) == ("a", 2, v2.MD5)
        # A result with another nonce is of no command.
        for nonce in (f"{command.nonce}0", command.nonce):
            done = service_pb2.VerifyMessageResult(nonce=nonce)
            each = code if nonce == command.nonce else v2.MESSAGE_CORRUPTED
            await call.write(TelemetryCommand(status=status(each), verify_message_result=done))
        answer = await asking
    assert answer.code == answered, answer.remark
    if result is None:
        assert f"{v2.Code.Name(code)}: why" in str(answer.remark)
    else:
        found = body_of(Code.CONSUME_MESSAGE_DIRECTLY, answer)
        assert found == ConsumeMessageDirectlyResult(result, remark="from gRPC client")


async def test_the_sdk_for_node_js_answers_with_the_command(remote: RemotingBroker) -> None:
    sent = await send(remote.client, b"again")
    async with ApacheClient(remote.running).telemetry(consuming("g", "T")) as call:
        asking = asked(remote, Code.CONSUME_MESSAGE_DIRECTLY, verification(sent.msg_id))
        command = (await call.read()).verify_message_command
        command.ClearField("message")
        await call.write(
            TelemetryCommand(status=status(v2.NOT_IMPLEMENTED), verify_message_command=command)
        )
        assert (await asking).code == UNSUPPORTED


@pytest.mark.parametrize("sent", [status(v2.OK), None])
async def test_an_sdk_is_asked_for_its_stacks(
    remote: RemotingBroker, sent: v2.Status | None
) -> None:
    """Accepts an answer without a status, as the SDK for C++ gives one."""
    async with ApacheClient(remote.running).telemetry(consuming("g", "T")) as call:
        asking = asked(remote, Code.GET_CONSUMER_RUNNING_INFO, running_info(stacks=True))
        nonce = (await call.read()).print_thread_stack_trace_command.nonce
        stacks = service_pb2.ThreadStackTrace(nonce=nonce, thread_stack_trace="main\n  at f")
        await call.write(TelemetryCommand(status=sent, thread_stack_trace=stacks))
        answer = await asking
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert json.loads(bytes(answer.body))["jstack"] == "main\n  at f"


async def test_the_running_info_without_stacks_is_the_broker_s(remote: RemotingBroker) -> None:
    """Answers the question of mqadmin that comes before the one to consume a message."""
    opened_ms = remote.running.clock.now_ms()
    async with ApacheClient(remote.running).telemetry(consuming("g", "T")):
        remote.running.clock.advance(5)
        answer = await asked(remote, Code.GET_CONSUMER_RUNNING_INFO, running_info(stacks=False))
    assert json.loads(bytes(answer.body))["properties"] == {
        "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
        "PROP_CONSUMER_START_TIMESTAMP": str(opened_ms),
    }


async def test_an_sdk_that_does_not_answer_has_five_seconds(remote: RemotingBroker) -> None:
    async with ApacheClient(remote.running).telemetry(consuming("g", "T")) as call:
        asking = asked(remote, Code.GET_CONSUMER_RUNNING_INFO, running_info(stacks=True))
        nonces = [(await call.read()).print_thread_stack_trace_command.nonce]
        async with remote.another() as other:
            info = running_info(stacks=True)
            busy = await other.ask(Code.GET_CONSUMER_RUNNING_INFO, info)
            assert busy.code == ResponseCode.SYSTEM_BUSY
            remote.running.clock.advance(ANSWER_MS_MAX - 1)
            await other.ask(9_999)
        assert not asking.done()
        remote.running.clock.advance(1)
        answer = await asking
        assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
        assert "limit 5000 ms" in str(answer.remark)
        asking = asked(remote, Code.GET_CONSUMER_RUNNING_INFO, running_info(stacks=True))
        command = await call.read()
        while not command.HasField("print_thread_stack_trace_command"):
            # The settings that are sent again.
            command = await call.read()
        nonces.append(command.print_thread_stack_trace_command.nonce)
        # A late answer is not the one of the next command.
        for nonce in nonces:
            stacks = service_pb2.ThreadStackTrace(nonce=nonce, thread_stack_trace=nonce)
            await call.write(TelemetryCommand(status=status(v2.OK), thread_stack_trace=stacks))
        assert json.loads(bytes((await asking).body))["jstack"] == nonces[1]


@pytest.mark.parametrize("is_replaced", [True, False])
async def test_a_command_ends_with_the_stream_of_its_client(
    remote: RemotingBroker, *, is_replaced: bool
) -> None:
    apache = ApacheClient(remote.running)
    async with apache.telemetry(consuming("g", "T")) as call:
        asking = asked(remote, Code.GET_CONSUMER_RUNNING_INFO, running_info(stacks=True))
        await call.read()
        if is_replaced:
            async with apache.telemetry(consuming("g", "T")):
                assert (await asking).code == ResponseCode.CONSUMER_NOT_ONLINE
    assert (await asking).code == ResponseCode.CONSUMER_NOT_ONLINE
    answer = await asked(remote, Code.GET_CONSUMER_RUNNING_INFO, running_info(stacks=True))
    assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE


async def test_an_sdk_outside_of_the_group_is_not_online(remote: RemotingBroker) -> None:
    sent = await send(remote.client, b"again")
    async with ApacheClient(remote.running).telemetry(consuming("other", "T")):
        answer = await asked(remote, Code.CONSUME_MESSAGE_DIRECTLY, verification(sent.msg_id))
    assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
