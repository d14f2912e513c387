"""Transactions of a killed RocketMQ: none is checked or committed twice.

Its copies do not name their originals, and it saves its progress and its op messages late.
"""

from __future__ import annotations

from pathlib import Path

from rocketpy_broker.services.send.half_message import HALF_QUEUE
from rocketpy_broker.services.transactions.messages import CHECK_TIMES, Operation
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record import properties_strings, rewritten, with_property
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.broker.transactions import (
    COMMIT,
    ROLLBACK,
    Half,
    Producer,
    bodies,
    end,
    prepare,
    rounds,
)

FLUSH = FlushDiskType.ASYNC_FLUSH


def copy_as_rocketmq(running: RunningBroker, half: Half, times: int) -> Half:
    """Appends a copy as RocketMQ makes it at its `times`-th check."""
    found = running.broker.services.transactions.service._messages.half(half.queue_offset)
    assert found is not None
    strings = with_property(properties_strings(found.block), CHECK_TIMES, str(times))
    copy = rewritten(found.block, HALF_QUEUE.topic, strings)
    done = running.broker.store.append(HALF_QUEUE, copy)
    return Half(half.transaction_id, done.physical_offset, done.queue_offset)


def remove_own_files(folder: Path) -> None:
    """Removes the files that RocketMQ's directory has not."""
    (folder / "config" / "transactionLog.json").unlink()


async def test_t05_of_rocketmqs_copies_only_the_newest_is_asked_after(
    start_broker: StartBroker, start_crashed: StartBroker, producer: Producer
) -> None:
    async with start_crashed(FLUSH) as running:
        await running.create_topic("T")
        first, other = [await prepare(running, name) for name in "ab"]
        copies = [copy_as_rocketmq(running, half, 1) for half in (first, other)]
        copies[0] = copy_as_rocketmq(running, copies[0], 2)
    for _ in range(2):
        async with start_crashed(FLUSH) as running:
            producer.asked.clear()
            await rounds(running)
            assert sorted(one.transaction_id for one in producer.asked) == ["a", "b"]
    async with start_broker(FLUSH) as running:
        asked = {half.transaction_id: half for half in producer.halves}
        assert await end(running, asked["a"], COMMIT, from_check=True) == ResponseCode.SUCCESS
        assert await end(running, asked["b"], ROLLBACK, from_check=True) == ResponseCode.SUCCESS
        await rounds(running, 2)
        assert len(producer.asked) == 2
        assert await bodies(running) == [b"a"]


async def test_t05_a_late_answer_to_rocketmqs_question_ends_the_newest_copy(
    start_broker: StartBroker, start_crashed: StartBroker, producer: Producer
) -> None:
    async with start_crashed(FLUSH) as running:
        await running.create_topic("T")
        half = await prepare(running, "a")
        older = copy_as_rocketmq(running, half, 1)
        newest = copy_as_rocketmq(running, older, 2)
    async with start_broker(FLUSH) as running:
        for late in (older, half, newest, older):
            assert await end(running, late, COMMIT) == ResponseCode.SUCCESS
            assert await end(running, late, ROLLBACK) == ResponseCode.ILLEGAL_OPERATION
        await rounds(running, 2)
        assert producer.asked == []
        assert await bodies(running) == [b"a"]


async def test_t05_when_a_copy_has_ended_so_have_those_before_it(
    start_broker: StartBroker, start_crashed: StartBroker, producer: Producer
) -> None:
    async with start_crashed(FLUSH) as running:
        await running.create_topic("T")
        newest = copy_as_rocketmq(running, await prepare(running, "a"), 1)
        messages = running.broker.services.transactions.service._messages
        messages.append_op(newest.queue_offset, Operation.FOREIGN)
    async with start_broker(FLUSH) as running:
        await rounds(running, 2)
        assert producer.asked == []


async def test_t05_a_repeated_send_is_a_transaction_of_its_own(
    start_broker: StartBroker, start_crashed: StartBroker, producer: Producer
) -> None:
    async with start_crashed(FLUSH) as running:
        await running.create_topic("T")
        await prepare(running, "a")
        await prepare(running, "a")
    async with start_broker(FLUSH) as running:
        await rounds(running)
        assert [one.transaction_id for one in producer.asked] == ["a", "a"]


async def test_t05_what_rocketmq_committed_is_found_in_a_store_that_was_never_ours(
    start_broker: StartBroker, start_crashed: StartBroker, producer: Producer, tmp_path: Path
) -> None:
    async with start_crashed(FLUSH) as running:
        await running.create_topic("T")
        await end(running, await prepare(running, "before"), COMMIT)
        half = await prepare(running, "a")
        await prepare(running, "b")
        messages = running.broker.services.transactions.service._messages
        found = messages.half(half.queue_offset)
        assert found is not None
        messages.append_final(found)
    remove_own_files(tmp_path)
    async with start_broker(FLUSH) as running:
        await rounds(running)
        assert [one.transaction_id for one in producer.asked] == ["b"]
        assert await bodies(running) == [b"before", b"a"]
