"""Delay levels through a real server: messages wait until they are due, and come once."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from rocketpy_broker.services.delay.progress import DeliveryProgress
from rocketpy_broker.services.flush.group_commit import flush_now
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model import SCHEDULE_TOPIC
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.support.blocks import bodies_of, wire_block
from tests.support.broker.event_loop import passes
from tests.support.broker.running_broker import RunningBroker, StartBroker, until
from tests.support.store.disk_calls import refuse_writes

SECOND_MS = 1_000
both = pytest.mark.parametrize("flush", list(FlushDiskType))


async def send(
    running: RunningBroker, level: int, *bodies: bytes, topic: str = "T", queue_id: int = 1
) -> broker_pb2.AppendResponse:
    """Sends one block of messages with this delay level."""
    block = wire_block(topic, bodies, tags="A", properties={"DELAY": [str(level)] * len(bodies)})
    return await running.append_block(topic, queue_id, block)


def visible(running: RunningBroker, topic: str = "T", queue_id: int = 1) -> int:
    return running.broker.store.range_of(QueueKey(topic, queue_id)).max_offset


async def advance(running: RunningBroker, ms: int) -> None:
    """Moves time in steps, in which the broker's tasks run."""
    for _ in range(0, ms, 100):
        running.clock.advance(100)
        await passes(40)


async def save_progress(running: RunningBroker) -> None:
    """Saves as the broker does, after a save in progress: two at once would share one `.tmp`."""
    tables = {table.name: table for table in running.broker._lifecycle.tables}
    await tables[DeliveryProgress.__name__].save()


async def bodies(running: RunningBroker, topic: str = "T", queue_id: int = 1) -> list[bytes]:
    if visible(running, topic, queue_id) == 0:
        return []
    responses = await running.pull(topic=topic, queue_id=queue_id, offset=0)
    return [
        body
        for response in responses
        for body in bodies_of(response.records, response.record_sizes)
    ]


@both
async def test_d03_a_message_comes_when_its_level_is_over_and_not_before(
    start_broker: StartBroker, flush: FlushDiskType
) -> None:
    async with start_broker(flush) as running:
        await running.create_topic("T")
        answer = await send(running, 2, b"later")
        assert (answer.status.code, answer.queue_id) == (ResponseCode.SUCCESS, 1)
        await running.append("T", 1, b"now")
        await advance(running, 4_900)
        assert await bodies(running) == [b"now"]
        await advance(running, 200)
        await until(lambda: visible(running) == 2)
        assert await bodies(running) == [b"now", b"later"]


async def test_d02_a_message_waits_in_the_queue_of_its_level_and_knows_where_it_belongs(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    await send(running, 3, b"x", queue_id=2)
    await send(running, 99, b"y")
    ranges = [visible(running, SCHEDULE_TOPIC, level - 1) for level in (3, 18)]
    assert ranges == [1, 1]
    await advance(running, 11_000)
    (response, *_) = await running.pull(topic="T", queue_id=2, offset=0)
    assert b"REAL_TOPIC\x01T\x02" in response.records
    assert b"REAL_QID\x012\x02" in response.records
    assert b"DELAY\x013\x02" in response.records


async def test_d03_levels_do_not_wait_for_each_other_and_keep_their_order(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    for number in range(3):
        await send(running, 2, b"slow %d" % number)
        await send(running, 1, b"fast %d" % number)
    await advance(running, 6_000)
    assert await bodies(running) == [
        b"%s %d" % (kind, number) for kind in (b"fast", b"slow") for number in range(3)
    ]


async def test_d03_a_block_goes_to_all_the_queues_of_its_messages(running: RunningBroker) -> None:
    for topic in ("T", "U"):
        await running.create_topic(topic)
        for queue_id in range(4):
            await send(running, 1, b"%d" % queue_id, topic=topic, queue_id=queue_id)
    await advance(running, 1_200)
    for topic in ("T", "U"):
        for queue_id in range(4):
            assert await bodies(running, topic, queue_id) == [b"%d" % queue_id]


@pytest.mark.parametrize("properties", [{"DELAY": ["1", "2"]}, {"DELAY": ["1", "0"]}])
async def test_d02_a_block_of_several_levels_is_refused(
    properties: dict[str, list[str]], running: RunningBroker
) -> None:
    await running.create_topic("T")
    answer = await running.append_block(
        "T", 0, wire_block("T", [b"a", b"b"], properties=properties)
    )
    assert answer.status.code == ResponseCode.MESSAGE_ILLEGAL
    assert "several delay levels" in answer.status.remark
    assert running.broker.store.queues() == []


@pytest.mark.parametrize("level", [0, -1])
async def test_d01_a_level_below_1_is_no_delay(level: int, running: RunningBroker) -> None:
    await running.create_topic("T")
    await send(running, level, b"now")
    assert await bodies(running) == [b"now"]


async def test_d03_messages_of_a_topic_that_is_gone_are_dropped(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with start_broker() as running:
        for topic in ("T", "U"):
            await running.create_topic(topic)
            await send(running, 1, b"x", topic=topic)
        await running.broker.services.topics.delete("U")
        await advance(running, 1_200)
        assert await bodies(running) == [b"x"]
        assert visible(running, "U") == 0
    assert "dropped 1 waiting message of deleted topics" in caplog.text
    assert "for example of topic 'U'" in caplog.text


async def test_d04_a_clean_stop_leaves_all_progress_where_rocketmq_looks_for_it(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        await send(running, 1, b"a", b"b")
        await send(running, 2, b"c")
        await advance(running, 1_200)
    table = json.loads((tmp_path / "config" / "delayOffset.json").read_text())["offsetTable"]
    assert table == {"1": 2}
    async with start_broker() as running:
        await advance(running, 1_000)
        assert visible(running) == 2
        await advance(running, 5_000)
        assert await bodies(running) == [b"a", b"b", b"c"]


async def test_d01_a_clock_that_was_ahead_holds_no_message_longer_than_its_level(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    running.clock.jump(3_600_000)
    await send(running, 1, b"sent in the future")
    running.clock.jump(-3_600_000)
    await advance(running, 1_200)
    assert await bodies(running) == [b"sent in the future"]


async def test_d03_behind_a_clock_that_was_set_back_nothing_comes_early(
    running: RunningBroker,
) -> None:
    """Stores messages in the future for a while, since store times never fall."""
    await running.create_topic("T")
    await running.append("T", 0, b"now")
    running.clock.jump(-3_600_000)
    await send(running, 2, b"a")
    await advance(running, 3_000)
    await send(running, 2, b"b")
    await advance(running, 1_800)
    assert visible(running) == 0
    await advance(running, 1_200)
    assert await bodies(running) == [b"a"]
    await advance(running, 3_000)
    assert await bodies(running) == [b"a", b"b"]


async def test_f11_a_clock_far_ahead_for_a_moment_brings_nothing_early(
    start_broker: StartBroker,
) -> None:
    async with start_broker(is_believing=True) as running:
        await running.create_topic("T")
        await send(running, 2, b"waits")
        running.clock.jump(100 * 24 * 3_600_000)
        await send(running, 2, b"sent in between")
        await advance(running, 3_000)
        running.clock.jump(-100 * 24 * 3_600_000)
        await advance(running, 1_800)
        assert visible(running) == 0
        await advance(running, 1_200)
        assert await bodies(running) == [b"waits", b"sent in between"]


async def test_f11_behind_messages_of_a_clock_far_ahead_others_come_in_time(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    running.clock.jump(100 * 24 * 3_600_000)
    await send(running, 2, b"sent in the future")
    running.clock.jump(-100 * 24 * 3_600_000)
    await send(running, 1, b"a")
    for body in (b"b", b"c"):
        await advance(running, 61_000)
        await send(running, 1, body)
        assert visible(running) == {b"b": 2, b"c": 3}[body]
    await advance(running, 900)
    assert visible(running) == 3
    await advance(running, 300)
    assert sorted(await bodies(running)) == [b"a", b"b", b"c", b"sent in the future"]


async def test_d03_what_cannot_be_appended_is_tried_again_and_nothing_goes_twice(
    monkeypatch: pytest.MonkeyPatch, running: RunningBroker
) -> None:
    await running.create_topic("T")
    for queue_id in (1, 2, 1, 3):
        await send(running, 1, b"%d" % queue_id, queue_id=queue_id)
    with monkeypatch.context() as patch:
        refuse_writes(patch, errno.ENOSPC, QueueKey("T", 2))
        await advance(running, 2_000)
        assert [visible(running, queue_id=queue_id) for queue_id in (1, 2, 3)] == [2, 0, 0]
    await advance(running, 1_200)
    found = [await bodies(running, queue_id=queue_id) for queue_id in (1, 2, 3)]
    assert found == [[b"1", b"1"], [b"2"], [b"3"]]


async def test_d03_what_comes_to_be_due_while_a_turn_is_tried_again_is_delivered(
    monkeypatch: pytest.MonkeyPatch, running: RunningBroker
) -> None:
    await running.create_topic("T")
    for queue_id in (1, 2):
        await send(running, 1, b"a", queue_id=queue_id)
    running.clock.advance(500)
    await send(running, 1, b"b", queue_id=1)
    with monkeypatch.context() as patch:
        refuse_writes(patch, errno.ENOSPC, QueueKey("T", 2))
        await advance(running, 2_000)
    await advance(running, 1_200)
    found = [await bodies(running, queue_id=queue_id) for queue_id in (1, 2)]
    assert found == [[b"a", b"b"], [b"a"]]


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
        flush_now(store)
        assert progress.plan_save() is not None
