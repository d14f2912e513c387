"""A half message shows nowhere, and ends once, as its producer says first."""

from __future__ import annotations

import asyncio
import errno

import pytest

from rocketpy_broker.services.send.half_message import HALF_QUEUE
from rocketpy_broker.services.transactions.messages import OP_QUEUE
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.files.timer_checkpoint import TIMER_QUEUE
from rocketpy_proto.model import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_TOPIC
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record import Record, decode_record, encode_record
from rocketpy_proto.record.sys_flag import TRANSACTION_COMMIT
from rocketpy_proto.rocketpy.v1 import admin_pb2
from tests.support.blocks import WireBlock, wire_block
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.broker.transactions import (
    COMMIT,
    ROLLBACK,
    Half,
    Producer,
    bodies,
    count,
    end,
    ended,
    prepare,
    rounds,
)
from tests.support.store.disk_calls import refuse_writes

both = pytest.mark.parametrize("flush", list(FlushDiskType))


@both
async def test_t01_a_half_message_is_invisible_and_t02_a_commit_shows_it(
    start_broker: StartBroker, flush: FlushDiskType
) -> None:
    async with start_broker(flush) as running:
        await running.create_topic("T")
        half = await prepare(running, "a")
        assert (count(running), count(running, HALF_TOPIC, 0)) == (0, 1)
        assert await end(running, half, COMMIT) == ResponseCode.SUCCESS
        assert await bodies(running) == [b"a"]


async def test_t02_a_rollback_shows_nothing(running: RunningBroker) -> None:
    await running.create_topic("T")
    half = await prepare(running, "a")
    assert await end(running, half, ROLLBACK) == ResponseCode.SUCCESS
    assert count(running) == 0


async def test_t02_the_message_is_rocketmqs(running: RunningBroker) -> None:
    """Asserts flags and fields as the original broker writes them."""
    await running.create_topic("T")
    half = await prepare(running, "a", colour="red")
    await end(running, half, COMMIT)
    (response,) = await running.pull(topic="T", queue_id=1, offset=0)
    record = decode_record(response.records).record
    assert record.sys_flag == TRANSACTION_COMMIT
    assert record.prepared_transaction_offset == half.commit_log_offset
    assert record.properties == {
        "TRAN_MSG": "true",
        "PGROUP": "producers",
        "UNIQ_KEY": "a",
        "colour": "red",
        "__transactionId__": "a",
        "REAL_TOPIC": "T",
        "REAL_QID": "1",
    }


async def test_t03_an_op_message_names_the_half_message_that_is_over(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    halves = [await prepare(running, name) for name in "abc"]
    await end(running, halves[2], COMMIT)
    await end(running, halves[0], ROLLBACK)
    (response,) = await running.pull(topic=OP_TOPIC, queue_id=0, offset=0)
    records = response.records
    first = decode_record(records).record
    second = decode_record(records, int.from_bytes(response.record_sizes[:4], "big")).record
    # RocketMQ 4 takes the body for a number: with a separator it asks, and commits, again.
    assert [first.body, second.body] == [b"2", b"0"]
    assert first.properties["TAGS"] == second.properties["TAGS"] == "d"


@pytest.mark.parametrize(
    ("first", "second"), [(COMMIT, ROLLBACK), (ROLLBACK, COMMIT)], ids=["commit", "rollback"]
)
async def test_n11_a_decision_told_again_changes_nothing_and_another_is_refused(
    first: int, second: int, running: RunningBroker
) -> None:
    await running.create_topic("T")
    half = await prepare(running, "a")
    for _ in range(3):
        assert await end(running, half, first) == ResponseCode.SUCCESS
    answer = await ended(running, half, second)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert "before; nothing has changed" in answer.remark
    assert await bodies(running) == ([b"a"] if first == COMMIT else [])


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK], ids=["commit", "rollback"])
async def test_n11_a_decision_may_be_told_again_at_any_time(
    decision: int, running: RunningBroker
) -> None:
    """Covers any time, since no check would follow that the producer could wait for."""
    await running.create_topic("T")
    half = await prepare(running, "a", CHECK_IMMUNITY_TIME_IN_SECONDS="10")
    assert await end(running, half, decision) == ResponseCode.SUCCESS
    running.clock.jump(60_000)
    assert await end(running, half, decision) == ResponseCode.SUCCESS
    answer = await ended(running, half, COMMIT + ROLLBACK - decision)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert "before; nothing has changed" in answer.remark
    assert await bodies(running) == ([b"a"] if decision == COMMIT else [])


async def test_n11_ends_at_the_same_time_show_a_message_once(start_broker: StartBroker) -> None:
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        half = await prepare(running, "a")
        codes = await asyncio.gather(*(end(running, half, COMMIT) for _ in range(20)))
        assert set(codes) == {ResponseCode.SUCCESS}
        assert await bodies(running) == [b"a"]


WRONG = {
    "Find prepared transaction message failed": Half("a", 5, 0),
    "there is no half message at log offset -1": Half("a", -1, 0),
    "The transaction state table offset wrong": Half("a", 0, 7),
    "The transaction id wrong": Half("b", 0, 0),
}


@pytest.mark.parametrize("said", WRONG)
async def test_n11_a_foreign_end_is_refused(said: str, running: RunningBroker) -> None:
    await running.create_topic("T")
    half = await prepare(running, "a")
    assert half.commit_log_offset == half.queue_offset == 0
    answer = await ended(running, WRONG[said], COMMIT)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert said in answer.remark
    assert count(running) == 0
    assert await end(running, half, COMMIT) == ResponseCode.SUCCESS


async def test_n11_another_groups_end_and_no_decision_are_refused(running: RunningBroker) -> None:
    await running.create_topic("T")
    half = await prepare(running, "a")
    answer = await ended(running, half, COMMIT, group="others")
    assert (answer.code, "The producer group wrong" in answer.remark) == (1, True)
    answer = await ended(running, half, 0)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert count(running) == 0


async def test_n11_what_is_no_half_message_cannot_be_ended(running: RunningBroker) -> None:
    await running.create_topic("T")
    answer = await running.append("T", 1, b"ordinary")
    half = Half("", answer.physical_offset, answer.queue_offset)
    assert await end(running, half, COMMIT) == ResponseCode.SYSTEM_ERROR
    assert await bodies(running) == [b"ordinary"]


async def test_t02_a_commit_to_a_topic_that_is_gone_is_refused(running: RunningBroker) -> None:
    await running.create_topic("T")
    half = await prepare(running, "a")
    await running.broker.services.topics.delete("T")
    assert await end(running, half, COMMIT) == ResponseCode.TOPIC_NOT_EXIST
    await running.create_topic("T")
    assert await end(running, half, COMMIT) == ResponseCode.SUCCESS


async def test_t02_an_end_after_the_time_of_its_immunity_has_to_wait_for_the_question(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    running.clock.jump(1_700_000_000_000 - running.clock.now_ms())
    half = await prepare(running, "a", CHECK_IMMUNITY_TIME_IN_SECONDS="10")
    running.clock.jump(10_001)
    answer = await ended(running, half, COMMIT)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert "its time of 10000 ms has ended" in answer.remark
    assert await end(running, half, COMMIT, from_check=True) == ResponseCode.SUCCESS


async def test_t02_a_committed_message_with_a_delay_waits_then(running: RunningBroker) -> None:
    await running.create_topic("T")
    half = await prepare(running, "a", DELAY="1")
    await end(running, half, COMMIT)
    assert (count(running), count(running, "SCHEDULE_TOPIC_XXXX", 0)) == (0, 1)
    running.clock.advance(1_000)
    for _ in range(100):
        await asyncio.sleep(0)
    assert await bodies(running) == [b"a"]


async def test_t02_a_cancel_that_is_committed_too_late_ends_its_transaction(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    at_ms = str(running.clock.now_ms() + 5_000)
    half = await prepare(running, "a", TIMER_DELIVER_MS=at_ms, TIMER_DEL_UNIQKEY="T+K")
    running.clock.advance(10_000)
    answer = await ended(running, half, COMMIT)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "")
    assert (count(running), count(running, *TIMER_QUEUE)) == (0, 1)


REFUSED_BLOCKS = {
    "send each in its own block": {"TRAN_MSG": ["true"] * 2, "PGROUP": ["g"] * 2},
    "lacks the property PGROUP": {"TRAN_MSG": ["true"], "UNIQ_KEY": ["u"]},
    "lacks the property UNIQ_KEY": {"TRAN_MSG": ["TRUE"], "PGROUP": ["g"]},
}


@pytest.mark.parametrize("said", REFUSED_BLOCKS)
async def test_t01_half_messages_that_cannot_be_are_refused(
    said: str, running: RunningBroker
) -> None:
    properties = REFUSED_BLOCKS[said]
    await running.create_topic("T")
    block = wire_block("T", [b"x"] * len(properties["TRAN_MSG"]), properties=properties)
    answer = await running.append_block("T", 0, block)
    assert answer.status.code == ResponseCode.MESSAGE_ILLEGAL
    assert said in answer.status.remark
    assert running.broker.store.queues() == []


@pytest.mark.parametrize("value", ["false", "yes", "1"])
async def test_t01_only_true_makes_a_half_message(value: str, running: RunningBroker) -> None:
    await running.create_topic("T")
    await running.append_block("T", 1, wire_block("T", [b"x"], properties={"TRAN_MSG": [value]}))
    assert await bodies(running) == [b"x"]


@pytest.mark.parametrize(("times", "delay"), [(1, "1"), (1, "0"), (0, "1"), (1, "²")])
async def test_t01_a_retried_message_with_a_delay_is_no_half_message(
    start_broker: StartBroker, times: int, delay: str
) -> None:
    """Covers old clients, which send a transaction's failed message again with all properties."""
    properties = {"TRAN_MSG": "true", "PGROUP": "g", "UNIQ_KEY": "u", "DELAY": delay}
    record = encode_record(Record("T", 0, b"x", properties, reconsume_times=times))
    async with start_broker() as running:
        await running.create_topic("T")
        block = WireBlock(record, len(record).to_bytes(4, "big"))
        assert (await running.append_block("T", 0, block)).status.code == ResponseCode.SUCCESS
        is_half = count(running, HALF_TOPIC, 0) == 1
        assert is_half == (times == 0 or delay != "1")


@pytest.mark.parametrize("is_asked_after", [True, False])
async def test_t02_a_half_message_of_a_deleted_topic_gets_to_none_that_is_made_again(
    producer: Producer, running: RunningBroker, *, is_asked_after: bool
) -> None:
    await running.create_topic("T")
    half, other = await prepare(running, "a"), await prepare(running, "b")
    answer = await running.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(topic="T"))
    assert answer.status.code == ResponseCode.SUCCESS
    await running.create_topic("T")
    if is_asked_after:
        await rounds(running)
        assert producer.asked == []
        assert count(running, CHECK_MAX_TIME_TOPIC, 0) == 2
        assert await end(running, half, COMMIT) == ResponseCode.ILLEGAL_OPERATION
    else:
        assert await end(running, half, COMMIT) == ResponseCode.TOPIC_NOT_EXIST
        assert await end(running, other, ROLLBACK) == ResponseCode.SUCCESS
    assert await bodies(running) == []


async def test_t02_a_commit_that_could_not_be_noted_is_noted_by_the_next_try(
    monkeypatch: pytest.MonkeyPatch, running: RunningBroker
) -> None:
    await running.create_topic("T")
    half = await prepare(running, "a")
    with monkeypatch.context() as patch:
        refuse_writes(patch, errno.ENOSPC, OP_QUEUE)
        assert await end(running, half, COMMIT) == ResponseCode.SERVICE_NOT_AVAILABLE
        assert await bodies(running) == [b"a"]
    assert await end(running, half, COMMIT) == ResponseCode.SUCCESS
    assert await bodies(running) == [b"a"]
    assert count(running, *OP_QUEUE) == 1


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
