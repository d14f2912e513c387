"""Messages with delay levels: they wait in one broker, and the other delivers each once.

RocketMQ uses the machine's clock, so these tests take some seconds.
"""

from __future__ import annotations

import json
from pathlib import Path

from rocketpy_broker.runtime.clock import ManualClock, SystemClock
from rocketpy_broker.store.config import FlushDiskType
from tests.broker.delay.test_levels import advance, bodies, send, visible
from tests.interop.cluster.servers import BROKER_PORTS, free_port
from tests.interop.handover.test_timer import SIZES, T1, rocketmq, until_stored
from tests.interop.rocketmq import Message, RocketMQStore
from tests.support.broker.running_broker import StartBroker, start_broker, until

__all__ = ["rocketmq", "start_broker"]


def progress(folder: Path) -> dict[str, int]:
    table: dict[str, int] = json.loads((folder / "config" / "delayOffset.json").read_text())[
        "offsetTable"
    ]
    return table


async def test_d04_rocketmq_delivers_what_waits_in_our_directory_and_repeats_nothing(
    start_broker: StartBroker, rocketmq: RocketMQStore, tmp_path: Path
) -> None:
    clock = ManualClock(SystemClock().now_ms())
    async with start_broker(FlushDiskType.ASYNC_FLUSH, clock=clock, **SIZES) as running:
        await running.create_topic("T")
        await send(running, 1, b"delivered by us", b"this one, too")
        await send(running, 2, b"in five seconds")
        await send(running, 18, b"in two hours")
        await advance(running, 1_100)
        await until(lambda: visible(running) == 2)
    assert progress(tmp_path) == {"1": 2}
    with rocketmq as theirs:
        theirs.ask("startBroker", folder=str(tmp_path), port=free_port(BROKER_PORTS))
        expected = [b"delivered by us", b"this one, too", b"in five seconds"]
        assert until_stored(theirs, len(expected)) == expected
        theirs.ask("stopBroker")
        theirs.end()
    clock = ManualClock(SystemClock().now_ms())
    async with start_broker(FlushDiskType.ASYNC_FLUSH, clock=clock, **SIZES) as running:
        await advance(running, 2_000)
        assert await bodies(running) == expected
        clock.advance(7_200_000)
        await until(lambda: visible(running) == 4)
        assert await bodies(running) == [*expected, b"in two hours"]


async def test_d04_what_waits_in_rocketmqs_directory_is_delivered_and_nothing_repeated(
    start_broker: StartBroker, rocketmq: RocketMQStore, tmp_path: Path
) -> None:
    with rocketmq as theirs:
        theirs.ask("startBroker", folder=str(tmp_path), port=free_port(BROKER_PORTS))
        # RocketMQ may take more than ten seconds to stop, so ours waits for ten minutes.
        for body, level in ((b"for RocketMQ", "1"), (b"for ours", "14"), (b"last", "99")):
            (result,) = theirs.put(T1, [Message(body, {"DELAY": level})])
            assert result["status"] == "PUT_OK"
        assert until_stored(theirs, 1) == [b"for RocketMQ"]
        theirs.ask("stopBroker")
        theirs.end()
    clock = ManualClock(SystemClock().now_ms())
    async with start_broker(FlushDiskType.ASYNC_FLUSH, clock=clock, **SIZES) as running:
        await running.create_topic("T")
        await advance(running, 100)
        assert await bodies(running) == [b"for RocketMQ"]
        clock.advance(600_000)
        await until(lambda: visible(running) == 2)
        clock.advance(7_200_000)
        await until(lambda: visible(running) == 3)
        assert await bodies(running) == [b"for RocketMQ", b"for ours", b"last"]
