"""Resets of groups by RocketMQ's tools: code 222."""

from __future__ import annotations

from typing import Any

import pytest

from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting import MessageQueue, RemotingCommand, decode_body
from rocketpy_proto.remoting.bodies.stats import ResetOffsetBody
from rocketpy_proto.remoting.headers.offsets import ResetOffsetRequest
from tests.broker.remoting.test_offsets import (
    INT32_MAX,
    INT64_MAX,
    offset_of,
    prepared,
    query,
    update,
)
from tests.broker.remoting.test_sends_and_pulls import bodies, position, pull
from tests.support.broker.clients.group_clients import consumer, heartbeat
from tests.support.broker.clients.remoting_client import RemotingBroker


async def reset(remoting: RemotingBroker, **fields: Any) -> RemotingCommand:
    usual: dict[str, Any] = {"group": "G", "topic": "T", "store_ms": -1, "is_force": True}
    header = ResetOffsetRequest(**usual | fields)
    return await remoting.client.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, header)


def reset_table(answer: RemotingCommand) -> dict[int, int]:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    table = decode_body(ResetOffsetBody, answer.body)
    return {
        queue.queue_id: offset
        for queue, offset in table.offset_table.items()
        if queue == MessageQueue("broker-a", queue.queue_id, "T")
    }


@pytest.mark.parametrize(
    ("fields", "offsets"),
    [
        ({}, {0: 4, 1: 0}),
        ({"store_ms": -1, "queue_id": 0}, {0: 4}),
        ({"store_ms": 0}, {0: 0, 1: 0}),
        ({"store_ms": 0, "queue_id": 1}, {1: 0}),
        ({"store_ms": INT64_MAX}, {0: 4, 1: 0}),
        ({"queue_id": 0, "offset": 3}, {0: 3}),
        ({"queue_id": 0, "offset": 4}, {0: 4}),
        ({"offset": 3}, {0: 4, 1: 0}),
        ({"is_force": False, "store_ms": 0}, {0: 0, 1: 0}),
    ],
)
async def test_a_reset_sets_the_offsets_at_once(
    remoting: RemotingBroker, fields: dict[str, Any], offsets: dict[int, int]
) -> None:
    await prepared(remoting, 4)
    assert (await update(remoting, 2)).code == ResponseCode.SUCCESS
    assert reset_table(await reset(remoting, **fields)) == offsets
    for queue_id, offset in offsets.items():
        assert offset_of(await query(remoting, queue_id=queue_id)) == offset


async def test_a_reset_by_time_finds_the_first_message_since(remoting: RemotingBroker) -> None:
    await prepared(remoting, 4)
    store_ms = remoting.running.clock.now_ms() - 2_000
    assert reset_table(await reset(remoting, store_ms=store_ms)) == {0: 1, 1: 0}


async def test_a_reset_of_many_queues_has_each_of_them(remoting: RemotingBroker) -> None:
    await prepared(remoting, 4, queues=2_500)
    offsets = reset_table(await reset(remoting))
    assert offsets == dict.fromkeys(range(2_500), 0) | {0: 4}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group": "none"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"group": "a b"}, ResponseCode.INVALID_PARAMETER),
        ({"group": "CID_RMQ_SYS_TRANS"}, ResponseCode.NO_PERMISSION),
        ({"topic": "none"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 9}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": INT32_MAX}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": 0, "offset": 5}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": 0, "offset": -2}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": 0, "offset": INT64_MAX}, ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_refused_resets_change_nothing(
    remoting: RemotingBroker, fields: dict[str, Any], code: ResponseCode
) -> None:
    await prepared(remoting, 4)
    await update(remoting, 2)
    answer = await reset(remoting, **fields)
    assert answer.code == code, answer.remark
    assert offset_of(await query(remoting)) == 2


async def test_members_continue_at_the_reset_with_their_next_pull(
    remoting: RemotingBroker,
) -> None:
    await prepared(remoting, 4)
    await heartbeat(remoting.running, "c", consumer("G", "T"))
    store_ms = remoting.running.clock.now_ms() - 2_000
    assert reset_table(await reset(remoting, store_ms=store_ms, queue_id=0)) == {0: 1}
    answer = await update(remoting, 3)
    assert (answer.code, answer.remark) == (
        ResponseCode.SUCCESS,
        "Offset has been previously reset",
    )
    assert offset_of(await query(remoting)) == 1
    answer = await pull(remoting.client, queue_offset=3)
    assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
    assert position(answer).next_begin_offset == 1
    assert bodies(await pull(remoting.client, queue_offset=1)) == [b"1", b"2", b"3"]
    assert (await update(remoting, 4)).remark is None
