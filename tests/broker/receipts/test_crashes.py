"""Pops over restarts and kills of the broker, and in a directory that RocketMQ used meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocketpy_broker.services.receipts import revive
from rocketpy_broker.services.receipts.check_points import CheckPoint
from rocketpy_broker.services.receipts.popped import PopRequest
from rocketpy_broker.services.receipts.revive_log import decoded
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.rocketpy.v1 import groups_pb2
from tests.broker.receipts.test_pops import reset
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
from tests.support.broker.running_broker import StartBroker, until

SYNC, ASYNC = FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH
both = pytest.mark.parametrize("flush", [SYNC, ASYNC])
OFFSETS = "config/consumerOffset.json"


@both
async def test_after_a_kill_only_unacknowledged_messages_come_again(
    start_crashed: StartBroker, flush: FlushDiskType
) -> None:
    async with start_crashed(flush) as running:
        await running.create_topic(TOPIC, 1)
        await running.append(TOPIC, 0, b"a", b"b", b"c")
        popped = await pop(running, count_max=2)
        await ack(running, popped, 0)
        clock = running.clock
    async with start_crashed(flush, clock=clock) as running:
        # The popped ones are invisible over the kill.
        assert found(await pop(running, invisible_ms=600_000)) == [b"c"]
        await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        again = await pop(running)
        assert found(again) == [b"b"]
        await ack(running, again)
    async with start_crashed(flush, clock=clock) as running:
        # The check point is read again and copies nothing twice.
        await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        assert found(await pop(running)) == []
        assert revived(running) == 1


async def test_after_a_kill_a_reset_group_stays_where_it_was_reset_to(
    start_crashed: StartBroker,
) -> None:
    async with start_crashed(ASYNC) as running:
        await running.create_topic(TOPIC, 1)
        await running.append(TOPIC, 0, b"a", b"b", b"c")
        await ack(running, await pop(running))
        await reset(running, 1)
        clock = running.clock
    async with start_crashed(ASYNC, clock=clock) as running:
        assert found(await pop(running)) == [b"b", b"c"]


async def test_after_a_kill_a_changed_time_does_not_undo_a_reset(
    start_crashed: StartBroker,
) -> None:
    async with with_messages(start_crashed, b"a", b"b", flush=ASYNC) as running:
        popped = await pop(running)
        await reset(running, 0)
        queue, receipt = receipts(popped)[1]
        await services(running).acks.change_invisible_time(GROUP, queue, 1, receipt, 1_000)
        clock = running.clock
    async with start_crashed(ASYNC, clock=clock) as running:
        assert found(await pop(running)) == [b"a", b"b"]


async def test_a_group_created_again_starts_at_the_first_message_also_after_a_kill(
    start_crashed: StartBroker,
) -> None:
    async with with_messages(start_crashed, b"a", flush=ASYNC) as running:
        await ack(running, await pop(running))
        await running.groups.DeleteGroup(groups_pb2.DeleteGroupRequest(consumer_group=GROUP))
        assert await services(running).pops.has_message(PopRequest(GROUP, TOPIC))
        clock = running.clock
    async with start_crashed(ASYNC, clock=clock) as running:
        assert found(await pop(running)) == [b"a"]


async def test_a_group_deleted_without_its_offsets_continues_after_its_pops(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker, b"a", flush=SYNC) as running:
        await ack(running, await pop(running))
        await running.broker.services.admin.groups.remove(GROUP, keep_offsets=True)
        # The tables are saved meanwhile.
        await pass_time(running, INVISIBLE_MS)
        assert found(await pop(running)) == []


async def test_after_a_stop_the_revive_continues_after_what_it_has_handled(
    start_broker: StartBroker,
) -> None:
    async with start_broker(SYNC) as running:
        await running.create_topic(TOPIC, 1)
        await running.append(TOPIC, 0, b"a")
        popped = await pop(running)
        await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        clock, queue = running.clock, popped.revive_queue
        committed = running.broker.services.offsets.committed
        await until(lambda: committed.query(revive.GROUP, *queue) == 0)
    async with start_broker(SYNC, clock=clock) as running:
        await pass_time(running, REVIVE_MS)
        assert (revived(running), found(await pop(running))) == (1, [b"a"])


async def test_the_store_has_check_points_and_acknowledgements_of_rocketmq(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as running:
        await running.create_topic(TOPIC, 1)
        await running.append(TOPIC, 0, b"a", b"b")
        popped = await pop(running)
        await ack(running, popped, 1)
        await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        queue, pop_ms = popped.revive_queue, popped.pop_ms
        assert queue.topic == "rmq_sys_REVIVE_LOG_DefaultCluster"
        responses = await running.pull(topic=queue.topic, queue_id=queue.queue_id)
        data = b"".join(each.records for each in responses)
        point, acked = (
            json.loads(data[at : data.index(b"}", at) + 1])
            for at in (data.index(b'{"bm"'), data.index(b'{"ao"'))
        )
        assert point == {
            "bm": 0,
            "bn": "broker-a",
            "c": GROUP,
            "d": [0, 1],
            "it": INVISIBLE_MS,
            "n": 2,
            "pt": pop_ms,
            "q": 0,
            "reviveTime": pop_ms + INVISIBLE_MS,
            "ro": 0,
            "so": 0,
            "t": TOPIC,
            "rp": None,
        }
        assert acked == {
            "ao": 1,
            "bn": "broker-a",
            "c": GROUP,
            "pt": pop_ms,
            "q": 0,
            "so": 0,
            "t": TOPIC,
        }
        names = f"{TOPIC}@0@0@{GROUP}@{pop_ms}@broker-a@ck", f"{TOPIC}@0@1@{GROUP}@{pop_ms}"
        assert all(each.encode() in data for each in names)


async def test_rocketmqs_file_of_offsets_starts_no_scan(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """Covers a save of RocketMQ, which omits this broker's field."""
    async with start_broker() as running:
        await running.create_topic(TOPIC, 1)
        await running.append(TOPIC, 0, b"a", b"b")
        await ack(running, await pop(running, count_max=1))
        clock = running.clock
    content = json.loads((tmp_path / OFFSETS).read_text())
    assert content.pop("rocketpyPopLogOffset") > 0
    content["offsetTable"][f"{TOPIC}@{GROUP}"] = {"0": 0}
    (tmp_path / OFFSETS).write_text(json.dumps(content))
    async with start_broker(clock=clock) as running:
        assert found(await pop(running)) == [b"a", b"b"]


async def test_messages_of_a_deleted_topic_do_not_come_again(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        await running.create_topic(TOPIC, 1)
        await running.append(TOPIC, 0, b"failed")
        await pop(running)
        await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        assert revived(running) == 1
        await running.append(TOPIC, 0, b"old")
        assert found(await pop(running, count_max=1)) == [b"old"]
        await running.broker.services.admin.admin.delete_topic(TOPIC)
        await running.create_topic(TOPIC, 1)
        await running.append(TOPIC, 0, b"new")
        await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        assert revived(running) == 0
        assert RETRY_TOPIC not in running.broker.services.topics
        assert found(await pop(running)) == [b"new"]


def test_a_broken_check_point_is_no_check_point() -> None:
    many = list(range(1_000))
    for count, differences in ((1 << 40, None), (128, None), (1, many)):
        body = {"c": "g", "it": 1, "n": count, "pt": 1, "q": 0, "so": 0, "t": "T"}
        if differences is not None:
            body["d"] = differences
        assert revive_decoded(body) is None
    assert isinstance(revive_decoded({**body, "d": [0], "n": 1}), CheckPoint)


def revive_decoded(body: dict[str, object]) -> object:
    """Returns the entry of a message of the revive topic."""
    return decoded("ck", json.dumps(body).encode())
