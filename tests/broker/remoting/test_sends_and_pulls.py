"""Sends, recalls and pulls of RocketMQ's clients: codes 10, 310, 320, 370, 11 and 361."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model import TRACE_TOPIC
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record import RecordBlock, decode_offset_message_id, decode_record
from rocketpy_proto.remoting import (
    EXCHANGES,
    BatchMessage,
    RemotingCommand,
    Serialization,
    encode_batch,
)
from rocketpy_proto.remoting.headers.pulls import (
    COMMIT_OFFSET,
    SUBSCRIPTION,
    SUSPEND,
    PullMessageRequest,
    PullMessageResponse,
)
from rocketpy_proto.remoting.headers.sends import (
    SendMessageRequest,
    SendMessageResponse,
)
from tests.broker.remoting.requests import update_topic
from tests.support.broker.clients.remoting_client import RemotingBroker, RemotingClient, connected
from tests.support.broker.running_broker import StartBroker, until

SEND_CODES = [Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE]


def send_header(**fields: Any) -> SendMessageRequest:
    usual: dict[str, Any] = {"producer_group": "P", "topic": "T", "queue_id": 0, "born_ms": 7}
    return SendMessageRequest(**usual | fields)


async def send(
    client: RemotingClient, body: bytes, code: int = Code.SEND_MESSAGE_V2, **fields: Any
) -> SendMessageResponse:
    answer = await client.ask(code, send_header(**fields), body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    found: SendMessageResponse = EXCHANGES[Code(code)].response.decode(answer.ext_fields)
    return found


def pull_header(**fields: Any) -> PullMessageRequest:
    usual: dict[str, Any] = {"consumer_group": "G", "topic": "T", "queue_id": 0}
    usual |= {"queue_offset": 0, "max_msg_nums": 32, "sys_flag": SUBSCRIPTION}
    return PullMessageRequest(**usual | fields)


async def pull(client: RemotingClient, **fields: Any) -> RemotingCommand:
    return await client.ask(Code.PULL_MESSAGE, pull_header(**fields))


def position(answer: RemotingCommand) -> PullMessageResponse:
    found: PullMessageResponse = EXCHANGES[Code.PULL_MESSAGE].response.decode(answer.ext_fields)
    return found


def bodies(answer: RemotingCommand) -> list[bytes]:
    if not answer.body:
        return []
    block = RecordBlock.parse(bytes(answer.body))
    return [decode_record(answer.body, int(at)).record.body for at in block.positions]


@pytest.mark.parametrize("serialization", list(Serialization))
@pytest.mark.parametrize("code", SEND_CODES)
async def test_a_message_is_stored_as_it_was_sent(
    remoting: RemotingBroker, code: Code, serialization: Serialization
) -> None:
    await remoting.running.create_topic("T")
    header = send_header(
        queue_id=2, properties="TAGS\x01a\x02UNIQ_KEY\x01ID", flag=5, sys_flag=1 | 4
    )
    answer = await remoting.client.ask(code, header, b"body", serialization=serialization)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    sent: SendMessageResponse = EXCHANGES[code].response.decode(answer.ext_fields)
    host, offset = decode_offset_message_id(sent.msg_id)
    assert (host.port, offset) == (remoting.running.ready.remoting_port, 0)
    assert (sent.queue_id, sent.queue_offset, sent.transaction_id) == (2, 0, "ID")
    answer = await pull(remoting.client, queue_id=2)
    record = decode_record(answer.body).record
    assert (record.body, record.flag, record.born_timestamp_ms, record.sys_flag) == (
        *(b"body", 5, 7),
        1,
    )
    assert str(record.born_host.address) == "127.0.0.1"
    assert record.properties == {
        "TAGS": "a",
        "UNIQ_KEY": "ID",
        "CLUSTER": "DefaultCluster",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


async def test_a_batch_has_each_message_and_all_ids(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("T")
    batch = [
        BatchMessage(b"%d" % i * i, b"UNIQ_KEY\x01own%d" % i if i else b"", i) for i in range(5)
    ]
    sent = await send(
        remoting.client,
        encode_batch(batch),
        Code.SEND_BATCH_MESSAGE,
        is_batch=True,
        queue_id=1,
        properties="UNIQ_KEY\x01all\x02WAIT\x01true",
    )
    assert len(sent.msg_id.split(",")) == 5
    answer = await pull(remoting.client, queue_id=1)
    block = RecordBlock.parse(bytes(answer.body))
    records = [decode_record(answer.body, int(at)).record for at in block.positions]
    assert [each.body for each in records] == [each.body for each in batch]
    assert [each.flag for each in records] == [0, 1, 2, 3, 4]
    keys = [each.properties["UNIQ_KEY"] for each in records]
    assert keys == ["all", "own1", "own2", "own3", "own4"]
    offsets = [decode_offset_message_id(each)[1] for each in sent.msg_id.split(",")]
    assert offsets == [each.physical_offset for each in records]


@pytest.mark.parametrize(
    ("topic", "common", "own"),
    [
        ("T", "DELAY\x013", b"a\x01b\x02"),
        ("T", "TAGS\x01a\x02DELAY\x0105\x02", b""),
        ("T", "", b"KEYS\x01k\x02DELAY\x013\x02"),
        ("%RETRY%G", "", b""),
    ],
)
async def test_a_batch_cannot_be_delayed_or_a_retry(
    remoting: RemotingBroker, topic: str, common: str, own: bytes
) -> None:
    await remoting.running.create_topic("T")
    body = encode_batch([BatchMessage(b"first"), BatchMessage(b"second", own)])
    header = send_header(topic=topic, is_batch=True, properties=common)
    answer = await remoting.client.ask(Code.SEND_BATCH_MESSAGE, header, body)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL, answer.remark
    assert "one by one" in str(answer.remark) or "request of its own" in str(answer.remark)
    assert remoting.running.broker.store.positions().log_end == 0
    # Neither a level of 0 nor a property with a longer name is a delay.
    own = b"DELAY\x010\x02MYDELAY\x013\x02"
    body = encode_batch([BatchMessage(b"first", own)])
    await send(remoting.client, body, Code.SEND_BATCH_MESSAGE, is_batch=True)


@pytest.mark.parametrize("is_batch", [False, True])
async def test_a_pop_checkpoint_of_a_sender_is_removed(
    remoting: RemotingBroker, *, is_batch: bool
) -> None:
    await remoting.running.create_topic("T")
    properties = (
        "POP_CK\x011 2 3\x02POP_CK\x01again\x02TAGS\x01a\x02MY_POP_CK\x01kept\x02POP_CK\x01x"
    )
    body = encode_batch([BatchMessage(b"body")]) if is_batch else b"body"
    await send(remoting.client, body, properties=properties, is_batch=is_batch)
    record = decode_record((await pull(remoting.client)).body).record
    assert "POP_CK" not in record.properties
    assert (record.properties["TAGS"], record.properties["MY_POP_CK"]) == ("a", "kept")


@pytest.mark.parametrize("cut", [1, 21, 23, 30])
async def test_a_batch_that_is_cut_is_refused_whole(remoting: RemotingBroker, cut: int) -> None:
    await remoting.running.create_topic("T")
    body = encode_batch([BatchMessage(b"abc", b"K\x01v\x02")] * 2)[:-cut]
    answer = await remoting.client.ask(Code.SEND_BATCH_MESSAGE, send_header(is_batch=True), body)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert (await pull(remoting.client)).code == ResponseCode.PULL_NOT_FOUND


async def test_a_send_creates_its_topic_from_the_template(remoting: RemotingBroker) -> None:
    await send(remoting.client, b"first", topic="new", default_topic_queue_nums=3)
    assert (
        await pull(remoting.client, topic="new", queue_id=2)
    ).code == ResponseCode.PULL_NOT_FOUND
    answer = await pull(remoting.client, topic="new", queue_id=3)
    assert answer.code == ResponseCode.INVALID_PARAMETER


async def test_the_first_trace_creates_its_topic_though_no_tool_may(
    remoting: RemotingBroker,
) -> None:
    tool = await update_topic(remoting.client, topic=TRACE_TOPIC)
    assert tool.code == ResponseCode.INVALID_PARAMETER
    await send(remoting.client, b"Pub", topic=TRACE_TOPIC, default_topic_queue_nums=1)
    assert bodies(await pull(remoting.client, topic=TRACE_TOPIC)) == [b"Pub"]


async def test_a_message_without_a_key_gets_one(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("T")
    sent = await send(remoting.client, b"x", properties="TAGS\x01a")
    assert sent.transaction_id is not None
    assert len(sent.transaction_id) == 32
    assert decode_record((await pull(remoting.client)).body).record.properties["TAGS"] == "a"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "none", "default_topic": "none"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"topic": "a b"}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": 4}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION),
        ({"properties": "a\x01" + "b" * 32_768}, ResponseCode.MESSAGE_ILLEGAL),
    ],
)
async def test_refused_sends(
    remoting: RemotingBroker, fields: dict[str, Any], code: ResponseCode
) -> None:
    await remoting.running.create_topic("T")
    answer = await remoting.client.ask(Code.SEND_MESSAGE_V2, send_header(**fields), b"x")
    assert answer.code == code, answer.remark
    assert answer.remark


async def test_a_one_way_send_is_stored_without_an_answer(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("T")
    header = EXCHANGES[Code.SEND_MESSAGE_V2].request.encode(send_header())
    client = remoting.client
    client.tell(RemotingCommand(Code.SEND_MESSAGE_V2, 99, flag=2, ext_fields=header, body=b"x"))
    answer = await pull(client, sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_ms=15_000)
    assert bodies(answer) == [b"x"]


async def test_one_way_sends_are_stored_although_their_connection_ends(
    remoting: RemotingBroker,
) -> None:
    await remoting.running.create_topic("T")
    header = EXCHANGES[Code.SEND_MESSAGE_V2].request.encode(send_header())
    async with remoting.another() as other:
        for number in range(500):
            other.tell(
                RemotingCommand(Code.SEND_MESSAGE_V2, number, flag=2, ext_fields=header, body=b"x")
            )
        await other.writer.drain()
    store = remoting.running.broker.store
    await until(lambda: store.range_of(QueueKey("T", 0)).max_offset == 500)


async def test_a_pull_has_the_wished_messages_at_most(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("T")
    for number in range(40):
        await send(remoting.client, b"%d" % number)
    answer = await pull(remoting.client, max_msg_nums=3)
    assert bodies(answer) == [b"0", b"1", b"2"]
    assert answer.remark == "FOUND"
    assert position(answer) == PullMessageResponse(0, 3, 0, 40)
    assert len(bodies(await pull(remoting.client, max_msg_nums=0))) == 1
    # S12: RocketMQ's limits, unless a client wants more bytes than they give. Java's push consumers
    # send 256 KiB, its pull consumers and lite pull consumers INT32_MAX.
    many, int32_max = (256 << 10) + 1, (1 << 31) - 1
    usual = [(wish, 99, 32) for wish in (-1, 0, many - 1, int32_max)]
    for wish, count_max, count in (*usual, (many, 99, 40), (many, 35, 35), (int32_max - 1, 99, 40)):
        wide = await pull(remoting.client, max_msg_nums=count_max, max_msg_bytes=wish)
        assert len(bodies(wide)) == count, wish


async def test_a_pull_outside_the_queue_says_where_to_continue(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("T")
    for _ in range(5):
        await send(remoting.client, b"x")
    found = {}
    for offset in (-1, 5, 6):
        answer = await pull(remoting.client, queue_offset=offset)
        found[offset] = (answer.code, answer.remark, position(answer).next_begin_offset)
    moved = ResponseCode.PULL_OFFSET_MOVED
    assert found == {
        -1: (moved, "OFFSET_TOO_SMALL", 0),
        5: (ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 5),
        6: (moved, "OFFSET_OVERFLOW_BADLY", 5),
    }


async def test_a_suspended_pull_is_answered_by_the_next_message(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("T")
    held = asyncio.ensure_future(
        pull(remoting.client, sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_ms=15_000)
    )
    await remoting.running.held(1)
    async with remoting.another() as other:
        await send(other, b"new")
        assert bodies(await held) == [b"new"]


async def test_a_suspended_pull_ends_at_its_time(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("T")
    held = asyncio.ensure_future(
        pull(remoting.client, sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_ms=15_000)
    )
    await remoting.running.held(1)
    remoting.running.clock.advance(15_000)
    assert (await held).code == ResponseCode.PULL_NOT_FOUND


async def test_held_pulls_hold_up_no_request_of_their_connection(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("T")
    header = EXCHANGES[Code.PULL_MESSAGE].request.encode(
        pull_header(sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_ms=15_000)
    )
    for opaque in range(1_000, 1_100):
        remoting.client.tell(RemotingCommand(Code.PULL_MESSAGE, opaque, ext_fields=header))
    await remoting.running.held(100)
    remoting.client.opaque = 0
    answer = await remoting.client.ask(9_999)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_held_pulls_end_with_their_connection(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("T")
    async with remoting.another() as other:
        header = EXCHANGES[Code.PULL_MESSAGE].request.encode(
            pull_header(sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_ms=15_000)
        )
        other.tell(RemotingCommand(Code.PULL_MESSAGE, 1, ext_fields=header))
        await remoting.running.held(1)
    await remoting.running.held(0)


async def test_a_pull_filters_by_tags_and_commits(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("T")
    for number in range(4):
        await send(remoting.client, b"%d" % number, properties=f"TAGS\x01{'ab'[number % 2]}")
    answer = await pull(
        remoting.client,
        subscription="b",
        sys_flag=SUBSCRIPTION | COMMIT_OFFSET,
        commit_offset=1,
    )
    assert bodies(answer) == [b"1", b"3"]
    consumers = remoting.running.broker.services.offsets.offsets
    assert await consumers.consumer_offsets(
        "G", [QueueKey("T", 0)], set_zero_if_not_found=False
    ) == [1]


async def test_a_pull_without_a_filter_needs_a_registered_subscription(
    remoting: RemotingBroker,
) -> None:
    await remoting.running.create_topic("T")
    answer = await pull(remoting.client, sys_flag=0)
    assert answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST


async def test_a_stop_answers_held_pulls(start_broker: StartBroker) -> None:
    async with start_broker(remoting_port=0) as running:
        await running.create_topic("T")
        assert running.ready.remoting_port is not None
        async with connected(running.ready.remoting_port) as client:
            held = asyncio.ensure_future(
                pull(client, sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_ms=15_000)
            )
            await running.held(1)
            running.broker.services.long_polling.calls.stop()
            assert (await held).code == ResponseCode.PULL_NOT_FOUND


async def test_a_stop_waits_for_the_answer_of_a_send(start_broker: StartBroker) -> None:
    async with contextlib.AsyncExitStack() as client_ends:
        async with start_broker(remoting_port=0, flush=FlushDiskType.SYNC_FLUSH) as running:
            await running.create_topic("T")
            assert running.ready.remoting_port is not None
            client = await client_ends.enter_async_context(connected(running.ready.remoting_port))
            sent = asyncio.ensure_future(send(client, b"last"))
            store = running.broker.store
            await until(lambda: store.range_of(QueueKey("T", 0)).max_offset == 1)
        assert (await sent).queue_offset == 0


async def test_a_lite_pull_is_a_pull(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("T")
    await send(remoting.client, b"body")
    assert bodies(await remoting.client.ask(Code.LITE_PULL_MESSAGE, pull_header())) == [b"body"]
