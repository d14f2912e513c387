"""Batches over a restart that loses a topic or the decision."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from rocketpy_broker.services.batches.ledger_file import LedgerFile
from rocketpy_broker.services.batches.outcome import Outcome
from rocketpy_broker.services.batches.service import RETRY_MS
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2
from tests.broker.batches.conftest import RoomFor
from tests.faults.batches.batch_use import Desk, check_visible
from tests.faults.images import workshop
from tests.support.broker.clients.batch_writer import (
    SMALL_SEGMENT_BYTES,
    Job,
    bodies,
    hindered,
    wide,
)
from tests.support.broker.running_broker import StartBroker, until
from tests.support.store.messages import flush_log

COMMITTED = broker_pb2.COMMITTED
A, B, C, D, E = (wide(bytes([letter])) for letter in b"abcde")


@pytest.fixture
def start_broker(start_broker: StartBroker) -> StartBroker:
    """Returns a function that starts brokers which append each wide message by itself."""
    return partial(start_broker, commit_log_segment_bytes=SMALL_SEGMENT_BYTES)


async def test_s10_a_topic_deleted_before_a_restart_takes_what_was_staged(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        job = Job(running)
        await job.stage((0, [A]))

        await running.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(topic="T"))
        await running.create_topic("T")
    async with start_broker() as running:
        job.running = running
        answer = await job.commit()
        assert answer.status.code != ResponseCode.SUCCESS
        assert await bodies(running) == []


async def test_s10_a_topic_deleted_in_the_middle_is_no_loss(
    start_broker: StartBroker, room_for: RoomFor
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        await running.create_topic("U")
        job = Job(running)
        await job.stage((0, [A, B, C]))
        job.topic = "U"
        await job.stage((0, [D, E]))
        room_for(2)
        await hindered(job)
        await running.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(topic="T"))
        room_for(1)
        running.clock.advance(RETRY_MS)
        pending = running.broker.services.batches.commits._pending[job.writer_id]
        await until(lambda: pending.passed == 4)
    room_for(None)
    async with start_broker() as running:
        job.running = running
        answer = await job.query()
        assert await bodies(running, topic="U") == [D, E]
        assert (answer.outcome, answer.record_count) == (COMMITTED, 5)


async def test_s10_a_decided_batch_is_stored_where_the_log_was_cut_below_the_saved_place(
    start_broker: StartBroker, start_crashed: StartBroker, tmp_path: Path, room_for: RoomFor
) -> None:
    """Covers a log that RocketMQ cut at a bad record; decisions are found below the place."""
    (tmp_path / "config").mkdir()
    ledger = LedgerFile(tmp_path / "config")
    ledger.load()
    ledger.save({}, 1, ())
    async with start_crashed(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        job = Job(running)
        await job.stage((0, [A, B]))
        room_for(1)
        await hindered(job)
    room_for(None)
    async with start_broker() as running:
        job.running = running
        assert (await job.query()).outcome == COMMITTED
        assert await bodies(running) == [A, B]


@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_s10_a_batch_is_stored_once_though_its_decision_is_damaged_behind_its_completion(
    flush: FlushDiskType,
) -> None:
    with workshop() as folder:
        desk = Desk(folder, flush)
        desk.open()
        desk.write(0, 1)
        desk.write(1, 1)
        flush_log(desk.store)
        desk.crash()
        segment = folder / "commitlog" / f"{0:020d}"
        content = bytearray(segment.read_bytes())
        content[content.index(b'"batchId":0') + 3] ^= 1
        content[content.index(b'"batchId":1') + 3] ^= 1
        segment.write_bytes(content)
        desk = Desk(folder, flush)
        desk.open()
        assert desk.write(1, 2).outcome is Outcome.ALREADY_COMMITTED
        check_visible(desk, [0, 1])
        desk.crash()
