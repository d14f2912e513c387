"""Look-ups of messages by RocketMQ's clients: codes 33 and 12."""

from __future__ import annotations

from typing import Any

import pytest

from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record import decode_offset_message_id, decode_record
from rocketpy_proto.remoting import EXCHANGES, RemotingCommand
from rocketpy_proto.remoting.headers.pulls import (
    QueryMessageRequest,
    QueryMessageResponse,
    ViewMessageRequest,
)
from tests.broker.remoting.test_sends_and_pulls import bodies, pull, send
from tests.support.broker.clients.remoting_client import RemotingBroker, RemotingClient, connected
from tests.support.broker.running_broker import StartBroker
from tests.unit.remoting import recorded

INT32_MAX, INT64_MAX = (1 << 31) - 1, (1 << 63) - 1
MIB = 1 << 20


async def sent(client: RemotingClient, body: bytes, properties: str = "", **fields: Any) -> int:
    """Sends a message; returns its offset in the log."""
    answer = await send(client, body, properties=properties, **fields)
    return decode_offset_message_id(answer.msg_id)[1]


async def view(client: RemotingClient, offset: int) -> RemotingCommand:
    return await client.ask(Code.VIEW_MESSAGE_BY_ID, ViewMessageRequest(offset))


async def query(client: RemotingClient, key: str, **fields: Any) -> RemotingCommand:
    usual: dict[str, Any] = {"topic": "T", "key": key, "max_num": 64}
    usual |= {"begin_ms": 0, "end_ms": INT64_MAX}
    return await client.ask(Code.QUERY_MESSAGE, QueryMessageRequest(**usual | fields))


async def found(client: RemotingClient, key: str, **fields: Any) -> list[bytes]:
    answer = await query(client, key, **fields)
    assert answer.code in {ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND}, answer.remark
    assert (answer.code == ResponseCode.SUCCESS) is bool(answer.body)
    return bodies(answer)


async def test_a_message_is_viewed_as_it_is_stored(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("T")
    await sent(remoting.client, b"before")
    offset = await sent(remoting.client, b"x", "KEYS\x01k\x02")
    answer = await view(remoting.client, offset)
    assert (answer.code, answer.ext_fields) == (ResponseCode.SUCCESS, {})
    record = decode_record(answer.body).record
    assert (record.body, record.physical_offset) == (b"x", offset)
    pulled = await pull(remoting.client)
    assert bytes(pulled.body).endswith(bytes(answer.body))


@pytest.mark.parametrize("offset", [-1, 1, 1 << 40, INT64_MAX, -INT64_MAX])
async def test_an_offset_without_a_message_is_refused(
    remoting: RemotingBroker, offset: int
) -> None:
    await remoting.running.create_topic("T")
    await sent(remoting.client, b"x")
    answer = await view(remoting.client, offset)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"can not find message by the offset, {offset}"


async def test_messages_are_found_by_each_of_their_keys(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("T")
    client = remoting.client
    await sent(client, b"1", "KEYS\x01a b\x02UNIQ_KEY\x01u1\x02")
    await sent(client, b"2", "KEYS\x01b\x02UNIQ_KEY\x01u2\x02")
    await sent(client, b"3", "KEYS\x01u1\x02UNIQ_KEY\x01u3\x02")
    assert await found(client, "b") == [b"1", b"2"]
    assert await found(client, "a") == [b"1"]
    assert await found(client, "u1") == [b"1", b"3"]
    assert await found(client, "u1", is_unique_key_query=True, max_num=0) == [b"1"]
    assert await found(client, "a", is_unique_key_query=True) == []
    for nothing in ({"key": ""}, {"topic": "none"}, {"topic": "a b"}, {"key": "none"}):
        assert await found(client, **{"key": "a"} | nothing) == []


async def test_the_answer_names_the_last_indexed_message(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("T")
    offset = await sent(remoting.client, b"1", "KEYS\x01a\x02")
    answer = await query(remoting.client, "a")
    position = EXCHANGES[Code.QUERY_MESSAGE].response.decode(answer.ext_fields)
    assert position == QueryMessageResponse(remoting.running.clock.now_ms(), offset)


async def test_a_query_before_the_first_message_finds_nothing(remoting: RemotingBroker) -> None:
    answer = await query(remoting.client, "a")
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert answer.remark
    position = EXCHANGES[Code.QUERY_MESSAGE].response.decode(answer.ext_fields)
    assert position == QueryMessageResponse(0, 0)


@pytest.mark.parametrize(
    ("count_max", "count"), [(3, 3), (64, 64), (INT32_MAX, 64), (0, 0), (-1, 0), (-INT32_MAX, 0)]
)
async def test_a_query_finds_the_newest_messages(
    remoting: RemotingBroker, count_max: int, count: int
) -> None:
    await remoting.running.create_topic("T")
    for number in range(70):
        await sent(remoting.client, b"%d" % number, "KEYS\x01k\x02")
    newest = [b"%d" % number for number in range(70 - count, 70)]
    assert await found(remoting.client, "k", max_num=count_max) == newest


async def test_a_query_has_a_time_window(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("T")
    begin_ms = remoting.running.clock.now_ms()
    for number in range(4):
        await sent(remoting.client, b"%d" % number, "KEYS\x01k\x02")
        remoting.running.clock.advance(10_000)
    for begin, end, expected in (
        (0, 30_000, [b"0", b"1", b"2", b"3"]),
        (10_000, 20_000, [b"1", b"2"]),
        (31_000, 90_000, []),
        (20_000, 10_000, []),
    ):
        window = {"begin_ms": begin_ms + begin, "end_ms": begin_ms + end}
        assert await found(remoting.client, "k", **window) == expected, window
    for end_ms in (-1, -INT64_MAX, 0):
        assert await found(remoting.client, "k", end_ms=end_ms) == []
    assert len(await found(remoting.client, "k", begin_ms=-INT64_MAX)) == 4


async def test_an_answer_is_bounded_and_has_the_newest_messages(
    start_broker: StartBroker,
) -> None:
    async with (
        start_broker(remoting_port=0, commit_log_segment_bytes=64 * MIB) as running,
        connected(running.ready.remoting_port or 0) as client,
    ):
        await running.create_topic("T")
        for size in (3 * MIB, MIB, MIB, 2 * MIB - 10_000):
            await sent(client, bytes(size), "KEYS\x01k\x02")
        assert [*map(len, await found(client, "k"))] == [MIB, MIB, 2 * MIB - 10_000]
        await sent(client, bytes(4 * MIB), "KEYS\x01k\x02")
        assert [*map(len, await found(client, "k"))] == [4 * MIB]


async def test_a_deleted_topic_has_no_messages(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("T")
    await sent(remoting.client, b"x", "KEYS\x01k\x02")
    await remoting.running.broker.services.admin.admin.delete_topic("T")
    assert await found(remoting.client, "k") == []


@recorded.needs_golden
async def test_recorded_lookups_get_the_recorded_answers(remoting: RemotingBroker) -> None:
    client, missing = remoting.client, "32_view_message_missing"
    client.tell(recorded.request(missing))
    answer, expected = await client.next(), recorded.response(missing)
    assert (answer.code, answer.remark) == (expected.code, expected.remark)
    await remoting.running.create_topic("GoldT")
    await send(client, b"hello", topic="GoldT", properties="KEYS\x01k1 k2\x02")
    client.tell(recorded.request("33_query_message"))
    answer, expected = await client.next(), recorded.response("33_query_message")
    assert answer.code == expected.code
    assert answer.ext_fields.keys() == expected.ext_fields.keys()
    assert bodies(answer) == bodies(expected) == [b"hello"]
