"""Pops, acknowledgements and revivals, by the service on a real store."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from rocketpy_broker.config import SystemTopicOptions
from rocketpy_broker.errors import (
    BrokerError,
    ParameterIllegalError,
    PermissionDeniedError,
    RecordIllegalError,
    SubscriptionGroupNotExistError,
    SubscriptionParseError,
    TopicNotExistError,
)
from rocketpy_broker.services.filters.service import FilterText
from rocketpy_broker.services.receipts.handle import MessageGoneError, ReceiptIllegalError
from rocketpy_broker.services.receipts.popped import PopRequest
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.configs import SubscriptionGroupConfig
from rocketpy_proto.record import decode_record
from rocketpy_proto.rocketpy.v1 import admin_pb2, groups_pb2
from tests.support.blocks import wire_block
from tests.support.broker.pops import (
    GROUP,
    INVISIBLE_MS,
    RETRY_TOPIC,
    REVIVE_MS,
    TOPIC,
    ack,
    found,
    pass_time,
    pop,
    receipts,
    revived,
    services,
    with_messages,
)
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.store.disk_calls import holding

both = pytest.mark.parametrize("flush", [FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH])


@both
async def test_a_popped_message_is_invisible_and_an_acknowledged_one_never_comes_again(
    start_broker: StartBroker, flush: FlushDiskType
) -> None:
    async with with_messages(start_broker, b"a", b"b", b"c", flush=flush) as running:
        popped = await pop(running)
        assert found(popped) == [b"a", b"b", b"c"]
        assert found(await pop(running)) == []
        await ack(running, popped, 0, 2)
        await pass_time(running, INVISIBLE_MS - 1_000)
        assert found(await pop(running)) == []
        assert revived(running) == 0
        await pass_time(running, 1_000 + REVIVE_MS)
        again = await pop(running)
        assert found(again) == [b"b"]
        await ack(running, again)
        await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        assert found(await pop(running)) == []
        assert revived(running) == 1


async def test_a_revived_message_has_its_origin_and_one_more_delivery(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as running:
        await running.create_topic(TOPIC, 1)
        block = wire_block(TOPIC, [b"x"], tags="A", properties={"own": ["value"]})
        await running.append_block(TOPIC, 0, block)
        first_ms = running.clock.now_ms()
        times = []
        for _ in range(3):
            popped = await pop(running)
            (part,) = popped.queues
            record = decode_record(bytes(part.block.data)).record
            times.append((record.topic, record.reconsume_times, popped.receipts(part)[0].kind))
            await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        assert times == [(TOPIC, 0, "0"), (RETRY_TOPIC, 1, "1"), (RETRY_TOPIC, 2, "1")]
        named = {name: record.properties.get(name) for name in ("RETRY_TOPIC", "TAGS", "own")}
        assert named == {"RETRY_TOPIC": TOPIC, "TAGS": "A", "own": "value"}
        assert record.properties["1ST_POP_TIME"] == str(first_ms)
        assert record.properties["ORIGIN_GROUP"] == GROUP


async def test_groups_do_not_share_messages(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, b"a") as running:
        for group in ("g", "h"):
            popped = await pop(running, group)
            assert found(popped) == [b"a"]
        await ack(running, popped, group="h")
        await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        assert [found(await pop(running, group)) for group in ("g", "h")] == [[b"a"], []]


async def test_a_pop_takes_messages_of_all_queues_up_to_its_number(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker, queues=3) as running:
        for queue_id in range(3):
            await running.append(TOPIC, queue_id, *[b"%d" % queue_id] * 2)
        first = await pop(running, count_max=4)
        assert (first.count, first.rest_count) == (4, 2)
        second = await pop(running)
        assert (second.count, second.rest_count) == (2, 0)
        assert sorted(found(first) + found(second)) == [b"0", b"0", b"1", b"1", b"2", b"2"]


async def test_a_pop_of_one_queue_leaves_the_others(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, b"0", queues=2) as running:
        await running.append(TOPIC, 1, b"1")
        assert found(await pop(running, queue_id=1)) == [b"1"]
        assert found(await pop(running, queue_id=1)) == []
        assert found(await pop(running)) == [b"0"]


async def test_one_pop_in_five_asks_the_retry_topic_first(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, *[b"failed"] * 5) as running:
        while (await pop(running)).queues:
            pass
        await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        assert revived(running) == 5
        await running.append(TOPIC, 0, *[b"new"] * 20)
        first = [found(await pop(running, count_max=1))[0] for _ in range(10)]
        assert first.count(b"failed") == 2


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (FilterText("TAG", "A || C"), [b"A1", b"A2"]),
        (FilterText("SQL92", "TAGS = 'B'"), [b"B1"]),
    ],
)
async def test_messages_that_do_not_match_are_skipped(
    start_broker: StartBroker, text: FilterText, wanted: list[bytes]
) -> None:
    async with with_messages(start_broker) as running:
        for tag, body in (("A", b"A1"), ("B", b"B1"), ("A", b"A2"), ("D", b"D1")):
            await running.append_block(TOPIC, 0, wire_block(TOPIC, [body], tags=tag))
        popped = await pop(running, filter_text=text)
        assert (found(popped), popped.rest_count) == (wanted, 0)
        assert found(await pop(running)) == []
        await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        assert found(await pop(running, filter_text=text)) == wanted


async def test_a_held_pop_is_woken_by_a_message_and_by_a_revival(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker) as running:
        held = asyncio.ensure_future(pop(running, wait_ms=20_000))
        await running.held(1)
        assert services(running).pops.polling_count(GROUP, TOPIC, -1) == 1
        await running.append(TOPIC, 0, b"a")
        assert found(await held) == [b"a"]
        again = asyncio.ensure_future(pop(running, wait_ms=20_000))
        await running.held(1)
        await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        assert found(await again) == [b"a"]
        assert services(running).pops.polling_count(GROUP, TOPIC, -1) == 0


async def test_a_held_pop_without_a_message_ends(start_broker: StartBroker) -> None:
    async with with_messages(start_broker) as running:
        request = PopRequest(GROUP, TOPIC, wait_ms=1_000)
        held = asyncio.ensure_future(pop(running, wait_ms=1_000))
        notified = asyncio.ensure_future(services(running).pops.has_message(request))
        await running.held(2)
        running.clock.advance(1_000)
        assert (await held).queues == []
        assert await notified is False


async def test_a_notification_and_a_peek_change_nothing(start_broker: StartBroker) -> None:
    async with with_messages(start_broker) as running:
        pops, request = services(running).pops, PopRequest(GROUP, TOPIC, wait_ms=20_000)
        notified = asyncio.ensure_future(pops.has_message(request))
        await running.held(1)
        await running.append(TOPIC, 0, b"a", b"b")
        assert await notified is True
        assert found(await pops.peek(request)) == [b"a", b"b"]
        assert found(await pops.peek(request)) == [b"a", b"b"]
        assert found(await pop(running)) == [b"a", b"b"]
        assert found(await pops.peek(request)) == []


async def test_a_changed_time_makes_the_message_visible_then(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, b"longer", b"shorter") as running:
        acks = services(running).acks
        popped = await pop(running)
        (queue, longer), (_, shorter) = receipts(popped)
        changed = await acks.change_invisible_time(GROUP, queue, 0, longer, 60_000)
        await acks.change_invisible_time(GROUP, queue, 1, shorter, 1_000)
        assert (changed.invisible_ms, changed.start_offset, changed.offset) == (60_000, 0, 0)
        await pass_time(running, 1_000 + REVIVE_MS)
        again = await pop(running)
        assert found(again) == [b"shorter"]
        await ack(running, again)
        # The first receipt is void.
        await acks.ack(GROUP, queue, [0], longer)
        await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        assert found(await pop(running)) == []
        await pass_time(running, 60_000)
        assert found(await pop(running)) == [b"longer"]


async def test_an_acknowledgement_by_the_changed_receipt_counts(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker, b"a") as running:
        acks = services(running).acks
        ((queue, receipt),) = receipts(await pop(running))
        changed = await acks.change_invisible_time(GROUP, queue, 0, receipt, 0)
        await acks.ack(GROUP, queue, [0], changed)
        await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        assert revived(running) == 0


async def test_several_messages_are_acknowledged_at_once(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, b"a", b"b", b"c") as running:
        popped = await pop(running)
        queue, receipt = receipts(popped)[0]
        await services(running).acks.ack(GROUP, queue, [0, 2], receipt)
        await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        assert found(await pop(running)) == [b"b"]


async def test_a_late_acknowledgement_counts_until_the_revival(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker, b"a", b"b") as running:
        popped = await pop(running)
        await pass_time(running, INVISIBLE_MS + 1_000)
        await ack(running, popped, 0)
        await pass_time(running, REVIVE_MS)
        assert found(await pop(running)) == [b"b"]
        # Later ones change nothing.
        await ack(running, popped, 1)
        await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        assert found(await pop(running)) == [b"b"]


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"topic": "none"}, TopicNotExistError),
        ({"count_max": 0}, ParameterIllegalError),
        ({"count_max": 33}, ParameterIllegalError),
        ({"invisible_ms": 0}, ParameterIllegalError),
        ({"invisible_ms": 1 << 50}, ParameterIllegalError),
        ({"queue_id": 4}, BrokerError),
        ({"group": "a b"}, ParameterIllegalError),
        ({"group": "off"}, PermissionDeniedError),
        ({"group": "CID_RMQ_SYS_REVIVE_GROUP"}, PermissionDeniedError),
        ({"attempt_id": "x" * 256}, ParameterIllegalError),
        ({"filter_text": FilterText("SQL92", "a >")}, SubscriptionParseError),
    ],
)
async def test_an_illegal_pop_changes_nothing(
    start_broker: StartBroker, fields: dict[str, object], kind: type[BrokerError]
) -> None:
    async with with_messages(start_broker, b"a") as running:
        off = SubscriptionGroupConfig("off", consume_enable=False)
        await running.broker.services.groups.configs.update(off)
        end = running.broker.store.positions().log_end
        with pytest.raises(kind):
            await pop(running, **fields)  # type: ignore[arg-type]
        assert running.broker.store.positions().log_end == end
        assert GROUP not in running.broker.services.groups.configs


async def test_illegal_receipts_are_refused(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, b"a") as running:
        ((queue, receipt),) = receipts(await pop(running))
        end, acks = running.broker.store.positions().log_end, services(running).acks
        for group, at, offset, kind in (
            ("none", queue, 0, SubscriptionGroupNotExistError),
            (GROUP, QueueKey("none", 0), 0, TopicNotExistError),
            ("CID_RMQ_SYS_REVIVE_GROUP", queue, 0, PermissionDeniedError),
            (GROUP, QueueKey(TOPIC, -1), 0, ReceiptIllegalError),
            (GROUP, QueueKey(TOPIC, 1), 0, MessageGoneError),
            (GROUP, queue, 1, MessageGoneError),
            (GROUP, queue, -1, MessageGoneError),
        ):
            with pytest.raises(kind):
                await acks.ack(group, at, [offset], receipt)
            with pytest.raises(kind):
                await acks.change_invisible_time(group, at, offset, receipt, 1_000)
        assert running.broker.store.positions().log_end == end


@pytest.mark.parametrize("broker_name", ["a\x01b\x02c", "b" * 40_000])
async def test_a_receipt_that_no_record_can_hold_is_refused(
    start_broker: StartBroker, broker_name: str
) -> None:
    async with with_messages(start_broker, b"a") as running:
        ((queue, receipt),) = receipts(await pop(running))
        bad = replace(receipt, broker_name=broker_name)
        with pytest.raises(RecordIllegalError):
            await services(running).acks.ack(GROUP, queue, [0], bad)


async def test_an_acknowledgement_counts_after_the_topic_lost_the_queue(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker, queues=2) as running:
        await running.append(TOPIC, 1, b"a")
        popped = await pop(running)
        config = admin_pb2.TopicConfig(topic=TOPIC, read_queue_nums=1, write_queue_nums=1, perm=6)
        await running.admin.UpdateTopic(admin_pb2.UpdateTopicRequest(config=config))
        await ack(running, popped)
        await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        assert revived(running) == 0


async def test_after_the_clock_was_set_back_no_acknowledged_message_comes_again(
    start_broker: StartBroker,
) -> None:
    options = SystemTopicOptions(revive_queue_nums=1)
    async with with_messages(start_broker, b"a", system_topics=options) as running:
        await pop(running, "h")
        await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        running.clock.jump(-60_000)
        await ack(running, await pop(running))
        await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        assert (revived(running), found(await pop(running))) == (0, [])


async def test_a_group_continues_where_it_was_reset_to(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, b"a", b"b", b"c") as running:
        await ack(running, await pop(running))
        await reset(running, 1)
        assert found(await pop(running)) == [b"b", b"c"]


async def reset(running: RunningBroker, offset: int) -> None:
    """Resets the group to an offset of queue 0."""
    request = groups_pb2.ResetOffsetsRequest(
        consumer_group=GROUP, topic=TOPIC, queue_id=0, offset=offset, force=True
    )
    await running.broker.services.offsets.resetting.reset(request)


async def test_a_redelivery_that_falls_due_while_its_topic_is_deleted_does_not_stay(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_messages(start_broker, b"a", flush=FlushDiskType.ASYNC_FLUSH) as running:
        await pop(running)
        with holding(monkeypatch, "fsync", "*/config/deletedTopics.json.tmp") as gate:
            request = admin_pb2.DeleteTopicRequest(topic=TOPIC)
            deleting = asyncio.ensure_future(running.admin.DeleteTopic(request))
            await gate.reached()
            await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        await deleting
        await running.create_topic(TOPIC, 1)
        assert found(await pop(running)) == []
        assert RETRY_TOPIC not in running.broker.services.topics
