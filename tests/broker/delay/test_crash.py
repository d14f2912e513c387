"""A crash of a broker that delivers: delivered messages are recognised, also without a save."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketpy_broker.errors import StoreBusyError
from rocketpy_broker.services.flush.group_commit import flush_now
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.delay_levels import SCHEDULE_TOPIC
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.dispatch import NOTHING_KNOWN, AppendHints
from rocketpy_broker.store.values import AppendResult, QueueKey
from rocketpy_proto.record import RecordBlock
from tests.blocks import wire_block
from tests.broker.conftest import StartBroker, until
from tests.broker.delay.test_levels import advance, bodies, save_progress, send, visible

both = pytest.mark.parametrize("flush", list(FlushDiskType))


@both
async def test_d04_what_was_delivered_before_a_crash_is_not_delivered_again(
    start_broker: StartBroker, start_crashed: StartBroker, flush: FlushDiskType
) -> None:
    async with start_crashed(flush) as running:
        await running.create_topic("T")
        await send(running, 1, b"a", b"b")
        await send(running, 2, b"c")
        # Shorter than the time until the next save.
        await advance(running, 1_200)
        await until(lambda: visible(running) == 2)
    async with start_broker(flush) as running:
        running.clock.advance(10_000)
        await until(lambda: visible(running) == 3)
        assert await bodies(running) == [b"a", b"b", b"c"]
        await advance(running, 10_000)
        assert visible(running) == 3


@both
async def test_d04_a_crash_between_two_queues_of_one_turn_leaves_the_rest_to_deliver(
    start_broker: StartBroker,
    start_crashed: StartBroker,
    flush: FlushDiskType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        async with start_crashed(flush) as running:
            await running.create_topic("T")
            for queue_id in (1, 2, 1, 3):
                await send(running, 1, b"%d" % queue_id, queue_id=queue_id)
            patch.setattr(MessageStore, "append", refusing(QueueKey("T", 2)))
            await advance(running, 1_200)
            await until(lambda: visible(running) == 2)
            assert visible(running, queue_id=2) == 0
    async with start_broker(flush) as running:
        running.clock.advance(10_000)
        await until(lambda: visible(running, queue_id=3) == 1)
        found = [await bodies(running, queue_id=queue_id) for queue_id in (1, 2, 3)]
        assert found == [[b"1", b"1"], [b"2"], [b"3"]]


async def test_d03_what_cannot_be_appended_is_tried_again_and_nothing_goes_twice(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        for queue_id in (1, 2, 1, 3):
            await send(running, 1, b"%d" % queue_id, queue_id=queue_id)
        with monkeypatch.context() as patch:
            patch.setattr(MessageStore, "append", refusing(QueueKey("T", 2)))
            await advance(running, 2_000)
            assert [visible(running, queue_id=queue_id) for queue_id in (1, 2, 3)] == [2, 0, 0]
        await advance(running, 200)
        found = [await bodies(running, queue_id=queue_id) for queue_id in (1, 2, 3)]
        assert found == [[b"1", b"1"], [b"2"], [b"3"]]


def refusing(refused: QueueKey) -> Callable[..., AppendResult]:
    """Returns an append that refuses blocks for one queue."""
    append = MessageStore.append

    def partly(
        store: MessageStore, queue: QueueKey, block: RecordBlock, known: AppendHints = NOTHING_KNOWN
    ) -> AppendResult:
        if queue == refused:
            raise StoreBusyError(1, 1)
        return append(store, queue, block, known)

    return partly


async def test_d04_the_file_of_progress_from_rocketmq_counts_alone(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """Covers RocketMQ's deliveries, which have no marks; the end of its log is unknown, too."""
    async with start_broker() as running:
        await running.create_topic("T")
        await send(running, 1, b"a", b"b")
        await advance(running, 1_200)
    (tmp_path / "config" / "deliveryLog.json").unlink()
    (tmp_path / "config" / "deliveryLog.json.bak").unlink(missing_ok=True)
    async with start_broker() as running:
        await advance(running, 1_200)
        assert visible(running) == 2
        assert visible(running, SCHEDULE_TOPIC, 0) == 2


@both
async def test_d04_a_save_reaches_only_as_far_as_the_disk_does(
    start_broker: StartBroker, flush: FlushDiskType
) -> None:
    async with start_broker(flush) as running:
        await running.create_topic("T")
        progress = running.broker.services.delay.progress
        await send(running, 1, b"a")
        await advance(running, 1_200)
        await until(lambda: progress.next_offset(1) == 1)
        store = running.broker.store
        if store.flushed_end < store.positions().log_end:
            assert progress.plan_save() is None
        plan = store.plan_flush()
        plan.run()
        store.flushed(plan)
        assert progress.plan_save() is not None


@both
async def test_d04_a_save_between_two_queues_of_one_turn_doubles_nothing(
    start_broker: StartBroker,
    start_crashed: StartBroker,
    flush: FlushDiskType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        async with start_crashed(flush) as running:
            await running.create_topic("T")
            for queue_id in (1, 2):
                await send(running, 1, b"%d" % queue_id, queue_id=queue_id)
            await send(running, 2, b"another level", queue_id=3)
            patch.setattr(MessageStore, "append", refusing(QueueKey("T", 2)))
            await advance(running, 5_200)
            await until(lambda: visible(running, queue_id=3) == 1)
            flush_now(running.broker.store)
            await save_progress(running)
    async with start_broker(flush) as running:
        running.clock.advance(10_000)
        await until(lambda: visible(running, queue_id=2) == 1)
        await advance(running, 1_000)
        assert [visible(running, queue_id=queue_id) for queue_id in (1, 2)] == [1, 1]


async def test_d03_what_comes_to_be_due_while_a_turn_is_tried_again_is_delivered(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        for queue_id in (1, 2):
            await send(running, 1, b"a", queue_id=queue_id)
        running.clock.advance(500)
        await send(running, 1, b"b", queue_id=1)
        with monkeypatch.context() as patch:
            patch.setattr(MessageStore, "append", refusing(QueueKey("T", 2)))
            await advance(running, 2_000)
        await advance(running, 500)
        found = [await bodies(running, queue_id=queue_id) for queue_id in (1, 2)]
        assert found == [[b"a", b"b"], [b"a"]]


async def test_d04_a_level_that_a_start_has_set_back_stays_there_over_a_kill(
    start_broker: StartBroker, start_crashed: StartBroker, tmp_path: Path
) -> None:
    """Covers RocketMQ's progress that its log lost in a power cut; the queue grows back later."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "delayOffset.json").write_text('{"offsetTable":{1:2}}')
    wanted = [b"a", b"b", b"c"]
    async with start_crashed(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        await send(running, 1, *wanted)
    async with start_broker() as running:
        await advance(running, 2_000)
        assert await bodies(running) == wanted


async def test_d04_deliveries_are_found_where_the_log_was_cut_below_the_saved_place(
    start_broker: StartBroker, start_crashed: StartBroker, tmp_path: Path
) -> None:
    """Covers a log that RocketMQ cut at a bad record; the next start finds it shorter still."""
    async with start_broker():
        pass
    path = tmp_path / "config" / "deliveryLog.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "logOffset": 2000}))
    async with start_crashed(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        await send(running, 1, b"a")
        await advance(running, 1_200)
        await until(lambda: visible(running) == 1)
    async with start_broker() as running:
        await advance(running, 10_000)
        assert visible(running) == 1


async def test_d04_timer_messages_of_a_queue_that_was_cut_below_the_saved_place_are_read(
    start_broker: StartBroker, start_crashed: StartBroker, tmp_path: Path
) -> None:
    """Covers such a log and the messages of the timer queue."""
    async with start_broker():
        pass
    path = tmp_path / "config" / "deliveryLog.json"
    content = json.loads(path.read_text())
    content["timer"] |= {"pendingOffset": 2, "readOffset": 2}
    path.write_text(json.dumps(content))
    wanted = [b"a", b"b", b"c"]
    async with start_crashed(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        at_ms = str(running.clock.now_ms() + 5_000)
        block = wire_block("T", wanted, properties={"TIMER_DELIVER_MS": [at_ms] * 3})
        assert (await running.append_block("T", 1, block)).status.code == 0
    async with start_broker() as running:
        await advance(running, 6_000)
        assert await bodies(running) == wanted
