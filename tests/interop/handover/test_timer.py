"""Messages with a delivery time: they wait in one broker, and the other delivers each once.

RocketMQ uses the machine's clock, so these tests take some seconds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy_broker.runtime.clock import ManualClock, SystemClock
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.files.timer_checkpoint import TimerCheckpointFile
from rocketpy_broker.store.values import QueueKey
from tests.broker.delay.test_levels import advance, bodies, visible
from tests.broker.delay.test_times import send_at
from tests.interop.cluster.servers import BROKER_PORTS, free_port
from tests.interop.remoting.clients import until as wait_until
from tests.interop.rocketmq import Message, RocketMQStore
from tests.support.broker.running_broker import RunningBroker, StartBroker, start_broker, until

__all__ = ["start_broker"]

T1 = QueueKey("T", 1)
SIZES = {"commit_log_segment_bytes": 1 << 30, "consume_queue_file_bytes": 6_000_000}


@pytest.fixture
def rocketmq(tmp_path: Path) -> RocketMQStore:
    scratch = tmp_path.with_name(tmp_path.name + "-rocketmq")
    scratch.mkdir()
    return RocketMQStore(scratch / "rocketmq.log", scratch)


async def cancel(running: RunningBroker, deliver_ms: int, key: str) -> None:
    await send_at(running, [deliver_ms], b"0", UNIQ_KEY=key, TIMER_DEL_UNIQKEY=f"T+{key}")


def until_stored(theirs: RocketMQStore, count: int) -> list[bytes]:
    """Returns the bodies of the real queue, once there are `count`."""
    wait_until(lambda: theirs.range(T1)["max"] >= count, lambda: theirs.dump(T1))
    return [record["body"] for record in theirs.dump(T1)]


async def test_f14_rocketmq_delivers_what_waits_in_our_directory_and_repeats_nothing(
    start_broker: StartBroker, rocketmq: RocketMQStore, tmp_path: Path
) -> None:
    now_ms = SystemClock().now_ms()
    clock = ManualClock(now_ms)
    async with start_broker(FlushDiskType.ASYNC_FLUSH, clock=clock, **SIZES) as running:
        await running.create_topic("T")
        await send_at(running, [now_ms + 14_000], b"in its wheel", UNIQ_KEY="K1")
        await send_at(running, [now_ms + 2_500], b"due meanwhile", UNIQ_KEY="K2")
        await send_at(running, [now_ms + 13_000], b"cancelled", UNIQ_KEY="K3")
        await cancel(running, now_ms + 13_000, "K3")
        await send_at(running, [now_ms + 2_000], b"cancelled, too", UNIQ_KEY="K4")
        await cancel(running, now_ms + 2_000, "K4")
        await send_at(running, [now_ms + 300], b"delivered by us", UNIQ_KEY="K5")
        await send_at(running, [now_ms + 12_000], b"behind it", UNIQ_KEY="K6")
        await advance(running, 500)
        await until(lambda: visible(running) == 1)
    with rocketmq as theirs:
        theirs.ask("startBroker", folder=str(tmp_path), port=free_port(BROKER_PORTS))
        stored = until_stored(theirs, 4)
        # RocketMQ promises no order of messages that were all due before it started.
        assert stored[0] == b"delivered by us"
        assert sorted(stored[1:]) == [b"behind it", b"due meanwhile", b"in its wheel"]
        theirs.ask("stopBroker")
        theirs.end()
    clock = ManualClock(SystemClock().now_ms())
    async with start_broker(FlushDiskType.ASYNC_FLUSH, clock=clock, **SIZES) as running:
        await advance(running, 20_000)
        assert await bodies(running) == stored


async def test_f14_what_waits_in_rocketmqs_directory_is_delivered_and_nothing_repeated(
    start_broker: StartBroker, rocketmq: RocketMQStore, tmp_path: Path
) -> None:
    with rocketmq as theirs:
        theirs.ask("startBroker", folder=str(tmp_path), port=free_port(BROKER_PORTS))
        now_ms = SystemClock().now_ms()

        def put(body: bytes, delay_ms: int, key: str, **properties: str) -> None:
            given = {"TIMER_DELIVER_MS": str(now_ms + delay_ms), "UNIQ_KEY": key, **properties}
            (result,) = theirs.put(T1, [Message(body, given)])
            assert result["status"] == "PUT_OK"

        # RocketMQ may take more than ten seconds to stop, so ours waits for ten minutes.
        put(b"for ours", 600_000, "K1")
        put(b"for RocketMQ", 2_000, "K2")
        put(b"cancelled", 610_000, "K3")
        put(b"0", 610_000, "K3", TIMER_DEL_UNIQKEY="T+K3")
        put(b"last", 620_000, "K4")
        assert until_stored(theirs, 1) == [b"for RocketMQ"]
        theirs.ask("stopBroker")
        theirs.end()
    checkpoint = TimerCheckpointFile(tmp_path / "config" / "timercheck").load()
    assert checkpoint is not None
    assert checkpoint.last_timer_queue_offset > 0
    clock = ManualClock(SystemClock().now_ms())
    async with start_broker(FlushDiskType.ASYNC_FLUSH, clock=clock, **SIZES) as running:
        await running.create_topic("T")
        await advance(running, 100)
        assert await bodies(running) == [b"for RocketMQ"]
        clock.advance(630_000)
        await until(lambda: visible(running) == 3)
        await advance(running, 1_000)
        assert await bodies(running) == [b"for RocketMQ", b"for ours", b"last"]
    assert not (tmp_path / "timerwheel").exists()
