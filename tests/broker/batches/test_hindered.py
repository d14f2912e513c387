"""Hindrances of a decided batch: a full, slow or failing disk, a stop, lost files."""

from __future__ import annotations

import asyncio
import errno
import os
from functools import partial
from pathlib import Path

import pytest

from rocketpy_broker.services.batches.service import RETRY_MS
from rocketpy_broker.store.cleaner import CleanPolicy
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.message_store import NOTHING_NEEDED
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.broker.batches.conftest import RoomFor
from tests.support.broker.clients.batch_writer import (
    SMALL_SEGMENT_BYTES,
    Job,
    bodies,
    hindered,
    staging_files,
    wide,
)
from tests.support.broker.running_broker import RunningBroker, StartBroker, until
from tests.support.store.disk_calls import LOG, STAGING, before_call, failing, holding

COMMITTED, ALREADY = broker_pb2.COMMITTED, broker_pb2.ALREADY_COMMITTED
IN_PROGRESS, INCOMPLETE = broker_pb2.IN_PROGRESS, broker_pb2.INCOMPLETE
A, B, C, D, E = (wide(bytes([letter])) for letter in b"abcde")


@pytest.fixture
def start_broker(start_broker: StartBroker) -> StartBroker:
    """Returns a function that starts brokers which append each wide message by itself."""
    return partial(start_broker, commit_log_segment_bytes=SMALL_SEGMENT_BYTES)


async def ended(job: Job) -> broker_pb2.BatchResponse:
    """Triggers a retry of the hindered batch; waits for its end."""
    job.running.clock.advance(RETRY_MS)
    return await job.query()


async def test_s10_a_full_disk_after_the_decision_is_told_and_resolves_itself(
    room_for: RoomFor, running: RunningBroker
) -> None:
    await running.create_topic("T")
    job = Job(running)
    await job.stage((0, [A, B, C]))
    room_for(2)
    answer = await hindered(job)
    assert answer.outcome == IN_PROGRESS
    assert "(No space left on device); nothing was stored" in answer.hindrance
    assert (answer.record_count, answer.record_count_decided) == (1, 3)
    assert await bodies(running) == [A]
    # Still full.
    running.clock.advance(RETRY_MS)
    assert (await job.commit(wait_ms_max=0)).outcome == IN_PROGRESS
    following = Job(running, 1, token=3)
    await following.stage((0, [b"next"]))
    answer = await following.commit(wait_ms_max=0)
    assert (answer.outcome, answer.batch_id, answer.record_count) == (IN_PROGRESS, 0, 1)
    assert running.broker.store.needed_from < NOTHING_NEEDED
    room_for(None)
    assert (await ended(job)).outcome == COMMITTED
    assert await bodies(running) == [A, B, C]
    assert running.broker.store.needed_from == NOTHING_NEEDED
    assert (await following.commit()).outcome == COMMITTED
    assert await bodies(running) == [A, B, C, b"next"]


async def test_s10_a_full_disk_before_the_decision_decides_nothing(
    room_for: RoomFor, running: RunningBroker
) -> None:
    await running.create_topic("T")
    job = Job(running)
    await job.stage((0, [A]))
    room_for(0)
    answer = await job.commit()
    assert answer.status.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert (await job.query()).outcome == broker_pb2.NOT_COMMITTED
    room_for(None)
    assert (await job.commit()).outcome == COMMITTED
    assert await bodies(running) == [A]


async def stop_half_way(start_broker: StartBroker, room_for: RoomFor) -> Job:
    """Returns a decided batch of a to e, of which a start finds a and b in the log.

    Messages a, b and c are in one staging file, d and e in another.
    """
    async with start_broker() as running:
        await running.create_topic("T")
        job = Job(running)
        await job.stage((0, [A, B, C]))
        await job.stage((0, [D, E]))
        room_for(3)
        assert (await hindered(job)).record_count == 2
    room_for(None)
    return job


async def restarted(running: RunningBroker, job: Job) -> broker_pb2.BatchResponse:
    job.running = running
    return await job.query()


async def test_s08_what_stopped_half_way_is_finished_by_the_next_start(
    start_broker: StartBroker, room_for: RoomFor
) -> None:
    job = await stop_half_way(start_broker, room_for)
    async with start_broker() as running:
        answer = await restarted(running, job)
        assert (answer.outcome, answer.record_count) == (COMMITTED, 5)
        assert await bodies(running) == [A, B, C, D, E]
        assert (await Job(running, token=4).commit()).outcome == ALREADY
        await running.broker.services.batches.commits.remove_stored()
    async with start_broker() as running:
        assert (await restarted(running, job)).outcome == COMMITTED
        assert await bodies(running) == [A, B, C, D, E]
        assert staging_files(running) == []


async def test_s08_others_messages_in_between_are_no_progress_of_a_batch(
    start_broker: StartBroker, room_for: RoomFor
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        jobs = [Job(running, writer_id=f"w{number}") for number in range(3)]
        for number, job in enumerate(jobs):
            await job.stage((0, [wide(b"%d-%d" % (number, n)) for n in range(number + 2)]))
        for number, job in enumerate(jobs):
            room_for(1 + number)
            assert (await hindered(job)).record_count == number
            room_for(None)
            await running.append("T", 0, b"plain")
            room_for(0)
    room_for(None)
    async with start_broker() as running:
        for job in jobs:
            assert (await restarted(running, job)).outcome == COMMITTED
        found = await bodies(running)
        assert len(found) == 2 + 3 + 4 + 3
        for number in range(3):
            own = [body for body in found if body.startswith(b"%d-" % number)]
            assert own == [wide(b"%d-%d" % (number, n)) for n in range(number + 2)]


@pytest.mark.parametrize("damage", ["removed", "payload", "head", "attempt", "another's"])
async def test_s10_what_is_lost_after_the_decision_is_counted_and_told_again_and_again(
    start_broker: StartBroker,
    room_for: RoomFor,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    damage: str,
) -> None:
    job = await stop_half_way(start_broker, room_for)
    first, second = sorted((tmp_path / "rocketpy" / "staging").iterdir())
    content = bytearray(first.read_bytes())
    if damage == "removed":
        first.unlink()
    elif damage == "another's":
        first.write_bytes(second.read_bytes())
    else:
        place = {"payload": -65, "head": content.rindex(b"RPSF", 0, -100) + 9, "attempt": 70}
        content[place[damage]] ^= 1
        first.write_bytes(content)
    expected = (INCOMPLETE, 4, 5)
    for _ in range(2):
        async with start_broker() as running:
            answer = await restarted(running, job)
            told = (answer.outcome, answer.record_count, answer.record_count_decided)
            assert told == expected
            again = await Job(running, token=9).commit()
            assert (again.outcome, again.record_count) == (INCOMPLETE, 4)
            for told_of in (answer, again):
                named = "batch 0 of writer 'a query' shows 4 of its 5 messages"
                assert told_of.hindrance == f"{named}; the broker's log names what was lost"
            # The lost messages are not shown, and nothing else is shown in their place.
            assert await bodies(running) == [A, B, D, E]
            following = Job(running, 1, token=7)
            assert (await following.query()).outcome == broker_pb2.NOT_COMMITTED
    assert "and has lost 1 message" in caplog.text
    assert "shows 4 of its 5 messages" in caplog.text


async def test_s10_a_file_that_cannot_be_read_now_is_waited_for(
    start_broker: StartBroker, room_for: RoomFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await stop_half_way(start_broker, room_for)

    async with start_broker() as running:
        assert (await restarted(running, job)).outcome == COMMITTED
        following = Job(running, 1, token=7)
        await following.stage((0, [b"f"]))
        with monkeypatch.context() as patch:
            before_call(patch, "open", STAGING, failing(errno.EMFILE))
            assert "Too many open files" in (await hindered(following)).hindrance
        assert (await ended(following)).outcome == COMMITTED
        assert (await bodies(running))[-1] == b"f"


async def test_s08_a_flush_that_fails_is_no_answer_and_the_next_start_finishes_the_batch(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        job = Job(running)
        await job.stage((0, [A, B]))
        with monkeypatch.context() as patch:
            before_call(patch, "fdatasync", LOG, failing(errno.EIO))
            answer = await hindered(job)
        assert "read-only" in answer.hindrance
        assert await bodies(running) == []
        running.clock.advance(RETRY_MS)
        assert (await job.query(wait_ms_max=0)).outcome == IN_PROGRESS
        assert await bodies(running) == []
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        assert (await restarted(running, job)).outcome == COMMITTED
        assert await bodies(running) == [A, B]


async def test_s08_a_disk_that_is_too_slow_is_waited_for(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        job = Job(running)
        await job.stage((0, [A]))
        waiting = running.broker.services.flush.group_commit
        with holding(monkeypatch, "fdatasync", LOG):
            asked = asyncio.ensure_future(job.commit())
            await until(lambda: waiting.waiting_count > 0 or asked.done())
            running.clock.advance(5_000)
            answer = await hindered(job)
        assert "within 5000 ms" in answer.hindrance
        running.clock.advance(RETRY_MS)
        assert (await asked).outcome == COMMITTED
        assert await bodies(running) == [A]


async def test_s10_a_wait_ends_with_how_far_the_batch_has_come(
    room_for: RoomFor, running: RunningBroker
) -> None:
    await running.create_topic("T")
    job = Job(running)
    await job.stage((0, [A, B]))
    room_for(2)
    asked = asyncio.ensure_future(job.commit(wait_ms_max=1_000))
    await until(lambda: bool(running.broker.services.batches.commits._pending))
    pending = running.broker.services.batches.commits._pending[job.writer_id]
    await until(lambda: bool(pending._waiters))
    running.clock.advance(1_000)
    answer = await asked
    assert (answer.outcome, answer.record_count_decided) == (IN_PROGRESS, 2)
    assert (await hindered(job)).hindrance
    room_for(None)
    assert (await ended(job)).outcome == COMMITTED


async def test_s10_a_client_that_hangs_up_does_not_stop_its_batch(
    room_for: RoomFor, running: RunningBroker
) -> None:
    await running.create_topic("T")
    job = Job(running)
    await job.stage((0, [A, B]))
    room_for(2)
    await hindered(job)
    call = running.data.QueryBatch(broker_pb2.QueryBatchRequest(job=job.name, wait_ms_max=60_000))
    pending = running.broker.services.batches.commits._pending[job.writer_id]
    await until(lambda: bool(pending._waiters))
    call.cancel()
    while pending._waiters:  # noqa: ASYNC110 (no event)
        await asyncio.sleep(0)
    room_for(None)
    assert (await ended(job)).outcome == COMMITTED
    assert await bodies(running) == [A, B]


async def test_s10_cleaning_leaves_what_a_pending_decision_needs(
    start_broker: StartBroker, room_for: RoomFor, tmp_path: Path
) -> None:
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        clean = running.broker.services.admin.store_admin.clean_expired_files
        # The clock is trusted once it was read twice.
        await clean()
        running.clock.advance(CleanPolicy().confirm_ms)
        job = Job(running)
        await job.stage((0, [A, B]))
        room_for(2)
        await hindered(job)
        room_for(None)
        for _ in range(5):
            await running.append("T", 1, bytes(SMALL_SEGMENT_BYTES * 7 // 8))
        for segment in (tmp_path / "commitlog").iterdir():
            os.utime(segment, (0, 0))
        assert (await clean()).removed_file_count == 0
        assert (await ended(job)).outcome == COMMITTED
        assert await bodies(running) == [A, B]
        cleaning = asyncio.ensure_future(clean())
        while not cleaning.done():
            running.clock.advance(1_000)
            await asyncio.sleep(0)
        assert cleaning.result().removed_file_count > 0
