"""A crash loses nothing that was sent back and answered."""

from __future__ import annotations

import pytest

from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from tests.broker.conftest import StartBroker, until
from tests.broker.delay.test_crash import refusing
from tests.broker.delay.test_levels import advance
from tests.broker.retry.conftest import (
    DEAD_LETTERS,
    RETRY_TOPIC,
    Meant,
    answered,
    count,
    records,
    send,
)

both = pytest.mark.parametrize("flush", list(FlushDiskType))


@both
async def test_r01_what_was_answered_before_a_crash_comes_after_it(
    start_broker: StartBroker, start_crashed: StartBroker, flush: FlushDiskType
) -> None:
    """Asserts that each is there once: some wait, some were delivered, some are dead letters."""
    async with start_crashed(flush) as running:
        await running.create_topic("T")
        given = [await send(running, b"%d" % number) for number in range(6)]
        levels = (1, 2, -1, 1, 2, -1)
        meant = [Meant(offset, level) for offset, level in zip(given, levels, strict=True)]
        answer = await answered(running, *meant)
        assert [each.status.code for each in answer.messages] == [0] * 6
        await advance(running, 1_000)
        await until(lambda: count(running) == 2)
    async with start_broker(flush) as running:
        running.clock.advance(20_000)
        await until(lambda: count(running) == 4)
        assert sorted([one.body for one in await records(running)]) == [b"0", b"1", b"3", b"4"]
        assert [one.body for one in await records(running, DEAD_LETTERS)] == [b"2", b"5"]
        await advance(running, 20_000)
        assert count(running) == 4


@both
async def test_r01_a_crash_between_the_two_copies_of_a_retry_loses_none(
    start_broker: StartBroker,
    start_crashed: StartBroker,
    flush: FlushDiskType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        async with start_crashed(flush) as running:
            await running.create_topic("T")
            offset = await send(running, b"x")
            await answered(running, Meant(offset, 1))
            patch.setattr(MessageStore, "append", refusing(QueueKey(RETRY_TOPIC, 0)))
            await advance(running, 1_500)
            assert count(running) == 0
    async with start_broker(flush) as running:
        running.clock.advance(10_000)
        await until(lambda: count(running) == 1)
        assert [one.reconsume_times for one in await records(running)] == [1]


async def test_r01_a_stop_after_the_answer_loses_nothing(start_broker: StartBroker) -> None:
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        await answered(running, Meant(await send(running), -1))
        store = running.broker.store
        # Durable when answered, although the message says WAIT=false.
        assert store.flushed_end == store.positions().log_end
