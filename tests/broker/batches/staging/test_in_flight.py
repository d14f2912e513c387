"""Staged blocks in flight: limits in total and per connection, as for large sends."""

from __future__ import annotations

import asyncio

import pytest

from rocketpy_broker.runtime.shares import InFlightLimiter
from rocketpy_broker.services.flush.admission import (
    CONNECTION_BYTES_MAX,
    TOTAL_BYTES_MAX,
)
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.support.broker.clients.batch_writer import Job, Task, bodies
from tests.support.broker.running_broker import RunningBroker, until
from tests.support.store.disk_calls import STAGING, Gate, holding

Answer = asyncio.Task[broker_pb2.StageBlocksResponse]


def in_flight(running: RunningBroker) -> InFlightLimiter:
    return running.broker.services.batches.staging.admission.stages


def staged(task: Task, *bodies: bytes) -> Answer:
    """Stages the next block of a task, on a stream of its own."""
    return asyncio.ensure_future(task.send(0, *bodies))


async def two_of_which_one_waits(job: Job, gate: Gate) -> list[Answer]:
    """Stages two blocks of different tasks, with room for one of them."""
    job.running.broker.services.batches.staging.admission.stages = InFlightLimiter(1, 1)
    first = staged(Task(job, 0, 1), b"a")
    await gate.reached()
    second = staged(Task(job, 1, 2), b"b")
    await until(lambda: in_flight(job.running).waiting_count == 1)
    return [first, second]


async def test_b09_staged_blocks_are_bounded_in_all_and_by_connection(
    monkeypatch: pytest.MonkeyPatch, running: RunningBroker
) -> None:
    found = in_flight(running)
    limits = (found._total_max, found._shares.connection_max)
    assert limits == (TOTAL_BYTES_MAX, CONNECTION_BYTES_MAX)
    await running.create_topic("T")
    task = Task(Job(running), 0, 1)
    with holding(monkeypatch, "pwrite", STAGING) as gate:
        sending = staged(task, b"a")
        await gate.reached()
        [(connection, size)] = found._shares._by_connection.items()
    await sending
    await task.end()
    assert connection.startswith(("ipv4:", "ipv6:"))
    assert size == task.record_bytes
    assert found.total == 0


async def test_b09_a_staged_block_waits_for_room_and_leaves_none_taken(
    monkeypatch: pytest.MonkeyPatch, running: RunningBroker, job: Job
) -> None:
    with holding(monkeypatch, "pwrite", STAGING) as gate:
        answers = await two_of_which_one_waits(job, gate)
        # Neither a sign of life nor the end of an attempt has bytes to wait for.
        other = Task(job, 2, 3)
        alive = broker_pb2.StageBlocksRequest(job=job.name, task=2, task_token=3)
        assert (await other.ask(alive)).status.code == ResponseCode.SUCCESS
        assert (await other.end()).status.code == ResponseCode.SUCCESS
        assert not any(answer.done() for answer in answers)
    for answer in answers:
        assert ((await answer).status.code, (await answer).block_count) == (0, 1)
    assert (in_flight(running).total, in_flight(running).waiting_count) == (0, 0)


async def test_b09_a_job_that_is_discarded_while_its_block_waits_is_told(
    monkeypatch: pytest.MonkeyPatch, running: RunningBroker, job: Job
) -> None:
    with holding(monkeypatch, "pwrite", STAGING) as gate:
        answers = await two_of_which_one_waits(job, gate)
        aborted = asyncio.ensure_future(job.abort())
        name = job.name
        jobs = running.broker.services.batches.staging._jobs
        await until(lambda: not jobs.up_to(name.writer_id, name.batch_id))
    assert (await answers[1]).status.code == ResponseCode.MESSAGE_ILLEGAL
    assert "were removed" in (await answers[1]).status.remark
    await aborted
    assert running.broker.store.staging.used_bytes == 0
    assert await bodies(running) == []


async def test_b09_a_refused_block_leaves_no_room_taken(running: RunningBroker) -> None:
    await running.create_topic("T")
    task = Task(Job(running), 0, 1)
    request = task.block(0, b"a")
    request.records = b"x"
    assert (await task.ask(request)).status.code == ResponseCode.MESSAGE_ILLEGAL
    assert in_flight(running).total == 0
