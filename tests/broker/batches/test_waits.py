"""Batches of delayed messages: they wait from the commit on, and come once."""

from __future__ import annotations

import pytest

from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model import SCHEDULE_TOPIC
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.broker.batches.conftest import RoomFor
from tests.broker.delay.test_levels import advance, visible
from tests.support.broker.clients.batch_writer import Job, bodies, hindered
from tests.support.broker.running_broker import RunningBroker, StartBroker, until

LEVEL_2 = QueueKey(SCHEDULE_TOPIC, 1)
both = pytest.mark.parametrize("flush", list(FlushDiskType))


@both
async def test_d02_a_staged_message_begins_to_wait_with_the_commit(
    start_broker: StartBroker, flush: FlushDiskType
) -> None:
    async with start_broker(flush) as running:
        await running.create_topic("T")
        job = Job(running, properties={"DELAY": "2"})
        await job.stage((0, [b"a", b"b"]), (1, [b"c"]))
        running.clock.advance(60_000)
        assert visible(running, *LEVEL_2) == 0
        answer = await job.commit()
        assert (answer.outcome, answer.record_count) == (broker_pb2.COMMITTED, 3)
        assert visible(running, *LEVEL_2) == 3
        await advance(running, 4_900)
        assert [visible(running, queue_id=queue_id) for queue_id in (0, 1)] == [0, 0]
        await advance(running, 200)
        await until(lambda: visible(running, queue_id=1) == 1)
        assert await bodies(running) == [b"a", b"b"]


async def test_d02_a_batch_that_is_cut_off_goes_on_behind_what_waits(
    start_broker: StartBroker, room_for: RoomFor
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        job = Job(running, properties={"DELAY": "2"})
        # Blocks of messages that wait are not joined.
        await job.stage((0, [b"a"]), (0, [b"b"]), (0, [b"c"]))
        room_for(2)
        await hindered(job)
        assert visible(running, *LEVEL_2) == 1
    room_for(None)
    async with start_broker() as running:
        job.running = running
        assert (await job.query()).outcome == broker_pb2.COMMITTED
        assert visible(running, *LEVEL_2) == 3
        await advance(running, 5_200)
        assert await bodies(running) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"TIMER_DELIVER_MS": "9999999999999"}, "accepted is up to 3 days"),
        ({"TIMER_DELAY_SEC": "soon"}, "property TIMER_DELAY_SEC is 'soon'"),
        ({"TRAN_MSG": "true"}, "a batch is a transaction itself"),
    ],
)
async def test_d02_what_could_not_be_stored_later_is_not_staged(
    properties: dict[str, str], said: str, running: RunningBroker
) -> None:
    await running.create_topic("T")
    job = Job(running, properties=properties)
    with pytest.raises(AssertionError, match=said):
        await job.stage((0, [b"a"]))
    assert job.staged == []
