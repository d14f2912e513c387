"""Timer queues as a stop leaves them, and as a start reads them from RocketMQ."""

from __future__ import annotations

import errno
import json
import struct
from pathlib import Path

import pytest

from rocketpy_broker.config import SystemTopicOptions
from rocketpy_broker.errors import ConfigFileError
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.delay.timer.rocketmq_export import RocketmqExport
from rocketpy_broker.services.flush.group_commit import flush_now
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.files.timer_checkpoint import TIMER_QUEUE, TimerCheckpointFile
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.rocketpy.v1 import admin_pb2
from tests.broker.delay.test_levels import advance, bodies, save_progress, visible
from tests.broker.delay.test_times import NOW_MS, properties_of, send_at
from tests.support.blocks import wire_block
from tests.support.broker.running_broker import RunningBroker, StartBroker, until
from tests.support.broker.transactions import COMMIT, end, prepare
from tests.support.store.disk_calls import DiskCall, before_call, refuse_writes


def timercheck(folder: Path) -> tuple[int, ...]:
    numbers: tuple[int, ...] = struct.unpack_from(
        ">7q", (folder / "config" / "timercheck").read_bytes()
    )
    return numbers


def leave(folder: Path, *numbers: int) -> None:
    """Writes a file as RocketMQ leaves it."""
    path = folder / "config" / "timercheck"
    path.write_bytes(struct.pack(">7q", *numbers).ljust(4096, b"\0"))


async def four(running: RunningBroker) -> None:
    """Sends four messages; the second and the third are delivered."""
    await running.create_topic("T")
    for number, ms in enumerate([9_000, 1_000, 1_000, 8_000]):
        await send_at(running, [NOW_MS + ms], b"%d" % number, UNIQ_KEY=f"K{number}")
    await advance(running, 1_100)
    await until(lambda: visible(running) == 2)


async def test_d04_a_clean_stop_rolls_what_has_delivered_ones_behind_it(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        await four(running)
    assert timercheck(tmp_path) == (NOW_MS + 1_000, 0, 3, 3, 0, 0, 0)
    async with start_broker(clock=ManualClock(NOW_MS + 1_100)) as running:
        assert visible(running, *TIMER_QUEUE) == 5
        await advance(running, 9_000)
        assert await bodies(running) == [b"1", b"2", b"3", b"0"]
        assert (await properties_of(running, 3))["TIMER_ROLL_TIMES"] == "1"
        assert "TIMER_ROLL_TIMES" not in await properties_of(running, 2)
    assert timercheck(tmp_path)[2] == 5


async def test_d04_a_stop_with_nothing_delivered_behind_rolls_nothing(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        await send_at(running, [NOW_MS + 1_000], b"x")
        await send_at(running, [NOW_MS + 2_000], b"y")
        await advance(running, 1_100)
    assert timercheck(tmp_path)[2:4] == (1, 1)
    async with start_broker(clock=ManualClock(NOW_MS + 1_100)) as running:
        assert visible(running, *TIMER_QUEUE) == 2


def export(running: RunningBroker, folder: Path, **limits: int) -> None:
    """Hands over the timer queue within these limits, as a stop does within its own."""
    store, delay = running.broker.store, running.broker.services.delay
    checkpoint = TimerCheckpointFile(folder / "config" / "timercheck")
    RocketmqExport(store, delay.timer, delay.progress, checkpoint, running.clock, **limits).run()


@pytest.mark.parametrize("limit", ["count_max", "bytes_max"])
async def test_d04_beyond_its_bound_a_stop_says_what_rocketmq_will_repeat(
    start_broker: StartBroker,
    start_crashed: StartBroker,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    limit: str,
) -> None:
    async with start_crashed(FlushDiskType.ASYNC_FLUSH) as running:
        await running.create_topic("T")
        for number, ms in enumerate([9_000, 1_000, 8_000, 1_000]):
            await send_at(running, [NOW_MS + ms], b"%d" % number)
        await advance(running, 1_100)
        await until(lambda: visible(running) == 2)
        export(running, tmp_path, **{limit: 1})
    assert timercheck(tmp_path)[2:4] == (2, 2)
    assert "1 pending timer message could not be appended again" in caplog.text
    assert "RocketMQ would deliver 1 delivered message again" in caplog.text
    async with start_broker(clock=ManualClock(NOW_MS + 1_100)) as running:
        await advance(running, 9_000)
        assert await bodies(running) == [b"1", b"3", b"2", b"0"]


async def test_d04_rocketmqs_wheel_goes_when_its_messages_are_ours(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    (tmp_path / "timerlog").mkdir()
    (tmp_path / "timerlog" / ("0" * 20)).write_bytes(b"x")
    (tmp_path / "timerwheel").write_bytes(b"x")
    async with start_broker() as running:
        assert (tmp_path / "timerwheel").exists()
        await advance(running, 100)
    assert not (tmp_path / "timerwheel").exists()
    assert not (tmp_path / "timerlog").exists()


async def test_d04_without_a_timer_the_directory_stays_as_it_is(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        await four(running)
    leave(tmp_path, NOW_MS, 104, 3, 3, 0, NOW_MS, 7)
    (tmp_path / "timerwheel").write_bytes(b"x")
    options = SystemTopicOptions(timer_wheel_enable=False)
    async with start_broker(system_topics=options) as running:
        await advance(running, 20_000)
        assert visible(running) == 2
    assert timercheck(tmp_path) == (NOW_MS, 104, 3, 3, 0, NOW_MS, 7)
    assert (tmp_path / "timerwheel").exists()


async def test_d04_what_rocketmq_delivered_meanwhile_is_not_delivered_again(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """Reads RocketMQ's wheel from the read time, and its unread part from the offset."""
    async with start_broker() as running:
        await running.create_topic("T")
        for number, ms in enumerate([2_000, 9_000, 3_001, 1_500]):
            await send_at(running, [NOW_MS + ms], b"%d" % number)
    leave(tmp_path, NOW_MS + 3_000, 104, 3, 3, 0, NOW_MS, 7)
    async with start_broker(clock=ManualClock(NOW_MS + 3_000)) as running:
        await advance(running, 10_000)
        assert await bodies(running) == [b"3", b"2", b"1"]


async def test_d04_of_a_message_that_rocketmq_rolled_the_last_copy_counts(
    start_broker: StartBroker, start_crashed: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        await send_at(running, [NOW_MS + 9_500], b"the first", UNIQ_KEY="K")
        for times in ("1", "2"):
            body = b"copy " + times.encode()
            await send_at(running, [NOW_MS + 9_500], body, UNIQ_KEY="K", TIMER_ROLL_TIMES=times)
        await send_at(running, [NOW_MS + 9_400], b"another", UNIQ_KEY="L")
    leave(tmp_path, NOW_MS, 104, 4, 4, 0, NOW_MS, 7)
    async with start_crashed(FlushDiskType.ASYNC_FLUSH) as running:
        running.clock.advance(9_600)
        await until(lambda: visible(running) == 2)
        assert await bodies(running) == [b"another", b"copy 2"]
    async with start_broker(clock=ManualClock(NOW_MS + 9_600)) as running:
        await advance(running, 1_000)
        assert visible(running) == 2


async def test_d04_where_nothing_tells_of_deliveries_all_are_pending(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        await four(running)
    for name in ("timercheck", "deliveryLog.json", "deliveryLog.json.bak"):
        (tmp_path / "config" / name).unlink()
    async with start_broker(clock=ManualClock(NOW_MS + 20_000)) as running:
        await advance(running, 1_000)
        # The rolled copy of the first one replaces it.
        assert await bodies(running) == [b"1", b"2", b"1", b"2", b"3", b"0"]


async def test_d04_an_old_position_and_a_clock_set_back_deliver_nothing_twice(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    path = tmp_path / "config" / "deliveryLog.json"
    async with start_broker() as running:
        await running.create_topic("T")
        await send_at(running, [NOW_MS + 1_000], b"x")
        await advance(running, 1_100)
        await until(lambda: visible(running) == 1)
    old = path.read_bytes()
    async with start_broker(clock=ManualClock(NOW_MS - 3_600_000)):
        pass
    assert timercheck(tmp_path)[0] < NOW_MS
    path.write_bytes(old)
    for start_ms in (5_000, 10_000):
        async with start_broker(clock=ManualClock(NOW_MS + start_ms)) as running:
            await advance(running, 1_000)
            assert await bodies(running) == [b"x"]


@pytest.mark.parametrize(
    "timer",
    [
        {"deliveredMs": 1, "pendingOffset": 0, "readOffset": 0},
        {"deliveredMs": 1, "pendingOffset": 0, "readOffset": 0, "checkpoints": [[1]]},
        {"deliveredMs": "x", "pendingOffset": 0, "readOffset": 0, "checkpoints": []},
        [],
    ],
)
async def test_d04_a_position_that_cannot_be_read_is_named(
    start_broker: StartBroker, tmp_path: Path, timer: object
) -> None:
    path = tmp_path / "config" / "deliveryLog.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"logOffset": 0, "timer": timer}))
    with pytest.raises(ConfigFileError, match=r"deliveryLog\.json"):
        async with start_broker():
            pass


async def test_d04_a_position_outside_the_queue_is_moved_into_it(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        await running.append_block("T", 1, wire_block("T", [b"x"]))
    path = tmp_path / "config" / "deliveryLog.json"
    content = json.loads(path.read_text())
    content["timer"] |= {"pendingOffset": 7, "readOffset": 9}
    path.write_text(json.dumps(content))
    async with start_broker() as running:
        await send_at(running, [NOW_MS + 1_000], b"y")
        await advance(running, 1_100)
        assert await bodies(running) == [b"x", b"y"]


async def test_d04_a_stop_between_two_queues_of_one_turn_neither_loses_nor_doubles(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patch:
        async with start_broker() as running:
            await running.create_topic("T")
            for queue_id in (1, 2, 3):
                await send_at(running, [NOW_MS + 1_000], b"%d" % queue_id, queue_id=queue_id)
            refuse_writes(patch, errno.ENOSPC, QueueKey("T", 2))
            await advance(running, 1_500)
            assert [visible(running, queue_id=queue_id) for queue_id in (1, 2, 3)] == [1, 0, 0]
    assert timercheck(tmp_path)[2:4] == (1, 1)
    async with start_broker(clock=ManualClock(NOW_MS + 1_500)) as running:
        await advance(running, 1_000)
        found = [await bodies(running, queue_id=queue_id) for queue_id in (1, 2, 3)]
        assert found == [[b"1"], [b"2"], [b"3"]]


async def test_d04_what_is_due_before_others_that_have_gone_outlives_a_kill(
    start_broker: StartBroker, start_crashed: StartBroker
) -> None:
    async with start_crashed(FlushDiskType.ASYNC_FLUSH) as running:
        await running.create_topic("T")
        await send_at(running, [NOW_MS + 5_000], b"first")
        await advance(running, 5_100)
        await until(lambda: visible(running) == 1)
        running.clock.jump(-5_100)
        await send_at(running, [NOW_MS + 3_000], b"behind a clock that was set back")
        await advance(running, 100)
        flush_now(running.broker.store)
        await save_progress(running)
    async with start_broker(clock=ManualClock(NOW_MS + 100)) as running:
        await advance(running, 6_000)
        await until(lambda: visible(running) == 2)
        assert await bodies(running) == [b"first", b"behind a clock that was set back"]


@pytest.mark.parametrize("is_made_again_at_once", [True, False])
async def test_d03_a_stop_carries_nothing_of_a_deleted_topic_into_one_made_again(
    start_broker: StartBroker, *, is_made_again_at_once: bool
) -> None:
    """Guards against a stop that appends the old message after the deletion.

    The stop carries the message on, since a delivered one follows it in the queue.
    """
    async with start_broker() as running:
        for topic in ("T", "U"):
            await running.create_topic(topic)
        await send_at(running, [NOW_MS + 9_000], b"old")
        await send_at(running, [NOW_MS + 1_000], b"of another", topic="U")
        await advance(running, 100)
        answer = await running.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(topic="T"))
        assert answer.status.code == 0
        if is_made_again_at_once:
            await running.create_topic("T")
        await advance(running, 1_000)
        assert visible(running, "U") == 1
    async with start_broker(clock=ManualClock(NOW_MS + 2_000)) as running:
        if not is_made_again_at_once:
            await running.create_topic("T")
        await advance(running, 9_000)
        assert await bodies(running) == []


async def test_d04_a_stop_rolls_two_messages_with_one_key_and_both_come(
    start_broker: StartBroker,
) -> None:
    """Asserts that the later copy does not count as one of the earlier message."""
    async with start_broker() as running:
        await running.create_topic("T")
        for body in (b"one", b"two"):
            await send_at(running, [NOW_MS + 9_000], body, UNIQ_KEY="K")
        await send_at(running, [NOW_MS + 1_000], b"first")
        await advance(running, 1_100)
        assert await bodies(running) == [b"first"]
    async with start_broker(clock=ManualClock(NOW_MS + 2_000)) as running:
        await advance(running, 8_000)
        assert await bodies(running) == [b"first", b"one", b"two"]


async def test_d04_of_a_committed_message_that_a_killed_stop_rolled_one_comes(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kills the stop after its copies and before the note of them."""

    async def until_a_stop_is_killed(patch: pytest.MonkeyPatch) -> None:
        async with start_broker() as running:
            await running.create_topic("T")
            half = await prepare(running, "a", TIMER_DELIVER_MS=str(NOW_MS + 9_000))
            assert await end(running, half, COMMIT) == 0
            await send_at(running, [NOW_MS + 1_000], b"first")
            await advance(running, 1_100)
            assert await bodies(running) == [b"first"]
            store = running.broker.store
            queue_end = store.next_offset(TIMER_QUEUE)

            def kill(_call: DiskCall) -> None:
                if store.next_offset(TIMER_QUEUE) > queue_end:
                    raise RuntimeError("killed")

            before_call(patch, "fsync", "*/deliveryLog.json.tmp", kill)

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="killed"):
        await until_a_stop_is_killed(patch)
    async with start_broker(clock=ManualClock(NOW_MS + 2_000)) as running:
        await advance(running, 9_000)
        assert await bodies(running) == [b"first", b"a"]
