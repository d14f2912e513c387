"""Limits of pops: steps of the event loop, full timers, and requests that would harm a group."""

from __future__ import annotations

import asyncio

import pytest

from rocketpy_broker.services.delay.errors import TimerFullError
from rocketpy_proto.rocketpy.v1 import admin_pb2
from tests.support.blocks import wire_block
from tests.support.broker.pops import (
    GROUP,
    INVISIBLE_MS,
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
from tests.support.broker.running_broker import StartBroker

QUEUES = 20


async def test_a_pop_of_many_queues_leaves_the_event_loop_after_each(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker, queues=QUEUES) as running:
        for queue_id in range(QUEUES):
            await running.append(TOPIC, queue_id, b"a")
        popping, ends = asyncio.ensure_future(pop(running)), set()
        while not popping.done():
            await asyncio.sleep(0)
            ends.add(running.broker.store.positions().log_end)
        assert (await popping).count == QUEUES
        # Each check point was seen as the last one of the log.
        assert len(ends) >= QUEUES


async def test_a_full_pop_commits_nothing_in_other_queues(start_broker: StartBroker) -> None:
    async with with_messages(start_broker, queues=QUEUES) as running:
        for queue_id in range(QUEUES):
            await running.append(TOPIC, queue_id, b"a")
        popped = await pop(running, count_max=1)
        assert popped.rest_count == QUEUES - 1
        committed = running.broker.services.offsets.committed
        assert len(committed.offsets_of(GROUP, TOPIC)) == 1


async def test_a_full_timer_refuses_pops_and_accepts_acknowledgements(
    start_broker: StartBroker,
) -> None:
    async with with_messages(start_broker, *[b"a"] * 3, timer_pending_max=2) as running:
        first = await pop(running, count_max=1)
        second = await pop(running, count_max=1)
        with pytest.raises(TimerFullError):
            await pop(running)
        await ack(running, first)
        await ack(running, second)
        # Twice the limit is the end for acknowledgements, too.
        with pytest.raises(TimerFullError):
            await ack(running, second)
        await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        assert revived(running) == 0


@pytest.mark.parametrize(
    "key",
    [
        "rmq_sys_REVIVE_LOG_DefaultCluster+T@0@0@g@{pop_ms}@broker-a@ck",
        "\0rmq_sys_REVIVE_LOG_DefaultCluster+T@0@0@g@{pop_ms}@broker-a@ck",
        "T@0@0@g@{pop_ms}@broker-a@ck",
        "\0{place}",
    ],
)
async def test_a_cancel_record_does_not_cancel_a_check_point(
    start_broker: StartBroker, key: str
) -> None:
    async with with_messages(start_broker, b"a") as running:
        place = running.broker.store.positions().log_end
        pop_ms = (await pop(running)).pop_ms
        properties = {
            "TIMER_DELIVER_MS": [str(pop_ms + INVISIBLE_MS - 1_000)],
            "TIMER_DEL_UNIQKEY": [key.format(pop_ms=pop_ms, place=place)],
        }
        await running.append_block(TOPIC, 0, wire_block(TOPIC, [b"x"], properties=properties))
        await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        assert found(await pop(running)) == [b"a"]


async def test_a_deleted_topic_leaves_a_retry_topic_that_another_topic_uses(
    start_broker: StartBroker,
) -> None:
    """Covers %RETRY%a_b_c, which is of group a and topic b_c, and of group a_b and topic c."""
    async with start_broker() as running:
        for topic in ("b_c", "c"):
            await running.create_topic(topic, 1)
        await running.append("b_c", 0, b"a")
        await pop(running, "a", topic="b_c")
        await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        await running.append("c", 0, b"of c")
        ((queue, receipt), *_) = receipts(await pop(running, "a_b", topic="c", count_max=1))
        await services(running).acks.ack("a_b", queue, [receipt.offset], receipt)
        await running.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(topic="c"))
        assert found(await pop(running, "a", topic="b_c")) == [b"a"]
