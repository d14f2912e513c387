"""Delayed messages under attack: repeated crashes, clocks set back, other levels."""

from __future__ import annotations

import asyncio
import errno
import time
from pathlib import Path

import pytest

from rocketpy_broker.config import SystemTopicOptions
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.flush.group_commit import flush_now
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.delay_levels import DelayLevels
from rocketpy_broker.store.message_store import NOTHING_NEEDED
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import admin_pb2
from tests.broker.delay.test_levels import (
    SECOND_MS,
    advance,
    bodies,
    save_progress,
    send,
    visible,
)
from tests.support.blocks import WireBlock, wire_block
from tests.support.broker.event_loop import passes
from tests.support.broker.running_broker import RunningBroker, StartBroker, until
from tests.support.store.disk_calls import holding, refuse_writes

both = pytest.mark.parametrize("flush", list(FlushDiskType))


async def send_at(running: RunningBroker, at_ms: int, body: bytes, queue_id: int = 1) -> None:
    block = wire_block("T", [body], properties={"TIMER_DELIVER_MS": [str(at_ms)]})
    answer = await running.append_block("T", queue_id, block)
    assert answer.status.code == 0, answer.status.remark


@both
async def test_d04_a_save_of_another_level_after_a_crash_hides_no_delivery(
    start_broker: StartBroker,
    start_crashed: StartBroker,
    flush: FlushDiskType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Leaves level 1 half delivered in two runs; level 2 makes the second run save."""
    with monkeypatch.context() as patch:
        refuse_writes(patch, errno.ENOSPC, QueueKey("T", 2))
        async with start_crashed(flush) as running:
            await running.create_topic("T")
            for queue_id in (1, 2):
                await send(running, 1, b"%d" % queue_id, queue_id=queue_id)
            await advance(running, 1_200)
            await until(lambda: visible(running) == 1)
            flush_now(running.broker.store)
        async with start_crashed(flush) as running:
            running.clock.advance(1_200)
            await send(running, 2, b"another level", queue_id=3)
            await advance(running, 6_000)
            await until(lambda: visible(running, queue_id=3) == 1)
            assert visible(running) == 1
            flush_now(running.broker.store)
            await save_progress(running)
    async with start_broker(flush) as running:
        running.clock.advance(10_000)
        await until(lambda: visible(running, queue_id=2) == 1)
        await advance(running, 1_000)
        assert [visible(running, queue_id=queue_id) for queue_id in (1, 2)] == [1, 1]


async def test_d04_a_clock_behind_after_a_crash_and_a_save_of_another_level(
    start_broker: StartBroker, start_crashed: StartBroker
) -> None:
    """Sets the clock back, so that the second run finds the delivered message not due yet."""
    flush = FlushDiskType.ASYNC_FLUSH
    async with start_crashed(flush) as running:
        await running.create_topic("T")
        await send(running, 2, b"a")
        await advance(running, 5_200)
        await until(lambda: visible(running) == 1)
        flush_now(running.broker.store)
    async with start_crashed(flush) as running:
        await send(running, 1, b"b", queue_id=3)
        await advance(running, 1_500)
        await until(lambda: visible(running, queue_id=3) == 1)
        assert visible(running) == 1
        flush_now(running.broker.store)
        await save_progress(running)
    async with start_broker(flush) as running:
        await advance(running, 10_000)
        assert visible(running) == 1


async def test_d03_messages_of_a_level_that_is_no_more_are_delivered(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        await send(running, 3, b"a")
    async with start_broker(delay_levels=DelayLevels.parse("1s 5s")) as running:
        await advance(running, 15_000)
        assert await bodies(running) == [b"a"]


async def test_d03_shorter_levels_make_no_waiting_message_early(
    start_broker: StartBroker,
) -> None:
    async with start_broker(delay_levels=DelayLevels.parse("1m")) as running:
        await running.create_topic("T")
        await send(running, 1, b"a")
    async with start_broker(delay_levels=DelayLevels.parse("1s")) as running:
        await advance(running, 1_000)
        assert visible(running) == 0


async def test_d03_a_topic_that_is_made_again_gets_nothing_of_the_deleted_one(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    await send(running, 2, b"old")
    await send_at(running, running.clock.now_ms() + 5_000, b"old timer")
    await passes(40)
    answer = await running.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(topic="T"))
    assert answer.status.code == 0
    await advance(running, 1_000)
    await running.create_topic("T")
    await running.append("T", 1, b"new")
    await advance(running, 6_000)
    assert await bodies(running) == [b"new"]


async def test_d03_cleaning_spares_what_waits_while_a_clock_was_set_back(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    await send_at(running, running.clock.now_ms() + 3_600_000, b"a")
    await passes(40)
    running.clock.jump(3_600_000)
    await advance(running, 2_000)
    await until(lambda: visible(running) == 1)
    assert running.broker.store.waiting_from() == NOTHING_NEEDED
    running.clock.jump(-3_600_000)
    await send_at(running, running.clock.now_ms() + 600_000, b"b")
    await advance(running, 2_000)
    assert visible(running) == 1
    assert running.broker.store.waiting_from() != NOTHING_NEEDED


async def test_d03_cleaning_spares_what_waits_for_a_long_level(
    start_broker: StartBroker,
) -> None:
    clock = ManualClock(int(time.time() * 1_000))  # Files have the machine's time.
    async with start_broker(clock=clock, delay_levels=DelayLevels.parse("4d")) as running:
        await running.create_topic("T")
        await send(running, 1, b"a")
        for _ in range(3):
            await running.append("T", 2, b"x" * 600_000)
        flush_now(running.broker.store)
        await passes(40)
        running.clock.jump(74 * 3_600_000)
        running.broker.store.expired_segment_count(manual=True)
        running.clock.advance(2 * 3_600_000)
        await passes(40)
        assert visible(running) == 0
        removable = running.broker.store.expired_segment_count(manual=True)
        assert removable == 0


@pytest.mark.parametrize("bad", [b"\xff\xfe", b"a\x02", b"\x02\x02", b"\x01b", b"\x02\x01"])
@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_MS"])
async def test_d03_strange_properties_stop_no_delivery(
    name: str, bad: bytes, running: RunningBroker
) -> None:
    await running.create_topic("T")
    value = {"DELAY": "1", "TIMER_DELAY_MS": "1000"}[name]
    filler = "Q" * len(bad)
    block = wire_block("T", [b"a"], properties={name: [value], "p": [filler], "q": ["1"]})
    block = type(block)(block.records.replace(filler.encode(), bad), block.record_sizes)
    answer = await running.append_block("T", 1, block)
    await send(running, 1, b"b")
    await advance(running, 3_000)
    expected = [b"a", b"b"] if answer.status.code == 0 else [b"b"]
    assert sorted(await bodies(running)) == expected


@both
async def test_d04_timer_messages_stay_delivered_after_a_start_with_a_clock_behind(
    start_broker: StartBroker, start_crashed: StartBroker, flush: FlushDiskType
) -> None:
    """Saves progress in the second run, below the time of the first run's deliveries."""
    async with start_crashed(flush) as running:
        await running.create_topic("T")
        # Keeps the next message in reach of the next starts.
        await send_at(running, running.clock.now_ms() + 60_000, b"waits", queue_id=3)
        await send_at(running, running.clock.now_ms() + 5_000, b"a")
        await advance(running, 5_200)
        await until(lambda: visible(running) == 1)
        flush_now(running.broker.store)
    async with start_crashed(flush) as running:
        await send_at(running, running.clock.now_ms() + 1_000, b"b", queue_id=2)
        await advance(running, 1_500)
        await until(lambda: visible(running, queue_id=2) == 1)
        flush_now(running.broker.store)
        await save_progress(running)
    async with start_broker(flush) as running:
        await advance(running, 10_000)
        assert visible(running) == 1


async def test_f8_a_store_that_refuses_is_tried_at_growing_pauses_and_logged_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, running: RunningBroker
) -> None:
    """Refuses until the restart; each try reads and encodes the due messages."""
    await running.create_topic("T")
    await send(running, 1, b"waits")
    with monkeypatch.context() as patch:
        refused = refuse_writes(patch, errno.ENOSPC, QueueKey("T", 1))
        await advance(running, 41 * SECOND_MS)
        assert 40 <= len(refused) <= 45
        told = [record for record in caplog.records if "delay level 1 wait" in record.message]
        assert len(told) == 1
    await advance(running, 2 * SECOND_MS)
    assert await bodies(running) == [b"waits"]


async def test_d03_what_is_sent_to_wait_while_its_topic_is_deleted_is_refused(
    monkeypatch: pytest.MonkeyPatch, running: RunningBroker
) -> None:
    """Sends while the topic is marked as deleted and is still in the table.

    The deletion would miss the message. It saves the offsets of the topic's group meanwhile.
    """
    await running.create_topic("T")
    await running.pull(topic="T", queue_id=0, consumer_group="g", commit_offset=0)
    at_ms = running.clock.now_ms() + 2_000
    timed = wire_block("T", [b"old"], properties={"TIMER_DELIVER_MS": [str(at_ms)]})
    blocks = (
        wire_block("T", [b"old"]),
        wire_block("T", [b"old"], properties={"DELAY": ["1"]}),
        timed,
        wire_block("T", [bytes(200_000)], properties={"DELAY": ["1"]}),
        half_block(b"old"),
    )
    with holding(monkeypatch, "fsync", "*/config/consumerOffset.json.tmp") as gate:
        request = admin_pb2.DeleteTopicRequest(topic="T")
        deleting = asyncio.ensure_future(running.admin.DeleteTopic(request))
        await gate.reached()
        assert "T" in running.broker.services.topics
        answers = [await running.append_block("T", 1, block) for block in blocks]
    assert (await deleting).status.code == 0
    await running.create_topic("T")
    await advance(running, 3_000)
    assert await bodies(running) == []
    codes = [answer.status.code for answer in answers]
    assert codes == [ResponseCode.SERVICE_NOT_AVAILABLE] * 5


def half_block(body: bytes) -> WireBlock:
    properties = {"TRAN_MSG": ["true"], "PGROUP": ["producers"], "UNIQ_KEY": ["a"]}
    return wire_block("T", [body], properties=properties)


async def test_d04_what_the_timer_delivered_before_a_crash_outlives_a_run_without_a_timer(
    start_broker: StartBroker, start_crashed: StartBroker
) -> None:
    """Delivers by level in the second run, which saves that progress and ignores the timer's."""
    flush, begin_ms = FlushDiskType.ASYNC_FLUSH, ManualClock().now_ms()
    async with start_crashed(flush) as running:
        await running.create_topic("T")
        await send_at(running, begin_ms + 1_000, b"a")
        await advance(running, 1_100)
        await until(lambda: visible(running) == 1)
        flush_now(running.broker.store)
    options = SystemTopicOptions(timer_wheel_enable=False)
    clock = ManualClock(begin_ms + 3_000)
    async with start_broker(flush, clock=clock, system_topics=options) as running:
        await send(running, 1, b"another", queue_id=3)
        await advance(running, 1_500)
        await until(lambda: visible(running, queue_id=3) == 1)
    async with start_broker(flush, clock=ManualClock(begin_ms + 60_000)) as running:
        await advance(running, 2_000)
        assert await bodies(running) == [b"a"]


async def test_d04_a_start_from_the_backup_of_progress_delivers_nothing_again(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """Damages the file of progress; its backup is older by one save."""
    begin_ms = ManualClock().now_ms()
    async with start_broker() as running:
        await running.create_topic("T")
        for body in (b"a", b"b", b"c"):
            await send(running, 1, body)
            await advance(running, 1_200)
            flush_now(running.broker.store)
            await save_progress(running)
        assert visible(running) == 3
        kept = (tmp_path / "config" / "delayOffset.json.bak").read_bytes()
        log = (tmp_path / "config" / "deliveryLog.json").read_bytes()
    # As a kill after the last save leaves them.
    (tmp_path / "config" / "delayOffset.json.bak").write_bytes(kept)
    (tmp_path / "config" / "deliveryLog.json").write_bytes(log)
    (tmp_path / "config" / "delayOffset.json").write_text("{{{")
    async with start_broker(clock=ManualClock(begin_ms + 60_000)) as running:
        await advance(running, 2_000)
        assert await bodies(running) == [b"a", b"b", b"c"]


async def test_d04_a_stop_leaves_a_backup_that_says_what_the_file_does(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        for body in (b"a", b"b"):
            await send(running, 1, body)
            await advance(running, 6_000)
    config = tmp_path / "config"
    file, backup = config / "delayOffset.json", config / "delayOffset.json.bak"
    assert file.read_bytes() == backup.read_bytes()


async def test_n14_messages_that_waited_for_a_deleted_topic_leave_a_line_a_minute(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Asserts this for any number of queues and of scheduler slots."""
    async with start_broker() as running:
        await running.create_topic("U", queues=20)
        await running.create_topic("T")
        for round_ms in (1_000, 5_000, 70_000):
            at_ms = running.clock.now_ms() + round_ms
            for queue_id in range(20):
                timed = wire_block("U", [b"x"], properties={"TIMER_DELIVER_MS": [str(at_ms)]})
                answer = await running.append_block("U", queue_id, timed)
                assert answer.status.code == 0
        await running.broker.services.topics.delete("U")
        await advance(running, 75_000)
    told = [record.getMessage() for record in caplog.records if "dropped" in record.message]
    assert [line.split()[1] for line in told] == ["1", "40"]
