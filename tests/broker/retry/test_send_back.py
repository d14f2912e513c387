"""Messages sent back: their delay, their redelivery and their last attempt."""

from __future__ import annotations

import pytest

from rocketpy_broker.services.retry.service import CALL_BYTES_MAX
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.model import SCHEDULE_TOPIC
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record import encode_offset_message_id
from tests.support.broker.event_loop import at_each_slot, passes
from tests.support.broker.retries import (
    DEAD_LETTER,
    DEAD_LETTERS,
    DROPPED,
    RETRY,
    RETRY_TOPIC,
    Meant,
    answered,
    count,
    outcome,
    records,
    send,
    set_group,
)
from tests.support.broker.running_broker import RunningBroker, StartBroker, until
from tests.support.broker.transactions import COMMIT, end, prepare
from tests.support.store.disk_calls import noted_writes, queue_of

both = pytest.mark.parametrize("flush", list(FlushDiskType))
MINUTE = 60
# Seconds before each delivery after the first one: docs/design/broker_behaviour.md section 6.2.
WAITS = (10, 30, *(MINUTE * each for each in (*range(1, 11), 20, 30, 60, 120)))


async def wait(running: RunningBroker, seconds: int) -> None:
    """Advances the clock at once, then runs the broker's tasks."""
    running.clock.advance(1_000 * seconds)
    await passes(40)


@both
async def test_r01_a_message_sent_back_comes_again_and_says_where_it_is_from(
    start_broker: StartBroker, flush: FlushDiskType
) -> None:
    async with start_broker(flush) as running:
        await running.create_topic("T")
        await send(running, b"before")
        offset = await send(running, b"body", UNIQ_KEY="u", KEYS="k", colour="red", WAIT="true")
        code, to, remark = await outcome(running, offset)
        assert (code, to, remark) == (ResponseCode.SUCCESS, RETRY, "")
        assert await records(running) == []
        await wait(running, 10)
        await until(lambda: count(running) == 1)
        (first,) = [one for one in await records(running, "T") if one.body == b"body"]
        (again,) = await records(running)
        assert again.properties == {
            "TAGS": "A",
            "UNIQ_KEY": "u",
            "KEYS": "k",
            "colour": "red",
            "RETRY_TOPIC": "T",
            "ORIGIN_MESSAGE_ID": encode_offset_message_id(first.store_host, offset),
            "WAIT": "false",
            "DELAY": "3",
            "REAL_TOPIC": RETRY_TOPIC,
            "REAL_QID": "0",
        }
        assert (again.body, again.reconsume_times) == (b"body", 1)
        for name in ("born_timestamp_ms", "born_host", "flag"):
            assert getattr(again, name) == getattr(first, name)


async def test_r01_the_second_time_it_still_says_where_it_was_first(running: RunningBroker) -> None:
    await running.create_topic("T")
    await outcome(running, await send(running), 1)
    await wait(running, 1)
    (again,) = await records(running)
    await outcome(running, again.physical_offset, 1)
    await wait(running, 1)
    third = (await records(running))[1]
    assert third.reconsume_times == 2
    for name in ("RETRY_TOPIC", "ORIGIN_MESSAGE_ID"):
        assert third.properties[name] == again.properties[name]


async def test_r02_r03_a_message_that_fails_17_times_waits_16_times_and_is_a_dead_letter(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    offset = await send(running, b"poison")
    for times, seconds in enumerate(WAITS):
        assert await outcome(running, offset) == (ResponseCode.SUCCESS, RETRY, "")
        await wait(running, seconds - 1)
        assert count(running) == times
        await wait(running, 1)
        (again,) = await records(running, offset=times)
        assert again.reconsume_times == times + 1
        offset = again.physical_offset
    assert await outcome(running, offset) == (ResponseCode.SUCCESS, DEAD_LETTER, "")
    (dead,) = await records(running, DEAD_LETTERS)
    assert (dead.body, dead.reconsume_times) == (b"poison", 17)
    assert (dead.properties["DELAY"], dead.properties["RETRY_TOPIC"]) == ("0", "T")
    await wait(running, 3 * 3600)
    assert (count(running), count(running, DEAD_LETTERS)) == (16, 1)


@pytest.mark.parametrize(("level", "queue_id"), [(1, 0), (5, 4), (18, 17), (30, 17)])
async def test_r02_a_level_is_taken_as_it_is_up_to_the_highest(
    level: int, queue_id: int, running: RunningBroker
) -> None:
    await running.create_topic("T")
    await outcome(running, await send(running, times=7), level)
    assert count(running, SCHEDULE_TOPIC, queue_id) == 1


@pytest.mark.parametrize(
    ("times", "level", "times_max", "to"),
    [
        (0, -1, None, DEAD_LETTER),
        (0, 0, 0, DEAD_LETTER),
        (15, 0, None, RETRY),
        (16, 0, None, DEAD_LETTER),
        (16, 0, 17, RETRY),
        (2, 0, 2, DEAD_LETTER),
        (3, 5, 2, DEAD_LETTER),
        (2_147_483_647, 0, None, DEAD_LETTER),
    ],
)
async def test_r03_a_negative_level_and_too_many_deliveries_make_a_dead_letter(
    times: int, level: int, times_max: int | None, to: int, running: RunningBroker
) -> None:
    await running.create_topic("T")
    offset = await send(running, times=times)
    found = await outcome(running, offset, level, times_max=times_max)
    assert found == (ResponseCode.SUCCESS, to, "")
    assert count(running, DEAD_LETTERS) == int(to == DEAD_LETTER)


async def test_r03_the_groups_own_maximum_counts(running: RunningBroker) -> None:
    await running.create_topic("T")
    await set_group(running, retry_max_times=1)
    assert (await outcome(running, await send(running)))[1] == RETRY
    assert (await outcome(running, await send(running, times=1)))[1] == DEAD_LETTER


async def test_r03_a_dead_letter_waits_for_nothing(running: RunningBroker) -> None:
    """Covers the time at which the message was once delivered, too."""
    await running.create_topic("T")
    offset = await send(running, TIMER_DELAY_SEC="0", DELAY="0")
    await outcome(running, offset, -1)
    assert count(running, DEAD_LETTERS) == 1
    topic = running.broker.services.topics.get(DEAD_LETTERS)
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)


async def test_r04_a_group_without_retry_queues_drops_messages(running: RunningBroker) -> None:
    await running.create_topic("T")
    await set_group(running, retry_queue_nums=0)
    offset = await send(running)
    end = running.broker.store.positions().log_end
    answer = await answered(running, Meant(offset), Meant(12345, -1))
    assert [each.to for each in answer.messages] == [DROPPED] * 2
    assert [each.status.code for each in answer.messages] == [ResponseCode.SUCCESS] * 2
    assert running.broker.store.positions().log_end == end
    assert RETRY_TOPIC not in running.broker.services.topics


async def test_r01_a_group_that_gets_retry_queues_later_has_them(running: RunningBroker) -> None:
    await running.create_topic("T")
    await outcome(running, await send(running), 1)
    await set_group(running, retry_queue_nums=3)
    for _ in range(3):
        await outcome(running, await send(running), 1)
    await wait(running, 1)
    found = [len(await records(running, queue_id=queue_id)) for queue_id in range(3)]
    assert found == [2, 1, 1] or sorted(found) == [1, 1, 2]


async def test_r01_one_call_takes_a_thousand_messages_each_with_its_own_status(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    given = [await send(running, b"%d" % number) for number in range(20)]
    meant = [Meant(given[number % 20], (-1, 1, 2)[number % 3]) for number in range(1_000)]
    meant[500] = Meant(given[0] + 1)
    answer = await answered(running, *meant)
    assert len(answer.messages) == 1_000
    codes = [each.status.code for each in answer.messages]
    assert (codes.count(0), codes[500]) == (999, ResponseCode.SYSTEM_ERROR)
    assert [each.to for each in answer.messages[:3]] == [DEAD_LETTER, RETRY, RETRY]
    dead = [record.body for record in await records(running, DEAD_LETTERS)]
    assert dead == [b"%d" % (number % 20) for number in range(1_000) if number % 3 == 0]
    await wait(running, 5)
    await until(lambda: count(running) == 665)


async def test_r01_a_call_with_many_bytes_answers_for_the_first_messages(
    start_broker: StartBroker,
) -> None:
    async with start_broker(commit_log_segment_bytes=16 << 20) as running:
        await running.create_topic("T")
        offset = await send(running, b"x" * (CALL_BYTES_MAX // 4))
        answer = await answered(running, *[Meant(offset)] * 50)
        assert len(answer.messages) == 4
        assert count(running, SCHEDULE_TOPIC, 2) == 4


async def test_r01_one_message_that_cannot_be_stored_keeps_none_of_the_others(
    running: RunningBroker,
) -> None:
    """Covers a message that is too long with the properties of a message sent back."""
    await running.create_topic("T")
    given = [
        await send(running, b"a"),
        await send(running, b"long", much="x" * 32_700),
        await send(running, b"b"),
    ]
    answer = await answered(running, *(Meant(offset, 1) for offset in given))
    codes = [each.status.code for each in answer.messages]
    assert codes == [0, ResponseCode.MESSAGE_ILLEGAL, 0]
    assert "the message cannot be stored when it is sent back" in answer.messages[1].status.remark
    await wait(running, 1)
    assert [record.body for record in await records(running)] == [b"a", b"b"]


async def test_r01_a_committed_message_sent_back_is_an_ordinary_one(running: RunningBroker) -> None:
    """Guards against the bits and place of a transaction: they would end another one at a start."""
    await running.create_topic("T")
    await end(running, await prepare(running, "a"), COMMIT)
    (message,) = await records(running, "T", 1)
    await outcome(running, message.physical_offset, -1)
    (dead,) = await records(running, DEAD_LETTERS)
    assert (dead.sys_flag, dead.prepared_transaction_offset) == (0, 0)


async def test_r01_each_slice_of_a_call_gives_way(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    offset = await send(running)
    ways = list[int]()
    async with at_each_slot(lambda: ways.append(count(running, DEAD_LETTERS))):
        await answered(running, *[Meant(offset, -1)] * 200)
    assert ways == [0, 64, 64, 128, 128, 192, 192, 200]


async def test_r01_records_are_what_the_store_was_given(running: RunningBroker) -> None:
    """Asserts that each retry is stored twice, waiting and delivered, and a dead letter once."""
    await running.create_topic("T")
    offset = await send(running)
    with pytest.MonkeyPatch.context() as patch:
        appended = noted_writes(patch)
        await outcome(running, offset)
        await wait(running, 10)
        await outcome(running, offset, -1)
    assert [queue_of(block).topic for block in appended] == [
        SCHEDULE_TOPIC,
        RETRY_TOPIC,
        DEAD_LETTERS,
    ]


async def test_r01_a_stop_after_the_answer_loses_nothing(start_broker: StartBroker) -> None:
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        await answered(running, Meant(await send(running), -1))
        store = running.broker.store
        # Durable when answered, although the message says WAIT=false.
        assert store.flushed_end == store.positions().log_end
