"""Checks of open transactions, limited in number and ended by the answer."""

from __future__ import annotations

import pytest

from rocketpy_broker.services.flush.group_commit import flush_now
from rocketpy_broker.store.cleaner import CleanPolicy
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.model import CHECK_MAX_TIME_TOPIC, HALF_TOPIC
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record import decode_record
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.broker.transactions import (
    COMMIT,
    GROUP,
    ROLLBACK,
    Producer,
    bodies,
    count,
    end,
    prepare,
    rounds,
)

both = pytest.mark.parametrize("flush", list(FlushDiskType))
BORN_MS = 1_700_000_000_000
HALF_QUEUE_0 = (HALF_TOPIC, 0)


@both
async def test_t04_an_open_transaction_is_asked_after_and_ends_by_the_answer(
    start_broker: StartBroker, producer: Producer, flush: FlushDiskType
) -> None:
    async with start_broker(flush) as running:
        await running.create_topic("T")
        await prepare(running, "a")
        await prepare(running, "b")
        await rounds(running)
        assert [one.transaction_id for one in producer.asked] == ["a", "b"]
        question = producer.asked[0]
        record = decode_record(question.record).record
        assert (record.topic, record.queue_id, record.body) == ("T", 1, b"a")
        assert question.producer_group == GROUP
        first, second = producer.halves
        assert await end(running, first, COMMIT, from_check=True) == ResponseCode.SUCCESS
        assert await end(running, second, ROLLBACK, from_check=True) == ResponseCode.SUCCESS
        await rounds(running, 3)
        assert len(producer.asked) == 2
        assert await bodies(running) == [b"a"]


async def test_t04_a_transaction_that_ended_is_not_asked_after(
    producer: Producer, running: RunningBroker
) -> None:
    await running.create_topic("T")
    await end(running, await prepare(running, "a"), COMMIT)
    await end(running, await prepare(running, "b"), ROLLBACK)
    await rounds(running, 2)
    assert producer.asked == []
    assert count(running, *HALF_QUEUE_0) == 2


async def test_t04_young_transactions_are_left_alone(
    producer: Producer, running: RunningBroker
) -> None:
    await running.create_topic("T")
    await prepare(running, "young")
    await prepare(running, "immune", CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
    checks = running.broker.services.transactions.checks
    running.clock.jump(6_000)
    await checks.check_all()
    assert producer.asked == []
    running.clock.jump(1)
    await checks.check_all()
    assert [one.transaction_id for one in producer.asked] == ["young"]
    running.clock.jump(3_600_000)
    await checks.check_all()
    assert [one.transaction_id for one in producer.asked] == ["young", "immune", "young"]


async def test_t04_immunity_costs_no_checks(producer: Producer, running: RunningBroker) -> None:
    """Covers rounds of immunity: RocketMQ counts them, and gives up what it never asked after."""
    await running.create_topic("T")
    await prepare(running, "a", CHECK_IMMUNITY_TIME_IN_SECONDS="1000")
    await rounds(running, 30)
    assert (producer.asked, count(running, *HALF_QUEUE_0)) == ([], 1)
    await rounds(running, 10)
    assert len(producer.asked) == 7
    assert count(running, CHECK_MAX_TIME_TOPIC, 0) == 0


@both
async def test_t04_after_15_checks_a_transaction_is_given_up_for_an_operator_to_find(
    start_broker: StartBroker, producer: Producer, flush: FlushDiskType
) -> None:
    async with start_broker(flush) as running:
        await running.create_topic("T")
        half = await prepare(running, "a")
        await rounds(running, 15)
        assert len(producer.asked) == 15
        await rounds(running, 3)
        assert len(producer.asked) == 15
        assert await bodies(running, CHECK_MAX_TIME_TOPIC, 0) == [b"a"]
        for one in (half, producer.halves[-1]):
            assert await end(running, one, COMMIT) == ResponseCode.ILLEGAL_OPERATION
        assert count(running) == 0


async def test_t04_an_old_transaction_is_given_up_without_counting(
    producer: Producer, running: RunningBroker
) -> None:
    await running.create_topic("T")
    await prepare(running, "a", CHECK_IMMUNITY_TIME_IN_SECONDS="1000000")
    running.clock.jump(CleanPolicy().reserved_ms)
    await rounds(running)
    assert producer.asked == []
    assert await bodies(running, CHECK_MAX_TIME_TOPIC, 0) == [b"a"]


async def test_t04_rounds_without_a_producer_count_too(
    running: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    await running.create_topic("T")
    await prepare(running, "a")
    await rounds(running, 14)
    producer = Producer()
    async with producer.listening(running):
        await rounds(running, 2)
    assert len(producer.asked) == 1
    assert "1 transaction: no producer of the group listens" in caplog.text
    assert f"'a' of producer group '{GROUP}'" in caplog.text


@pytest.mark.parametrize("resolution", [COMMIT, ROLLBACK])
async def test_n11_an_end_of_an_older_copy_counts_as_one_of_the_newest(
    producer: Producer, resolution: int, running: RunningBroker
) -> None:
    """Covers a late first decision of a producer, and a still later answer to a check."""
    await running.create_topic("T")
    half = await prepare(running, "a")
    await rounds(running, 2)
    assert await end(running, half, resolution) == ResponseCode.SUCCESS
    for copy in producer.halves:
        assert await end(running, copy, resolution, from_check=True) == ResponseCode.SUCCESS
    other = ROLLBACK if resolution == COMMIT else COMMIT
    assert await end(running, half, other) == ResponseCode.ILLEGAL_OPERATION
    await rounds(running, 2)
    assert len(producer.asked) == 2
    assert await bodies(running) == ([b"a"] if resolution == COMMIT else [])


async def test_t04_a_transaction_from_the_future_is_asked_after_at_once(
    producer: Producer, running: RunningBroker
) -> None:
    await running.create_topic("T")
    running.clock.jump(BORN_MS - running.clock.now_ms() - 3_600_000)
    await prepare(running, "a")
    await rounds(running)
    assert len(producer.asked) == 1


async def test_t04_the_progress_of_the_group_follows_what_is_over(
    start_broker: StartBroker, producer: Producer
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        halves = [await prepare(running, name) for name in "abc"]
        await end(running, halves[0], COMMIT)
        await end(running, halves[2], COMMIT)
        await rounds(running)
        assert [one.transaction_id for one in producer.asked] == ["b"]
    offsets = running.broker.services.offsets.committed
    # The copy of b, after the first three, is left.
    assert offsets.query("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0) == 3


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
        flush_now(store)
        assert store.expired_segment_count(manual=False) == 0
        await end(running, other, COMMIT)
        assert store.expired_segment_count(manual=False) == 0
        await end(running, half, COMMIT)
        assert store.expired_segment_count(manual=False) > 0
