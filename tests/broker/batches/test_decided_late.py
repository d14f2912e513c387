"""Batches that were valid when they were staged, and are decided much later."""

from __future__ import annotations

from rocketpy_broker.config import SystemTopicOptions
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.store.delay_levels import DelayLevels
from rocketpy_broker.store.files.timer_checkpoint import TIMER_QUEUE
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record.properties import DELAY
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2
from tests.broker.delay.test_levels import advance
from tests.support.blocks import wire_block
from tests.support.broker.clients.batch_writer import Job, Task, bodies, hindered
from tests.support.broker.running_broker import RunningBroker, StartBroker, until

COMMITTED = broker_pb2.COMMITTED
NOW_MS = ManualClock().now_ms()
HOUR_MS = 3_600_000


async def far_ahead(running: RunningBroker) -> Job:
    """Stages a message with a delivery time just within the limit."""
    await running.create_topic("T")
    job = Job(running, properties={"TIMER_DELIVER_MS": str(NOW_MS + 71 * HOUR_MS)})
    await job.stage((0, [b"in time"]))
    return job


async def arrived(running: RunningBroker, count: int) -> None:
    """Advances the clock until queue 0 has `count` messages, which threads deliver."""
    queue = QueueKey("T", 0)
    while running.broker.store.range_of(queue).max_offset < count:
        await advance(running, 100)


async def test_s10_a_cancel_that_has_come_too_late_holds_no_batch_up(
    running: RunningBroker, job: Job
) -> None:
    times = [str(NOW_MS + 5_000)] * 2
    properties = {"TIMER_DELIVER_MS": times, "TIMER_DEL_UNIQKEY": ["T+K", "T+K"]}
    task = Task(job, 0, 1)
    block = wire_block("T", [b"cancel", b"another"], properties=properties)
    assert (await task.send_block(0, block)).status.code == ResponseCode.SUCCESS
    await task.end()
    job.staged.append(task)
    await job.stage((1, [b"other"]))
    running.clock.advance(10_000)
    answer = await hindered(job)
    assert answer.hindrance == ""
    answer = await job.query()
    assert (answer.outcome, answer.record_count) == (COMMITTED, 3)
    await advance(running, 3_000)
    store = running.broker.store
    await until(lambda: store.range_of(TIMER_QUEUE).max_offset == 2)
    assert await bodies(running) == []
    assert await bodies(running, 1) == [b"other"]
    # The writer's next batch does not wait for it, either.
    following = Job(running, 1)
    await following.stage((1, [b"next"]))
    assert (await following.commit()).outcome == COMMITTED


async def test_s10_a_topic_that_gets_another_type_holds_no_decided_batch_up(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    job = Job(running, properties={DELAY: "1"})
    await job.stage((0, [b"delayed"]))
    config = admin_pb2.TopicConfig(
        topic="T",
        read_queue_nums=4,
        write_queue_nums=4,
        perm=6,
        attributes={"+message.type": "NORMAL"},
    )
    answer = await running.admin.UpdateTopic(admin_pb2.UpdateTopicRequest(config=config))
    assert answer.status.code == ResponseCode.SUCCESS, answer.status.remark
    batch = await hindered(job)
    assert batch.hindrance == ""
    assert (await job.query()).outcome == COMMITTED
    await arrived(running, 1)
    assert await bodies(running) == [b"delayed"]


async def test_s10_a_time_that_a_clock_set_back_puts_too_far_ahead_holds_no_batch_up(
    running: RunningBroker,
) -> None:
    job = await far_ahead(running)
    running.clock.jump(-2 * HOUR_MS)
    assert (await hindered(job)).hindrance == ""
    assert (await job.query()).outcome == COMMITTED
    running.clock.jump(73 * HOUR_MS - 1)
    await arrived(running, 1)
    assert await bodies(running) == [b"in time"]


async def test_s10_a_time_beyond_the_limit_of_the_next_start_holds_no_batch_up(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as running:
        job = await far_ahead(running)
    async with start_broker(timer_delay_ms_max=HOUR_MS) as running:
        job.running = running
        assert (await hindered(job)).hindrance == ""
        assert (await job.query()).outcome == COMMITTED
        running.clock.jump(71 * HOUR_MS)
        await arrived(running, 1)
        assert await bodies(running) == [b"in time"]


async def test_s10_more_than_may_wait_since_the_next_start_holds_no_batch_up_for_ever(
    start_broker: StartBroker,
) -> None:
    """Covers pending messages that have to go first; then the block has the timer for itself."""
    async with start_broker() as running:
        await running.create_topic("T")
        job = Job(running, properties={"TIMER_DELIVER_MS": str(NOW_MS + HOUR_MS)})
        await job.stage((0, [b"a", b"b", b"c"]))
        block = wire_block("T", [b"first"], properties={"TIMER_DELIVER_MS": [str(NOW_MS + 9_000)]})
        assert (await running.append_block("T", 0, block)).status.code == ResponseCode.SUCCESS
    async with start_broker(timer_pending_max=1) as running:
        job.running = running
        assert "flow control" in (await hindered(job)).hindrance
        await advance(running, 11_000)
        # A try that came before the delivery waits for the clock once more.
        while (await job.query(wait_ms_max=0)).outcome != COMMITTED:
            await advance(running, 100)
        running.clock.jump(HOUR_MS)
        await arrived(running, 4)
        assert await bodies(running) == [b"first", b"a", b"b", b"c"]


async def test_s10_a_broker_without_a_timer_holds_no_batch_up(start_broker: StartBroker) -> None:
    """Asserts that the next start with a timer delivers what waits, as it does other messages."""
    async with start_broker() as running:
        await running.create_topic("T")
        job = Job(running, properties={"TIMER_DELIVER_MS": str(NOW_MS + 60_000)})
        await job.stage((0, [b"in time"]))
    options = SystemTopicOptions(timer_wheel_enable=False)
    async with start_broker(system_topics=options) as running:
        job.running = running
        assert (await hindered(job)).hindrance == ""
        assert (await job.query()).outcome == COMMITTED
        running.clock.advance(90_000)
        assert await bodies(running) == []
    async with start_broker() as running:
        running.clock.jump(59_000)
        assert await bodies(running) == []
        await advance(running, 1_100)
        await arrived(running, 1)
        assert await bodies(running) == [b"in time"]


async def test_s10_more_delay_levels_since_the_next_start_hold_no_batch_up(
    start_broker: StartBroker,
) -> None:
    """Asserts that levels above the highest one count as the highest; the longest wait decides."""
    async with start_broker(delay_levels=DelayLevels.parse("1s 5s")) as running:
        await running.create_topic("T")
        job = Job(running)
        task = Task(job, 0, 1)
        block = wire_block("T", [b"a", b"b"], properties={"DELAY": ["2", "3"]})
        assert (await task.send_block(0, block)).status.code == ResponseCode.SUCCESS
        await task.end()
        job.staged.append(task)
    async with start_broker() as running:
        job.running = running
        assert (await hindered(job)).hindrance == ""
        assert (await job.query()).outcome == COMMITTED
        await advance(running, 9_000)
        assert await bodies(running) == []
        await advance(running, 1_100)
        await arrived(running, 2)
        assert await bodies(running) == [b"a", b"b"]
