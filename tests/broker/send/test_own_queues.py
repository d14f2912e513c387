"""Blocks of records with their own queue ids: sent, refused, delayed, and in batches."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rocketpy_broker.config import Limits
from rocketpy_proto.call_limits import OWN_QUEUES
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2
from tests.support.blocks import WireBlock, wire_block
from tests.support.broker.clients.batch_writer import Job, Task, bodies
from tests.support.broker.running_broker import RunningBroker, StartBroker

ILLEGAL = ResponseCode.MESSAGE_ILLEGAL


def block_of(queue_ids: Sequence[int], **properties: str) -> WireBlock:
    """Returns a block with a record for each queue id; its body is its place and its queue."""
    sent = [b"%d of %d" % (row, queue_id) for row, queue_id in enumerate(queue_ids)]
    columns = {name: [value] * len(sent) for name, value in properties.items()}
    return wire_block("T", sent, properties=columns, queue_ids=queue_ids)


async def send(running: RunningBroker, *queue_ids: int) -> broker_pb2.AppendResponse:
    return await running.append_block("T", OWN_QUEUES, block_of(queue_ids))


async def test_p06_each_record_goes_to_the_queue_that_it_names(running: RunningBroker) -> None:
    await running.create_topic("T")
    first = await send(running, 2, 2, 0)
    second = await send(running, 0, 2)
    assert [one.status.code for one in (first, second)] == [0, 0]
    assert (first.queue_id, first.record_count) == (OWN_QUEUES, 3)
    assert await bodies(running, 0) == [b"2 of 0", b"0 of 0"]
    assert await bodies(running, 2) == [b"0 of 2", b"1 of 2", b"1 of 2"]
    assert await bodies(running, 1) == []


@pytest.mark.parametrize(
    ("queue_ids", "code", "remark"),
    [
        ([0, 4], ResponseCode.INVALID_PARAMETER, "queue id 4 of topic 'T' is not in 0..3"),
        ([-1, 0], ResponseCode.INVALID_PARAMETER, "queue id -1 of topic 'T' is not in 0..3"),
        ([0, 1, 0], ILLEGAL, "sort its records by queue"),
        (range(101), ILLEGAL, "of 101 queues, limit 100. Send smaller blocks"),
    ],
)
async def test_p06_queues_that_records_may_not_name(
    queue_ids: Sequence[int], code: ResponseCode, remark: str, running: RunningBroker
) -> None:
    """Asserts that the whole block is refused."""
    await running.create_topic("T")
    answer = await send(running, *queue_ids)
    assert answer.status.code == code
    assert remark in answer.status.remark
    assert await bodies(running, 0) == []


async def test_p05_an_unknown_topic_is_refused_as_always(running: RunningBroker) -> None:
    answer = await send(running, 0)
    assert answer.status.code == ResponseCode.TOPIC_NOT_EXIST


async def test_c08_who_waits_at_any_of_the_queues_is_woken(running: RunningBroker) -> None:
    await running.create_topic("T")
    pulls = [
        running.data.Pull(broker_pb2.PullRequest(topic="T", queue_id=number, wait_ms_max=9_000))
        for number in (1, 3)
    ]
    await running.held(2)
    await send(running, 3, 1)
    assert [len((await pull.read()).record_sizes) // 4 for pull in pulls] == [1, 1]


async def test_d01_delayed_records_come_to_the_queues_that_they_name(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    answer = await running.append_block("T", OWN_QUEUES, block_of([3, 0, 0][::-1], DELAY="1"))
    assert answer.status.code == ResponseCode.SUCCESS, answer.status.remark
    assert await bodies(running, 0) == []
    pulls = [
        running.data.Pull(broker_pb2.PullRequest(topic="T", queue_id=number, wait_ms_max=9_000))
        for number in (0, 3)
    ]
    await running.held(2)
    running.clock.advance(1_000)
    for pull in pulls:
        await pull.read()
    assert await bodies(running, 0) == [b"0 of 0", b"1 of 0"]
    assert await bodies(running, 3) == [b"2 of 3"]


class OwnQueuesTask(Task):
    """A task that sends blocks of records with their own queue ids."""

    async def send_own(self, *queue_ids: int) -> broker_pb2.StageBlocksResponse:
        block = block_of(queue_ids)
        request = self.block(OWN_QUEUES)
        request.records, request.record_sizes = block.records, block.record_sizes
        answer = await self.ask(request)
        if answer.status.code == ResponseCode.SUCCESS:
            self.block_count += 1
            self.record_count += len(queue_ids)
            self.record_bytes += len(request.records)
        return answer


async def staged(job: Job, *blocks: Sequence[int]) -> None:
    """Stages a task with these blocks, by the queue ids of their records."""
    task = OwnQueuesTask(job, 0, 1)
    for queue_ids in blocks:
        answer = await task.send_own(*queue_ids)
        assert answer.status.code == ResponseCode.SUCCESS, answer.status.remark
    await task.end()
    job.staged.append(task)


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_s10_a_batch_of_such_blocks_shows_each_record_in_its_queue(
    start_broker: StartBroker, *, is_restarted: bool
) -> None:
    """Covers frames that cut a block between records of a queue, and a restart."""
    ids = [number for number in range(4) for _ in range(100)]
    async with start_broker(commit_log_segment_bytes=8_192) as running:
        await running.create_topic("T")
        job = Job(running)
        await staged(job, ids, [2, 0])
        if not is_restarted:
            await check_shown(job, ids)
    if is_restarted:
        async with start_broker(commit_log_segment_bytes=8_192) as running:
            job.running = running
            await check_shown(job, ids)


async def check_shown(job: Job, ids: Sequence[int]) -> None:
    answer = await job.commit()
    assert (answer.outcome, answer.record_count) == (broker_pb2.COMMITTED, len(ids) + 2)
    for number in range(4):
        wanted = [b"%d of %d" % (row, one) for row, one in enumerate(ids) if one == number]
        wanted += {2: [b"0 of 2"], 0: [b"1 of 0"]}.get(number, [])
        assert await bodies(job.running, number) == wanted


async def test_s10_a_batch_is_refused_where_a_topic_has_lost_the_highest_queue(
    running: RunningBroker,
) -> None:
    """Asserts that a commit checks the records' own queue ids, as the staging did."""
    await running.create_topic("T")
    job = Job(running)
    task = OwnQueuesTask(job, 0, 1)
    refused = await task.send_own(0, 4)
    assert refused.status.code == ResponseCode.INVALID_PARAMETER
    await staged(job, [3, 1])
    await running.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(topic="T"))
    await running.create_topic("T", queues=3)
    answer = await job.commit()
    assert answer.status.code == ResponseCode.INVALID_PARAMETER
    assert "queue id 3 of topic 'T'" in answer.status.remark


async def test_n07_a_body_that_is_too_large_is_refused(start_broker: StartBroker) -> None:
    async with start_broker(limits=Limits(body_bytes_max=3)) as running:
        await running.create_topic("T")
        answer = await send(running, 0, 1)
        assert answer.status.code == ILLEGAL
