"""Offsets of RocketMQ's clients and tools: codes 14, 15, 29 to 32, 43 and 45."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rocketpy_broker.server.remoting.processors.offset_processor import BODY_BYTES_MAX
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.model.configs import TopicConfig
from rocketpy_proto.remoting import (
    EXCHANGES,
    RemotingCommand,
    decode_body,
)
from rocketpy_proto.remoting.bodies.stats import ConsumerOffsets, DelayOffsets
from rocketpy_proto.remoting.headers.offsets import (
    LOWER,
    UPPER,
    EarliestStoreTimeResponse,
    GetMaxOffsetRequest,
    OffsetResponse,
    QueryConsumerOffsetRequest,
    QueueRequest,
    SearchOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from tests.broker.remoting.test_sends_and_pulls import pull, send
from tests.support.broker.clients.remoting_client import RemotingBroker
from tests.support.broker.running_broker import until
from tests.unit.remoting import recorded

INT32_MAX, INT64_MAX = (1 << 31) - 1, (1 << 63) - 1
NO_QUEUES = [("none", 0), ("T", 9), ("T", -1), ("T", INT32_MAX)]


async def prepared(remoting: RemotingBroker, count: int = 0, queues: int = 2) -> None:
    """Creates topic T with messages a second apart, and the group G."""
    await remoting.running.create_topic("T", queues)
    for number in range(count):
        if number:
            remoting.running.clock.advance(1_000)
        await send(remoting.client, b"%d" % number)
    await pull(remoting.client)


async def update(remoting: RemotingBroker, offset: int, **fields: Any) -> RemotingCommand:
    usual: dict[str, Any] = {"consumer_group": "G", "topic": "T", "queue_id": 0}
    header = UpdateConsumerOffsetRequest(**usual | fields, commit_offset=offset)
    return await remoting.client.ask(Code.UPDATE_CONSUMER_OFFSET, header)


async def query(
    remoting: RemotingBroker, *, zero: bool | None = False, **fields: Any
) -> RemotingCommand:
    usual: dict[str, Any] = {"consumer_group": "G", "topic": "T", "queue_id": 0}
    header = QueryConsumerOffsetRequest(**usual | fields, is_zero_if_not_found=zero)
    return await remoting.client.ask(Code.QUERY_CONSUMER_OFFSET, header)


def offset_of(answer: RemotingCommand) -> int:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    found: OffsetResponse = EXCHANGES[Code.GET_MAX_OFFSET].response.decode(answer.ext_fields)
    return found.offset


async def search(
    remoting: RemotingBroker, store_ms: int, boundary: str | None = None, **fields: Any
) -> int:
    usual: dict[str, Any] = {"topic": "T", "queue_id": 0}
    header = SearchOffsetRequest(**usual | fields, store_ms=store_ms, boundary_type=boundary)
    return offset_of(await remoting.client.ask(Code.SEARCH_OFFSET_BY_TIMESTAMP, header))


async def earliest(remoting: RemotingBroker, topic: str, queue_id: int) -> int:
    header = QueueRequest(topic, queue_id)
    answer = await remoting.client.ask(Code.GET_EARLIEST_MSG_STORETIME, header)
    assert answer.code == ResponseCode.SUCCESS
    form = EXCHANGES[Code.GET_EARLIEST_MSG_STORETIME].response
    found: EarliestStoreTimeResponse = form.decode(answer.ext_fields)
    return found.store_ms


# --- Offsets of groups ---


async def test_an_offset_is_updated_and_queried(remoting: RemotingBroker) -> None:
    await prepared(remoting)
    assert (await query(remoting)).code == ResponseCode.QUERY_NOT_FOUND
    for offset in (7, 3, INT64_MAX, 0):
        answer = await update(remoting, offset)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        assert offset_of(await query(remoting)) == offset


@pytest.mark.parametrize("zero", [True, None])
async def test_a_missing_offset_is_0_while_its_queue_begins_at_0(
    remoting: RemotingBroker, zero: bool | None
) -> None:
    await prepared(remoting, 1)
    assert offset_of(await query(remoting, zero=zero)) == 0
    assert (await query(remoting)).code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize(("topic", "queue_id"), NO_QUEUES)
async def test_a_missing_queue_has_no_offset(
    remoting: RemotingBroker, topic: str, queue_id: int
) -> None:
    await prepared(remoting)
    answer = await query(remoting, zero=True, topic=topic, queue_id=queue_id)
    assert answer.code == ResponseCode.QUERY_NOT_FOUND


async def test_a_group_of_any_name_may_be_queried(remoting: RemotingBroker) -> None:
    await prepared(remoting)
    for group in ("", "a b", "x" * 1_000, "unknown"):
        answer = await query(remoting, consumer_group=group)
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        assert group not in remoting.running.broker.services.groups.configs


@pytest.mark.parametrize(
    ("offset", "fields", "code"),
    [
        (1, {"consumer_group": "none"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        (1, {"topic": "none"}, ResponseCode.TOPIC_NOT_EXIST),
        (1, {"consumer_group": "CID_RMQ_SYS_TRANS"}, ResponseCode.NO_PERMISSION),
        (1, {"queue_id": -1}, ResponseCode.INVALID_PARAMETER),
        (1, {"queue_id": 2}, ResponseCode.INVALID_PARAMETER),
        (1, {"queue_id": INT32_MAX}, ResponseCode.INVALID_PARAMETER),
        (-1, {}, ResponseCode.INVALID_PARAMETER),
        (-INT64_MAX, {}, ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_refused_updates_change_nothing(
    remoting: RemotingBroker, offset: int, fields: dict[str, Any], code: ResponseCode
) -> None:
    await prepared(remoting)
    answer = await update(remoting, offset, **fields)
    assert answer.code == code, answer.remark
    assert answer.remark
    committed = remoting.running.broker.services.offsets.committed
    assert [each async for each in committed.entries()] == []


async def test_a_one_way_update_is_stored_although_its_connection_ends(
    remoting: RemotingBroker,
) -> None:
    await prepared(remoting)
    form = EXCHANGES[Code.UPDATE_CONSUMER_OFFSET].request
    async with remoting.another() as other:
        for offset in range(1, 200):
            header = form.encode(UpdateConsumerOffsetRequest("G", "T", 1, offset))
            other.tell(RemotingCommand(Code.UPDATE_CONSUMER_OFFSET, 1, flag=2, ext_fields=header))
        await other.writer.drain()
    committed = remoting.running.broker.services.offsets.committed
    await until(lambda: committed.query("G", "T", 1) == 199)


@pytest.mark.parametrize("perm", [6, 2])
async def test_a_consumer_finishes_a_queue_that_readers_no_longer_see(
    remoting: RemotingBroker, perm: int
) -> None:
    await prepared(remoting)
    await send(remoting.client, b"x", queue_id=1)
    topics = remoting.running.broker.services.topics
    await topics.update(TopicConfig("T", 1, 1, perm), create_only=False)
    assert (await update(remoting, 1, queue_id=1)).code == ResponseCode.SUCCESS
    assert offset_of(await query(remoting, queue_id=1)) == 1


@recorded.needs_golden
async def test_recorded_requests_get_the_recorded_answers(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("GoldT", 1)
    for body in (b"hello", b"world"):
        await send(remoting.client, body, topic="GoldT")
    await pull(remoting.client, topic="GoldT", consumer_group="GoldG")
    for exchange in (
        "17_query_offset_not_found",
        "18_update_offset",
        "19_query_offset",
        "20_update_offset_unknown_group",
        "21_max_offset",
        "22_min_offset",
        "23_search_offset_lower",
        "24_search_offset_upper",
    ):
        remoting.client.tell(recorded.request(exchange))
        answer, expected = await remoting.client.next(), recorded.response(exchange)
        assert answer.opaque == expected.opaque
        assert answer.code == expected.code, (exchange, answer.remark)
        assert answer.ext_fields == expected.ext_fields, exchange


@recorded.needs_golden
@pytest.mark.parametrize("exchange", ["J10_java_update_offset", "J11_java_query_offset"])
async def test_javas_requests_for_offsets_are_understood(
    remoting: RemotingBroker, exchange: str
) -> None:
    await remoting.running.create_topic("ProbeJ")
    await pull(remoting.client, topic="ProbeJ", consumer_group="JCG")
    remoting.client.tell(recorded.request(exchange))
    if exchange.startswith("J11"):
        assert offset_of(await remoting.client.next()) == 0
    else:
        committed = remoting.running.broker.services.offsets.committed
        await until(lambda: committed.query("JCG", "ProbeJ", 3) == 2)


# --- Offsets of queues ---


async def test_bounds_and_times_of_a_queue(remoting: RemotingBroker) -> None:
    await prepared(remoting, 3)
    now_ms = remoting.running.clock.now_ms()
    client = remoting.client
    assert offset_of(await client.ask(Code.GET_MAX_OFFSET, GetMaxOffsetRequest("T", 0))) == 3
    assert offset_of(await client.ask(Code.GET_MIN_OFFSET, QueueRequest("T", 0))) == 0
    assert await earliest(remoting, "T", 0) == now_ms - 2_000


@pytest.mark.parametrize(("topic", "queue_id"), [("T", 1), *NO_QUEUES])
async def test_a_queue_without_messages_has_zeros(
    remoting: RemotingBroker, topic: str, queue_id: int
) -> None:
    await prepared(remoting, 3)
    client = remoting.client
    request = GetMaxOffsetRequest(topic, queue_id)
    assert offset_of(await client.ask(Code.GET_MAX_OFFSET, request)) == 0
    assert offset_of(await client.ask(Code.GET_MIN_OFFSET, QueueRequest(topic, queue_id))) == 0
    assert await earliest(remoting, topic, queue_id) == -1
    for boundary in (LOWER, UPPER):
        for store_ms in (-1, 0, INT64_MAX):
            found = await search(remoting, store_ms, boundary, topic=topic, queue_id=queue_id)
            assert found == 0
    assert remoting.running.broker.store.queues() == [QueueKey("T", 0)]


@pytest.mark.parametrize(
    ("ago_ms", "lower", "upper"),
    [
        (-INT64_MAX // 2, 4, 3),
        (-1, 4, 3),
        (0, 3, 3),
        (1, 3, 2),
        (2_000, 1, 1),
        (3_000, 0, 0),
        (3_001, 0, 0),
    ],
)
async def test_a_search_by_time_has_two_boundaries(
    remoting: RemotingBroker, ago_ms: int, lower: int, upper: int
) -> None:
    await prepared(remoting, 4)
    store_ms = remoting.running.clock.now_ms() - ago_ms
    names = {None: lower, LOWER: lower, "lower": lower, "?": lower, UPPER: upper, "upper": upper}
    for boundary, expected in names.items():
        assert await search(remoting, store_ms, boundary) == expected, boundary


@pytest.mark.parametrize("store_ms", [0, -1, -INT64_MAX])
async def test_a_search_before_all_messages_finds_the_first(
    remoting: RemotingBroker, store_ms: int
) -> None:
    await prepared(remoting, 4)
    for boundary in (LOWER, UPPER):
        assert await search(remoting, store_ms, boundary) == 0


# --- Tables ---


async def test_all_offsets_of_all_groups_are_read_by_java(remoting: RemotingBroker) -> None:
    await prepared(remoting)
    await pull(remoting.client, consumer_group="H")
    for group, queue_id, offset in (("G", 0, 3), ("G", 1, INT64_MAX), ("H", 0, 1)):
        await update(remoting, offset, consumer_group=group, queue_id=queue_id)
    answer = await remoting.client.ask(Code.GET_ALL_CONSUMER_OFFSET)
    table = decode_body(ConsumerOffsets, answer.body)
    assert table.offset_table == {"T@G": {0: 3, 1: INT64_MAX}, "T@H": {0: 1}}
    assert table.data_version is not None


async def test_a_table_of_no_offsets_is_empty(remoting: RemotingBroker) -> None:
    answer = await remoting.client.ask(Code.GET_ALL_CONSUMER_OFFSET)
    assert msgspec.json.decode(answer.body)["offsetTable"] == {}


async def test_a_table_that_fits_no_frame_is_refused(remoting: RemotingBroker) -> None:
    await prepared(remoting)
    committed = remoting.running.broker.services.offsets.committed
    for number in range(BODY_BYTES_MAX // 60_000 + 1):
        committed.commit(f"{number}" + "G" * 60_000, "T", 0, 1)
    answer = await remoting.client.ask(Code.GET_ALL_CONSUMER_OFFSET)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "limit 16711680. Request its entries one by one" in (answer.remark or "")
    await committed.delete_group("0" + "G" * 60_000)
    answer = await remoting.client.ask(Code.GET_ALL_CONSUMER_OFFSET)
    assert answer.code == ResponseCode.SUCCESS
    assert 16_500_000 < len(answer.body) <= BODY_BYTES_MAX


async def test_delay_offsets_are_the_deliveries_of_each_level(remoting: RemotingBroker) -> None:
    await prepared(remoting)
    answer = await remoting.client.ask(Code.GET_ALL_DELAY_OFFSET)
    assert msgspec.json.decode(answer.body)["offsetTable"] == {}
    for level in (1, 1, 2):
        await send(remoting.client, b"x", properties=f"DELAY\x01{level}")
    remoting.running.clock.advance(1_000)
    progress = remoting.running.broker.services.delay.progress
    await until(lambda: progress.next_offset(1) == 2)
    answer = await remoting.client.ask(Code.GET_ALL_DELAY_OFFSET)
    table = decode_body(DelayOffsets, answer.body)
    assert table.offset_table == {1: 2}
    assert table.data_version is not None
