"""Replies of request-reply messages: codes 324, 325 and 326."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rocketpy_broker.server.remoting.clients import ANSWER_MS_MAX
from rocketpy_broker.server.remoting.processors.reply_processor import PUSH_REPLY_TIME
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record.properties import decode_properties
from rocketpy_proto.remoting import (
    EXCHANGES,
    RemotingCommand,
)
from rocketpy_proto.remoting.headers.sends import (
    PushReplyMessageRequest,
    SendMessageRequest,
    SendMessageResponse,
)
from tests.broker.remoting.test_sends_and_pulls import bodies, pull, send_header
from tests.support.broker.clients.remoting_client import RemotingBroker
from tests.support.broker.clients.remoting_groups import heartbeat
from tests.support.broker.running_broker import until

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"


def reply_header(client_id: str | None = "requester", **fields: Any) -> SendMessageRequest:
    properties = "CORRELATION_ID\x01id\x02MSG_TYPE\x01reply"
    if client_id is not None:
        properties += f"\x02REPLY_TO_CLIENT\x01{client_id}"
    return send_header(topic=REPLY_TOPIC, properties=properties, **fields)


@pytest.mark.parametrize("code", [Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2])
async def test_a_reply_reaches_its_requester(remoting: RemotingBroker, code: Code) -> None:
    requester, running = remoting.client, remoting.running
    await heartbeat(requester, "requester", producers=["P"])
    header = reply_header(flag=3, sys_flag=1)
    async with remoting.another() as replier:
        replying = asyncio.ensure_future(replier.ask(code, header, b"reply"))
        pushed = await requester.request()
        assert (pushed.code, bytes(pushed.body)) == (Code.PUSH_REPLY_MESSAGE_TO_CLIENT, b"reply")
        assert not pushed.is_one_way
        found: PushReplyMessageRequest = EXCHANGES[
            Code.PUSH_REPLY_MESSAGE_TO_CLIENT
        ].request.decode(pushed.ext_fields)
        assert (found.topic, found.flag, found.sys_flag, found.born_ms) == (REPLY_TOPIC, 3, 1, 7)
        host, port = replier.writer.get_extra_info("sockname")
        assert found.born_host == f"{host}:{port}"
        assert found.store_host == f"127.0.0.1:{running.ready.remoting_port}"
        assert found.store_ms == running.clock.now_ms()
        assert decode_properties(str(found.properties).encode()) == {
            "CORRELATION_ID": "id",
            "MSG_TYPE": "reply",
            "REPLY_TO_CLIENT": "requester",
            PUSH_REPLY_TIME: str(running.clock.now_ms()),
        }
        requester.tell(pushed.answer(0))
        answer = await replying
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    sent: SendMessageResponse = EXCHANGES[code].response.decode(answer.ext_fields)
    assert (sent.queue_id, sent.queue_offset) == (0, 0)
    # RocketMQ's brokers store replies by default.
    assert bodies(await pull(requester, topic=REPLY_TOPIC)) == [b"reply"]


@pytest.mark.parametrize(
    ("client_id", "reason"),
    [
        (None, "properties[REPLY_TO_CLIENT] is null"),
        ("gone", "push reply message to gone fail: "),
        ("\x03" * 9, "push reply message to "),
    ],
)
async def test_a_reply_without_a_requester_is_an_error(
    remoting: RemotingBroker, client_id: str | None, reason: str
) -> None:
    header = reply_header(client_id)
    answer = await remoting.client.ask(Code.SEND_REPLY_MESSAGE_V2, header, b"reply")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert reason in str(answer.remark)


async def test_a_reply_that_its_requester_refuses_is_an_error(remoting: RemotingBroker) -> None:
    requester = remoting.client
    await heartbeat(requester, "requester", producers=["P"])
    async with remoting.another() as replier:
        code = Code.SEND_REPLY_MESSAGE_V2
        replying = asyncio.ensure_future(replier.ask(code, reply_header(), b"reply"))
        pushed = await requester.request()
        requester.tell(pushed.answer(ResponseCode.SYSTEM_ERROR, remark="process reply fail"))
        answer = await replying
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "it answered 1, process reply fail" in str(answer.remark)
        replying = asyncio.ensure_future(replier.ask(code, reply_header(), b"reply"))
        await requester.request()
        remoting.running.clock.advance(ANSWER_MS_MAX)
        assert (await replying).code == ResponseCode.SYSTEM_ERROR


async def test_a_refused_reply_is_not_sent_on(remoting: RemotingBroker) -> None:
    await heartbeat(remoting.client, "requester", producers=["P"])
    header = send_header(topic="a b", properties="REPLY_TO_CLIENT\x01requester")
    answer = await remoting.client.ask(Code.SEND_REPLY_MESSAGE_V2, header, b"reply")
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert not remoting.client.requests


async def test_a_one_way_reply_reaches_its_requester(remoting: RemotingBroker) -> None:
    await heartbeat(remoting.client, "requester", producers=["P"])
    fields = EXCHANGES[Code.SEND_REPLY_MESSAGE_V2].request.encode(reply_header())
    async with remoting.another() as replier:
        replier.tell(
            RemotingCommand(Code.SEND_REPLY_MESSAGE_V2, 1, flag=2, ext_fields=fields, body=b"reply")
        )
        pushed = await remoting.client.request()
        assert bytes(pushed.body) == b"reply"
        remoting.client.tell(pushed.answer(0))
    await until(lambda: remoting.connection_count == 1)
