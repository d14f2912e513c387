"""Delivery times through a real server: messages wait until they are due, and come once."""

from __future__ import annotations

import asyncio

import pytest

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.files.timer_checkpoint import TIMER_QUEUE
from rocketpy_broker.store.message_store import NOTHING_NEEDED
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model import SCHEDULE_TOPIC
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record import decode_record
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.broker.delay.test_levels import advance, bodies, both, visible
from tests.support.blocks import wire_block
from tests.support.broker.running_broker import RunningBroker, StartBroker, until

NOW_MS = ManualClock().now_ms()


async def send_at(
    running: RunningBroker,
    times_ms: list[int],
    *bodies: bytes,
    topic: str = "T",
    queue_id: int = 1,
    **properties: str,
) -> broker_pb2.AppendResponse:
    """Sends one block of messages with these delivery times."""
    given = {name: [value] * len(bodies) for name, value in properties.items()}
    given["TIMER_DELIVER_MS"] = [str(time_ms) for time_ms in times_ms]
    return await running.append_block(topic, queue_id, wire_block(topic, bodies, properties=given))


async def properties_of(running: RunningBroker, offset: int = 0) -> dict[str, str]:
    (response, *_) = await running.pull(topic="T", queue_id=1, offset=offset)
    return dict(decode_record(response.records, 0).record.properties)


@both
async def test_d03_a_message_comes_at_its_time_to_the_millisecond(
    start_broker: StartBroker, flush: FlushDiskType
) -> None:
    async with start_broker(flush) as running:
        await running.create_topic("T")
        answer = await send_at(running, [NOW_MS + 5_250], b"later")
        assert (answer.status.code, answer.queue_id) == (ResponseCode.SUCCESS, 1)
        await advance(running, 5_200)
        running.clock.advance(49)
        await advance(running, 0)
        assert await bodies(running) == []
        running.clock.advance(1)
        await until(lambda: visible(running) == 1)
        assert await bodies(running) == [b"later"]
        await advance(running, 3_000)
        assert visible(running) == 1


async def test_d03_what_was_sent_last_and_is_due_first_comes_first(running: RunningBroker) -> None:
    await running.create_topic("T")
    times_ms = [NOW_MS + ms for ms in (9_000, 8_999, 2_500, 2_501, 2_500)]
    await send_at(running, times_ms, b"4", b"3", b"0", b"2", b"1")
    running.clock.advance(10_000)
    await until(lambda: visible(running) == 5)
    assert await bodies(running) == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS"])
async def test_d03_a_delay_counts_from_the_send(name: str, running: RunningBroker) -> None:
    await running.create_topic("T")
    delay = {"TIMER_DELAY_SEC": "3", "TIMER_DELAY_MS": "3000"}[name]
    await running.append_block("T", 1, wire_block("T", [b"x"], properties={name: [delay]}))
    await advance(running, 2_900)
    assert visible(running) == 0
    await advance(running, 200)
    assert await bodies(running) == [b"x"]


async def test_d03_a_delivered_message_tells_when_it_came_and_went(running: RunningBroker) -> None:
    await running.create_topic("T")
    await send_at(running, [NOW_MS + 2_000], b"x", COLOR="red")
    await advance(running, 2_100)
    assert await properties_of(running) == {
        "COLOR": "red",
        "TIMER_DELIVER_MS": str(NOW_MS + 2_000),
        "TIMER_OUT_MS": str(NOW_MS + 1_000),
        "REAL_TOPIC": "T",
        "REAL_QID": "1",
        "TIMER_ENQUEUE_MS": str(NOW_MS),
        "TIMER_DEQUEUE_MS": str(NOW_MS + 2_000),
    }


async def test_d03_properties_without_room_for_the_times_are_delivered_as_they_are(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    answer = await send_at(running, [NOW_MS + 2_000], b"x", LONG="y" * 32_650)
    assert answer.status.code == ResponseCode.SUCCESS
    await advance(running, 2_100)
    found = await properties_of(running)
    assert (found["LONG"], found.get("TIMER_DEQUEUE_MS")) == ("y" * 32_650, None)


async def test_d03_a_message_that_waited_does_not_wait_again(running: RunningBroker) -> None:
    await running.create_topic("T")
    await send_at(running, [NOW_MS + 9_000], b"copied", TIMER_OUT_MS="1")
    assert await bodies(running) == [b"copied"]


async def test_d03_a_clock_that_is_set_forward_is_noticed_within_a_second(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    await send_at(running, [NOW_MS + 3_600_000], b"x")
    running.clock.jump(3_600_000)
    await advance(running, 1_000)
    assert await bodies(running) == [b"x"]


async def test_d03_many_messages_of_one_moment_all_come_in_the_order_of_sending(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    for block in range(3):
        texts = [b"%d" % (block * 1_500 + number) for number in range(1_500)]
        await send_at(running, [NOW_MS + 1_500] * 1_500, *texts)
    await advance(running, 1_600)
    await until(lambda: visible(running) == 4_500)
    found = await bodies(running)
    assert found == [b"%d" % number for number in range(len(found))]


async def test_d02_clients_do_not_write_to_the_timer_topic(running: RunningBroker) -> None:
    answer = await running.append(TIMER_QUEUE.topic, 0, b"x")
    assert answer.status.code == ResponseCode.NO_PERMISSION
    assert "rmq_sys_wheel_timer" in answer.status.remark


@pytest.mark.parametrize(
    "properties", [{"DELAY": ["3"]}, {"TIMER_DELIVER_MS": [str(NOW_MS + 9_000)]}]
)
async def test_s10_cleaning_leaves_alone_what_no_step_has_seen(
    running: RunningBroker, properties: dict[str, list[str]]
) -> None:
    await running.create_topic("T")
    store, calls = running.broker.store, running.broker.services.long_polling.calls
    assert store.waiting_from() == NOTHING_NEEDED

    async def waiting_at_arrival() -> int:
        # The waiters of calls are woken before the waiters of deliveries.
        await calls.wait([QueueKey(SCHEDULE_TOPIC, 2), TIMER_QUEUE], calls.deadline_ms(1_000))
        return store.waiting_from()

    found = asyncio.ensure_future(waiting_at_arrival())
    await running.held(1)
    answer = await running.append_block("T", 0, wire_block("T", [b"x"], properties=properties))
    assert await found == answer.physical_offset


async def test_s10_cleaning_leaves_alone_what_waits(running: RunningBroker) -> None:
    await running.create_topic("T")
    await running.append("T", 0, b"before")
    answer = await send_at(running, [NOW_MS + 2_000], b"x")
    await running.append("T", 0, b"behind")
    await advance(running, 100)
    assert running.broker.store.waiting_from() == answer.physical_offset
    await advance(running, 2_000)
    assert running.broker.store.waiting_from() > answer.physical_offset
