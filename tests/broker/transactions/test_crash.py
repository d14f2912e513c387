"""A crash loses no committed message, doubles none, and leaves open ones to check."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy_broker.response_code import ResponseCode
from rocketpy_broker.services.send.half_message import HALF_QUEUE
from rocketpy_broker.services.topics.system import CHECK_MAX_TIME_TOPIC, HALF_TOPIC
from rocketpy_broker.services.transactions.messages import OP_QUEUE
from rocketpy_broker.store.cleaner import CleanPolicy
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from tests.broker.conftest import StartBroker
from tests.broker.delay.test_crash import refusing
from tests.broker.transactions.conftest import (
    COMMIT,
    ROLLBACK,
    Producer,
    bodies,
    count,
    end,
    prepare,
    rounds,
)

both = pytest.mark.parametrize("flush", list(FlushDiskType))


@both
async def test_t05_after_a_crash_each_transaction_is_what_it_was(
    start_broker: StartBroker,
    start_crashed: StartBroker,
    producer: Producer,
    flush: FlushDiskType,
) -> None:
    async with start_crashed(flush) as running:
        await running.create_topic("T")
        halves = [await prepare(running, name) for name in "abcd"]
        await rounds(running)
        await end(running, halves[0], COMMIT)
        await end(running, producer.halves[1], ROLLBACK)
    async with start_broker(flush) as running:
        for half, resolution in ((halves[0], COMMIT), (producer.halves[1], ROLLBACK)):
            assert await end(running, half, resolution) == ResponseCode.SUCCESS
        producer.asked.clear()
        await rounds(running)
        assert [one.transaction_id for one in producer.asked] == ["c", "d"]
        await end(running, producer.halves[0], COMMIT, from_check=True)
        await end(running, halves[3], COMMIT)
        assert await bodies(running) == [b"a", b"c", b"d"]
        await rounds(running, 3)
        assert len(producer.asked) == 2


@both
async def test_t05_a_message_whose_op_message_is_lost_is_not_committed_again(
    start_broker: StartBroker,
    start_crashed: StartBroker,
    producer: Producer,
    flush: FlushDiskType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        async with start_crashed(flush) as running:
            await running.create_topic("T")
            half = await prepare(running, "a")
            patch.setattr(MessageStore, "append", refusing(OP_QUEUE))
            assert await end(running, half, COMMIT) == ResponseCode.SYSTEM_BUSY
            flush_all(running.broker.store)
    async with start_broker(flush) as running:
        assert await end(running, half, COMMIT) == ResponseCode.SUCCESS
        assert await end(running, half, ROLLBACK) == ResponseCode.ILLEGAL_OPERATION
        await rounds(running, 2)
        assert producer.asked == []
        assert await bodies(running) == [b"a"]


async def test_t05_a_final_message_is_found_where_the_log_was_cut_below_the_saved_place(
    start_broker: StartBroker,
    start_crashed: StartBroker,
    producer: Producer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Covers a log that RocketMQ cut at a bad record; the next start finds it shorter still."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "transactionLog.json").write_text('{"logOffset":2000}')
    with monkeypatch.context() as patch:
        async with start_crashed(FlushDiskType.SYNC_FLUSH) as running:
            await running.create_topic("T")
            half = await prepare(running, "a")
            patch.setattr(MessageStore, "append", refusing(OP_QUEUE))
            assert await end(running, half, COMMIT) == ResponseCode.SYSTEM_BUSY
            flush_all(running.broker.store)
    async with start_broker() as running:
        await rounds(running)
        assert producer.asked == []
        assert await end(running, half, COMMIT) == ResponseCode.SUCCESS
        assert await bodies(running) == [b"a"]


def flush_all(store: MessageStore) -> None:
    plan = store.plan_flush()
    plan.run()
    store.flushed(plan)


async def test_t02_a_commit_that_could_not_be_noted_is_noted_by_the_next_try(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        half = await prepare(running, "a")
        with monkeypatch.context() as patch:
            patch.setattr(MessageStore, "append", refusing(OP_QUEUE))
            assert await end(running, half, COMMIT) == ResponseCode.SYSTEM_BUSY
            assert await bodies(running) == [b"a"]
        assert await end(running, half, COMMIT) == ResponseCode.SUCCESS
        assert await bodies(running) == [b"a"]
        assert count(running, *OP_QUEUE) == 1


@pytest.mark.parametrize("refused", [QueueKey("T", 1), HALF_QUEUE, OP_QUEUE])
async def test_t04_a_round_that_is_cut_short_goes_on_in_the_next(
    start_broker: StartBroker,
    start_crashed: StartBroker,
    producer: Producer,
    refused: QueueKey,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Covers OP_QUEUE: a copy is there, the older one is still open, and both show later."""
    flush = FlushDiskType.ASYNC_FLUSH
    with monkeypatch.context() as patch:
        async with start_crashed(flush) as running:
            await running.create_topic("T")
            half = await prepare(running, "a")
            patch.setattr(MessageStore, "append", refusing(refused))
            if refused.topic == "T":
                assert await end(running, half, COMMIT) == ResponseCode.SYSTEM_BUSY
            else:
                running.clock.jump(30_000)
                with pytest.raises(Exception, match="busy"):
                    await running.broker.services.transactions.checks.check_all()
    async with start_broker(flush) as running:
        producer.asked.clear()
        await rounds(running)
        assert [one.transaction_id for one in producer.asked] == ["a"]
        await end(running, producer.halves[0], COMMIT)
        await rounds(running, 2)
        assert len(producer.asked) == 1
        assert await bodies(running) == [b"a"]


async def test_t05_a_clean_stop_leaves_nothing_to_look_for(
    start_broker: StartBroker, producer: Producer
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        for name in "abc":
            await end(running, await prepare(running, name), COMMIT)
    offsets = running.broker.services.offsets.committed
    found = [offsets.query("CID_RMQ_SYS_TRANS", queue.topic, 0) for queue in (HALF_QUEUE, OP_QUEUE)]
    assert found == [3, 3]
    async with start_broker() as running:
        await rounds(running, 2)
        assert producer.asked == []
        assert count(running, HALF_TOPIC, 0) == 3


@both
async def test_t05_what_was_given_up_before_a_crash_is_given_up_once(
    start_broker: StartBroker,
    start_crashed: StartBroker,
    producer: Producer,
    flush: FlushDiskType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Crashes between the message for the operator and its op message."""
    with monkeypatch.context() as patch:
        async with start_crashed(flush) as running:
            await running.create_topic("T")
            halves = [await prepare(running, name) for name in "ab"]
            await end(running, halves[1], ROLLBACK)
            await rounds(running, 15)
            patch.setattr(MessageStore, "append", refusing(OP_QUEUE))
            running.clock.jump(30_000)
            with pytest.raises(Exception, match="busy"):
                await running.broker.services.transactions.checks.check_all()
            flush_all(running.broker.store)
    async with start_broker(flush) as running:
        for half in (halves[0], producer.halves[-1]):
            assert await end(running, half, COMMIT) == ResponseCode.ILLEGAL_OPERATION
        await rounds(running, 3)
        assert await bodies(running, CHECK_MAX_TIME_TOPIC, 0) == [b"a"]
        assert count(running) == 0


async def test_t05_cleaning_leaves_alone_what_is_open(
    start_broker: StartBroker, producer: Producer
) -> None:
    policy = CleanPolicy(clean_file_forcibly_enable=True, clean_forcibly_ratio=-1.0)
    async with start_broker(clean_policy=policy, commit_log_segment_bytes=1 << 16) as running:
        await running.create_topic("T")
        store = running.broker.store
        half, other = [await prepare(running, name) for name in "ab"]
        for _ in range(4):
            await running.append("T", 0, bytes(60_000))
        flush_all(store)
        assert store.expired_segment_count(manual=False) == 0
        await end(running, other, COMMIT)
        assert store.expired_segment_count(manual=False) == 0
        await end(running, half, COMMIT)
        assert store.expired_segment_count(manual=False) > 0
