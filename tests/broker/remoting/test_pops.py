"""Pop consumption of RocketMQ's clients through a socket: codes 400, 401 and 200050 to 200151."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from rocketpy_broker.services.receipts.handle import Receipt
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record import Record, decode_record
from rocketpy_proto.remoting import EXCHANGES, RemotingCommand, encode_body
from rocketpy_proto.remoting.bodies.pop import (
    BatchAck,
    BatchAckMessageBody,
    QueryAssignmentRequestBody,
    SetMessageRequestModeBody,
)
from rocketpy_proto.remoting.headers import pop as headers
from tests.broker.remoting.requests import answered, subscribe
from tests.support.broker.clients.remoting_client import RemotingBroker
from tests.support.broker.pops import (
    GROUP,
    INVISIBLE_MS,
    RETRY_TOPIC,
    REVIVE_MS,
    TOPIC,
    pass_time,
    revived,
)
from tests.support.broker.running_broker import StartBroker

OWN = {"consumer_group": GROUP, "topic": TOPIC}


def pop_header(remoting: RemotingBroker, **fields: Any) -> headers.PopMessageRequest:
    now_ms = remoting.running.clock.now_ms()
    usual: dict[str, Any] = {"queue_id": -1, "max_msg_nums": 32, "invisible_ms": INVISIBLE_MS}
    usual |= {"poll_ms": 0, "born_ms": now_ms, "init_mode": headers.INIT_MIN}
    return headers.PopMessageRequest(**OWN | usual | fields)


async def pop(remoting: RemotingBroker, **fields: Any) -> RemotingCommand:
    return await remoting.client.ask(Code.POP_MESSAGE, pop_header(remoting, **fields))


def header_of(answer: RemotingCommand, code: Code = Code.POP_MESSAGE) -> Any:
    return EXCHANGES[code].response.decode(answer.ext_fields)


def records(answer: RemotingCommand) -> list[Record]:
    found, position = [], 0
    while position < len(answer.body):
        decoded = decode_record(answer.body, position)
        found.append(decoded.record)
        position += decoded.size
    return found


def receipt(answer: RemotingCommand, place: int = 0) -> Receipt:
    """Returns the receipt as a Java client makes it of the header, for one queue."""
    header = header_of(answer)
    kind, queue_id, start = header.start_offset_info.split(" ")
    offset = header.msg_offset_info.split(" ")[2].split(",")[place]
    numbers = f"{start} {header.pop_ms} {header.invisible_ms} {header.revive_queue_id}"
    return Receipt.parse(f"{numbers} {kind} broker-a {queue_id} {offset}")


async def ack(
    remoting: RemotingBroker, text: str, topic: str = TOPIC, offset: int = 0
) -> RemotingCommand:
    header = headers.AckMessageRequest(GROUP, topic, 0, text, offset)
    return await remoting.client.ask(Code.ACK_MESSAGE, header)


async def test_messages_are_popped_acknowledged_and_revived(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic(TOPIC, 1)
    await remoting.running.append(TOPIC, 0, b"a", b"b")
    answer = await pop(remoting)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert [each.body for each in records(answer)] == [b"a", b"b"]
    header = header_of(answer)
    assert (header.start_offset_info, header.msg_offset_info) == ("0 0 0", "0 0 0,1")
    assert (header.invisible_ms, header.rest_num) == (INVISIBLE_MS, 0)
    assert header.pop_ms == remoting.running.clock.now_ms()
    acked = await ack(remoting, str(receipt(answer)))
    assert (acked.code, acked.ext_fields) == (ResponseCode.SUCCESS, {})
    await pass_time(remoting.running, INVISIBLE_MS + REVIVE_MS)
    again = await pop(remoting)
    (record,) = records(again)
    assert (record.topic, record.body, record.reconsume_times) == (TOPIC, b"b", 1)
    text = record.properties["POP_CK"]
    assert header_of(again).start_offset_info == "1 0 0"
    assert text == str(receipt(again))
    assert (await ack(remoting, text, RETRY_TOPIC)).code == ResponseCode.SUCCESS
    await pass_time(remoting.running, INVISIBLE_MS + REVIVE_MS)
    assert (await pop(remoting)).code == ResponseCode.POLLING_TIMEOUT
    assert revived(remoting.running) == 1


async def test_a_change_and_a_batch_of_acknowledgements_count(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic(TOPIC, 1)
    await remoting.running.append(TOPIC, 0, *[b"%d" % i for i in range(12)])
    answer = await pop(remoting)
    first = receipt(answer)
    change = headers.ChangeInvisibleTimeRequest(GROUP, TOPIC, 0, str(first), 0, 1_000)
    changed = await remoting.client.ask(Code.CHANGE_MESSAGE_INVISIBLETIME, change)
    assert changed.code == ResponseCode.SUCCESS, changed.remark
    found = header_of(changed, Code.CHANGE_MESSAGE_INVISIBLETIME)
    assert (found.invisible_ms, found.revive_queue_id) == (1_000, first.revive_queue_id)
    # Java's BitSet of 1 to 9 and 11.
    batch = BatchAck(
        *(GROUP, TOPIC, 0, 0, first.revive_queue_id, first.pop_ms, INVISIBLE_MS),
        bytes([0b11111110, 0b00001011]),
    )
    body = msgspec.json.encode(BatchAckMessageBody("broker-a", (batch,)))
    answer = await remoting.client.ask(Code.BATCH_ACK_MESSAGE, body=body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    await pass_time(remoting.running, INVISIBLE_MS + REVIVE_MS)
    assert [each.body for each in records(await pop(remoting))] == [b"0", b"10"]


async def test_a_batch_of_too_many_acknowledgements_acknowledges_nothing(
    remoting: RemotingBroker,
) -> None:
    await remoting.running.create_topic(TOPIC, 1)
    await remoting.running.append(TOPIC, 0, b"a")
    first = receipt(await pop(remoting))
    own = GROUP, TOPIC, 0, 0, first.revive_queue_id, first.pop_ms, INVISIBLE_MS
    acks = BatchAck(*own, b"\1"), BatchAck(*own, b"\xff" * 16)
    body = encode_body(BatchAckMessageBody("broker-a", acks))
    answer = await remoting.client.ask(Code.BATCH_ACK_MESSAGE, body=body)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    await pass_time(remoting.running, INVISIBLE_MS + REVIVE_MS)
    assert [each.body for each in records(await pop(remoting))] == [b"a"]


async def test_an_ordered_pop_counts_deliveries(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic(TOPIC, 1)
    await remoting.running.append(TOPIC, 0, b"a", b"b")
    first = header_of(await pop(remoting, is_order=True, max_msg_nums=1))
    assert (first.revive_queue_id, first.order_count_info) == (999, "0 0 0")
    now_ms = remoting.running.clock.now_ms()
    asked = headers.NotificationRequest(GROUP, TOPIC, -1, 0, now_ms, is_order=True)
    answer = await remoting.client.ask(Code.NOTIFICATION, asked)
    assert header_of(answer, Code.NOTIFICATION).has_msg is False
    remoting.running.clock.advance(INVISIBLE_MS)
    answer = await pop(remoting, is_order=True)
    assert header_of(answer).order_count_info == "0 qo0%0 1;0 0 0"
    assert [each.body for each in records(answer)] == [b"a", b"b"]
    acked = await ack(remoting, str(receipt(answer)))
    assert acked.code == ResponseCode.SUCCESS, acked.remark


async def test_all_pops_are_in_the_revive_topic_already(remoting: RemotingBroker) -> None:
    answer = await remoting.client.ask(Code.POP_ROLLBACK)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def test_a_held_pop_gets_the_next_message(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic(TOPIC, 1)
    held = asyncio.ensure_future(pop(remoting, poll_ms=15_000))
    await remoting.running.held(1)
    async with remoting.another() as other:
        info = headers.PollingInfoRequest(GROUP, TOPIC, -1)
        answer = await other.ask(Code.POLLING_INFO, info)
        assert header_of(answer, Code.POLLING_INFO).polling_num == 1
        await remoting.running.append(TOPIC, 0, b"a")
        assert [each.body for each in records(await held)] == [b"a"]
        peek = headers.PeekMessageRequest(GROUP, TOPIC, -1, 32)
        assert (await other.ask(Code.PEEK_MESSAGE, peek)).code == ResponseCode.POLLING_TIMEOUT


async def test_a_notification_waits_for_a_message(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic(TOPIC, 1)
    now_ms = remoting.running.clock.now_ms()
    request = headers.NotificationRequest(GROUP, TOPIC, -1, 15_000, now_ms)
    notified = asyncio.ensure_future(remoting.client.ask(Code.NOTIFICATION, request))
    await remoting.running.held(1)
    await remoting.running.append(TOPIC, 0, b"a")
    assert header_of(await notified, Code.NOTIFICATION).has_msg is True
    assert [each.body for each in records(await pop(remoting))] == [b"a"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "none"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 1}, ResponseCode.INVALID_PARAMETER),
        ({"max_msg_nums": 33}, ResponseCode.INVALID_PARAMETER),
        ({"invisible_ms": -1}, ResponseCode.INVALID_PARAMETER),
        ({"expression_type": "SQL92", "expression": "a >"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"consumer_group": "a b"}, ResponseCode.INVALID_PARAMETER),
        ({"born_ms": 1, "poll_ms": 1}, ResponseCode.POLLING_TIMEOUT),
        ({}, ResponseCode.POLLING_TIMEOUT),
    ],
)
async def test_the_code_of_a_pop_without_messages(
    remoting: RemotingBroker, fields: dict[str, Any], code: ResponseCode
) -> None:
    await remoting.running.create_topic(TOPIC, 1)
    answer = await pop(remoting, **fields)
    assert (answer.code, answer.body) == (code, b"")
    if code == ResponseCode.POLLING_TIMEOUT:
        assert header_of(answer).rest_num == 0


@pytest.mark.parametrize("text", ["", "x", "1 2 3 4 0", "1 2 3 4 5 b", "-1 2 3 0 0 b", "9" * 999])
async def test_an_illegal_receipt_is_refused(remoting: RemotingBroker, text: str) -> None:
    await remoting.running.create_topic(TOPIC, 1)
    await remoting.running.append(TOPIC, 0, b"a")
    await pop(remoting)
    answer = await ack(remoting, text)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    change = headers.ChangeInvisibleTimeRequest(GROUP, TOPIC, 0, text, 0, 1_000)
    answer = await remoting.client.ask(Code.CHANGE_MESSAGE_INVISIBLETIME, change)
    assert answer.code == ResponseCode.INVALID_PARAMETER


async def set_mode(remoting: RemotingBroker, topic: str, mode: str, share: int = 0) -> int:
    body = encode_body(SetMessageRequestModeBody(topic, GROUP, mode, share))
    answer = await remoting.client.ask(Code.SET_MESSAGE_REQUEST_MODE, body=body)
    return answer.code


async def assigned(remoting: RemotingBroker, **fields: Any) -> tuple[str, list[int]]:
    usual = {"topic": TOPIC, "consumer_group": GROUP, "client_id": f"client-of-{GROUP}"}
    body = encode_body(QueryAssignmentRequestBody(**usual | fields))
    found = await answered(remoting.client, Code.QUERY_ASSIGNMENT, body=body)
    queues = [each.message_queue for each in found.assignments]
    assert {(each.broker_name, each.topic) for each in queues} <= {("broker-a", TOPIC)}
    modes = {each.mode for each in found.assignments}
    return next(iter(modes), ""), sorted(each.queue_id for each in queues)


async def test_the_broker_assigns_queues_in_the_mode_that_was_set(
    start_broker: StartBroker,
) -> None:
    async with (
        start_broker(remoting_port=0) as running,
        RemotingBroker.of(running) as remoting,
    ):
        await running.create_topic(TOPIC, 4)
        assert await assigned(remoting) == ("", [])
        await subscribe(remoting, GROUP, TOPIC)
        assert await assigned(remoting) == ("PULL", [0, 1, 2, 3])
        assert await set_mode(remoting, TOPIC, "POP") == ResponseCode.SUCCESS
        assert await assigned(remoting) == ("POP", [-1])
        assert await set_mode(remoting, TOPIC, "POP", 1) == ResponseCode.SUCCESS
        assert await assigned(remoting) == ("POP", [0, 1, 2, 3])
        assert await assigned(remoting, client_id="stranger") == ("", [])
        assert await set_mode(remoting, RETRY_TOPIC, "POP") == ResponseCode.NO_PERMISSION
        assert await set_mode(remoting, TOPIC, "PUSH") == ResponseCode.INVALID_PARAMETER
    async with (
        start_broker(remoting_port=0) as running,
        RemotingBroker.of(running) as remoting,
    ):
        await subscribe(remoting, GROUP, TOPIC)
        assert await assigned(remoting) == ("POP", [0, 1, 2, 3])
