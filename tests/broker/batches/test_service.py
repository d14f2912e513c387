"""StageBlocks and CommitBatch through real gRPC: visibility, moments, and refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest

from rocketpy_broker.services.batches import service
from rocketpy_broker.services.batches.log import BATCHES_QUEUE
from rocketpy_broker.services.batches.service import SWEEP_MS
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2
from tests.support.broker.clients.batch_writer import (
    SMALL_SEGMENT_BYTES,
    Job,
    bodies,
    staging_files,
    wide,
)
from tests.support.broker.running_broker import RunningBroker, StartBroker

COMMITTED, ALREADY = broker_pb2.COMMITTED, broker_pb2.ALREADY_COMMITTED
NOT_COMMITTED = broker_pb2.NOT_COMMITTED


def decisions(running: RunningBroker) -> int:
    """Returns the record count of the batches' queue; refused batches add none."""
    return running.broker.store.next_offset(BATCHES_QUEUE)


@pytest.mark.parametrize("flush", list(FlushDiskType))
async def test_s08_nobody_sees_a_batch_before_its_commit_and_everybody_all_of_it_after(
    start_broker: StartBroker, flush: FlushDiskType
) -> None:
    async with start_broker(flush) as running:
        await running.create_topic("T")
        log_end = running.broker.store.positions().log_end
        job = Job(running)
        await job.stage((0, [b"a", b"b"]), (1, [b"x"]))
        await job.stage((0, [b"c"]))
        assert running.broker.store.positions().log_end == log_end
        await running.append("T", 0, b"plain")
        assert await bodies(running, 0) == [b"plain"]
        assert await bodies(running, 1) == []
        answer = await job.commit()
        assert answer.status.code == ResponseCode.SUCCESS
        assert (answer.outcome, answer.batch_id) == (COMMITTED, 0)
        assert (answer.record_count, answer.record_count_decided) == (4, 4)
        assert await bodies(running, 0) == [b"plain", b"a", b"b", b"c"]
        assert await bodies(running, 1) == [b"x"]


async def test_s08_a_staged_message_is_not_found_by_key_and_once_after(
    running: RunningBroker, job: Job
) -> None:
    await job.stage((0, [b"k"]))
    by_key = admin_pb2.QueryMessageRequest(topic="T", key="k")
    assert not (await running.admin.QueryMessage(by_key)).records
    await job.commit()
    assert len((await running.admin.QueryMessage(by_key)).record_sizes) == 4


async def test_s08_messages_are_stored_in_the_order_of_the_request_and_of_the_blocks(
    start_broker: StartBroker,
) -> None:
    async with start_broker(commit_log_segment_bytes=SMALL_SEGMENT_BYTES) as running:
        await running.create_topic("T")
        names = [[wide(b"%d-%d" % (task, number)) for number in range(20)] for task in range(3)]
        job = Job(running, 5)
        for part in names:
            await job.stage((0, part[:7]), (0, part[7:]))
        job.staged = [job.staged[2], job.staged[0], job.staged[1]]
        assert (await job.commit()).record_count == 60
        assert await bodies(running) == names[2] + names[0] + names[1]


async def test_s08_only_attempts_that_are_named_show(running: RunningBroker, job: Job) -> None:
    lost = await job.stage((0, [b"lost"]))
    job.staged.remove(lost)
    await job.stage((0, [b"won"]), token=77)
    assert lost.number == job.staged[0].number
    await job.commit()
    running.clock.advance(SWEEP_MS)
    assert await bodies(running) == [b"won"]


async def test_s08_a_batch_or_an_older_one_again_is_answered_and_never_shows(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    first = Job(running, 7)
    await first.stage((0, [b"a"]))
    await first.commit()
    again = await first.commit()
    assert (again.outcome, again.batch_id, again.record_count) == (COMMITTED, 7, 1)
    for batch_id in (7, 6, 0):
        late = Job(running, batch_id, token=5)
        task = await late.stage()
        answer = await task.send(0, b"late")
        assert answer.is_committed
        assert answer.block_count == 0
        state = await late.commit()
        assert state.status.code == ResponseCode.SUCCESS
        assert (state.outcome, state.batch_id, state.record_count) == (ALREADY, 7, 1)
    other = Job(running, 7, writer_id="another")
    await other.stage((0, [b"b"]))
    assert (await other.commit()).outcome == COMMITTED
    assert await bodies(running) == [b"a", b"b"]


async def test_s08_a_batch_without_messages_counts_as_committed(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        answer = await Job(running, 3).commit()
        assert (answer.outcome, answer.record_count) == (COMMITTED, 0)
        assert (await Job(running, 3, token=5).commit()).outcome == ALREADY
    async with start_broker() as running:
        assert (await Job(running, 3, token=5).commit()).outcome == ALREADY
        assert (await Job(running, 3).query()).outcome == COMMITTED
        assert await bodies(running) == []


def altered(column: str, change: int) -> Callable[[broker_pb2.CommitBatchRequest], None]:
    """Changes one number of the second task."""

    def alter(request: broker_pb2.CommitBatchRequest) -> None:
        values = getattr(request.tasks, column)
        values[1] += change

    return alter


@pytest.mark.parametrize(
    "alter",
    [
        altered("task", 7),
        altered("task", -1),
        altered("task_token", 1),
        altered("block_count", 1),
        altered("record_count", -1),
        altered("bytes", 1),
        lambda request: request.tasks.task.append(1),
        lambda request: request.tasks.MergeFrom(
            broker_pb2.StagedTasks.FromString(request.tasks.SerializeToString())
        ),
    ],
    ids=["no task", "a task twice", "token", "blocks", "records", "bytes", "columns", "all twice"],
)
async def test_s08_attempts_that_are_not_as_they_are_named_are_refused_and_nothing_done(
    alter: Callable[[broker_pb2.CommitBatchRequest], None], running: RunningBroker, job: Job
) -> None:
    await job.stage((0, [b"a"]))
    await job.stage((0, [b"b", b"c"]))
    request = job.request()
    alter(request)
    answer = await running.data.CommitBatch(request)
    wanted = {ResponseCode.MESSAGE_ILLEGAL, ResponseCode.INVALID_PARAMETER}
    assert answer.status.code in wanted, answer
    assert decisions(running) == 0
    assert (await job.query()).outcome == NOT_COMMITTED
    # The same batch, requested correctly, has no earlier outcome.
    assert (await job.commit()).outcome == COMMITTED
    assert await bodies(running) == [b"a", b"b", b"c"]


async def test_s08_an_attempt_without_its_end_is_refused(running: RunningBroker, job: Job) -> None:
    task = await job.stage((0, [b"a"]))
    unended = type(task)(job, 1, 9)
    await unended.send(0, b"b")
    job.staged.append(unended)
    answer = await job.commit()
    assert answer.status.code == ResponseCode.MESSAGE_ILLEGAL
    assert "end is missing" in answer.status.remark
    assert decisions(running) == 0


@pytest.mark.parametrize(
    ("writer_id", "batch_id", "token"), [("", 0, 1), ("w" * 256, 0, 1), ("w", -1, 1), ("w", 0, 0)]
)
async def test_s08_a_job_that_cannot_be_is_refused(
    writer_id: str, batch_id: int, token: int, running: RunningBroker
) -> None:
    job = Job(running, batch_id, token, writer_id)
    for call in (job.commit, job.query):
        assert (await call()).status.code == ResponseCode.INVALID_PARAMETER
    request = broker_pb2.AbortBatchRequest(job=job.name)
    answer = await running.data.AbortBatch(request)
    assert answer.status.code == ResponseCode.INVALID_PARAMETER
    staged = await running.data.StageBlocks(
        iter([broker_pb2.StageBlocksRequest(job=job.name, task_token=1)])
    ).read()
    assert staged.status.code == ResponseCode.INVALID_PARAMETER


async def test_s08_of_many_requests_for_one_batch_one_commits_it(
    start_broker: StartBroker,
) -> None:
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        job = Job(running)
        await job.stage((0, [b"a"]))
        superseded_jobs = [Job(running, token=token) for token in range(1, 8)]
        answers = await asyncio.gather(*(one.commit() for one in (job, *superseded_jobs)))
        # The winner may be any of them; the rivals have staged nothing.
        assert sorted(answer.outcome for answer in answers) == [COMMITTED] + [ALREADY] * 7
        is_own = answers[0].outcome == COMMITTED
        assert await bodies(running) == ([b"a"] if is_own else [])
        assert decisions(running) == 2


async def test_s08_batches_of_many_writers_at_once_keep_each_its_order(
    start_broker: StartBroker,
) -> None:
    async with start_broker(commit_log_segment_bytes=SMALL_SEGMENT_BYTES) as running:
        await running.create_topic("T")
        count = 2 * service.ROLL_FORWARDS_MAX
        jobs = [Job(running, writer_id=f"w{number}") for number in range(count)]
        for number, job in enumerate(jobs):
            await job.stage((0, [wide(b"%d-%d" % (number, n)) for n in range(15)]))
        answers = await asyncio.gather(*(job.commit() for job in jobs))
        assert {answer.outcome for answer in answers} == {COMMITTED}
        found = await bodies(running)
    assert len(found) == 15 * count
    turns = [writer for writer, _ in groupby(found, lambda body: body.split(b"-")[0])]
    assert len(turns) > count
    for number in range(count):
        own = [body for body in found if body.startswith(b"%d-" % number)]
        assert own == [wide(b"%d-%d" % (number, n)) for n in range(15)]


async def test_s08_a_topic_that_is_deleted_takes_what_was_staged_for_it(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    await running.append("T", 0, b"plain")
    job = Job(running)
    await job.stage((0, [b"a"]))
    await running.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(topic="T"))
    assert (await job.commit()).status.code == ResponseCode.TOPIC_NOT_EXIST
    await running.create_topic("T")
    answer = await job.commit()
    assert answer.status.code == ResponseCode.MESSAGE_ILLEGAL
    assert "deleted" in answer.status.remark
    assert decisions(running) == 0


async def test_b02_the_batches_topic_is_neither_listed_nor_made_nor_written_by_clients(
    running: RunningBroker, job: Job
) -> None:
    await job.stage((0, [b"a"]))
    await job.commit()
    topic = BATCHES_QUEUE.topic
    for include_system in (False, True):
        request = admin_pb2.ListTopicsRequest(include_system=include_system)
        listed = await running.admin.ListTopics(request)
        assert topic not in [config.topic for config in listed.configs]
    assert await running.create_topic(topic) != ResponseCode.SUCCESS
    assert (await running.append(topic, 0, b"x")).status.code != ResponseCode.SUCCESS
    [pulled] = await running.pull(topic=topic, queue_id=0)
    assert pulled.status.code != ResponseCode.SUCCESS
    await running.admin.CleanUnusedTopics(admin_pb2.CleanUnusedTopicsRequest())
    assert decisions(running) == 2


async def test_s08_files_go_when_their_batch_is_stored(start_broker: StartBroker) -> None:
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        job = Job(running)
        await job.stage((0, [b"a"]))
        assert len(staging_files(running)) == 1
        await job.commit()
        await running.append("T", 0, b"flushes the completion, too")
        running.clock.advance(SWEEP_MS)
        await running.append("T", 0, b"the sweep has had its turn")
        await running.broker.services.batches.commits.remove_stored()
        assert staging_files(running) == []
        assert running.broker.store.staging.used_bytes == 0


async def test_s08_a_client_cannot_number_its_messages(running: RunningBroker, job: Job) -> None:
    """Asserts that a client's numbers do not count.

    A start reads from the numbers how far a batch came; a forged one would hide messages.
    """
    request = (await job.stage((0, [b"a"]))).block(0, b"forged")
    records = bytearray(request.records)
    # preparedTransactionOffset of a first record: docs/design/storage.md section 2.1.
    records[76:84] = (1 << 40 | 1).to_bytes(8, "big")
    append = broker_pb2.AppendRequest(
        topic="T", records=bytes(records), record_sizes=request.record_sizes
    )
    answer = await running.data.Append(iter([append])).read()
    assert answer.status.code == ResponseCode.SUCCESS, answer.status.remark
    numbers = running.broker.store.batch_marks.numbers_from(0)
    assert [len(found) for found in numbers if len(found)] == []


async def test_s08_the_ledger_survives_a_clean_stop_and_the_loss_of_its_log(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        job = Job(running, 4)
        await job.stage((0, [b"a"]))
        await job.commit()
    for round_ in range(2):
        async with start_broker() as running:
            assert (await Job(running, 4, token=9).commit()).outcome == ALREADY
            assert await bodies(running) == [b"a"]
        if round_ == 0:
            for path in (tmp_path / "consumequeue" / BATCHES_QUEUE.topic / "0").iterdir():
                path.unlink()
