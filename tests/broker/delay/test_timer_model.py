"""Delivery times against a model: each message once, never early, cancelled ones never.

Messages are sent and cancelled at random. Time passes, and the broker is stopped or killed at
random moments and started again. The model is a table of the sent messages. After each clean stop,
the test reads the timer queue as RocketMQ would: everything after one offset.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.files.timer_checkpoint import TIMER_QUEUE, TimerCheckpointFile
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.codes import ResponseCode
from tests.broker.delay.test_levels import bodies
from tests.support.blocks import bodies_of, wire_block
from tests.support.broker.event_loop import passes
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.store.stores import store_in

QUEUES = 3
LIVES = 5
STEPS = 12
DELAY_MS_MAX = 9_000
# A message that is due sooner may be delivered before its cancellation arrives.
CANCEL_MS_MIN = 50


@dataclass
class Model:
    """The sent messages: due times by key, and cancelled keys."""

    chance: random.Random
    due_ms: dict[str, int] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)

    def cancellable(self, now_ms: int) -> list[str]:
        waiting = [key for key, due_ms in self.due_ms.items() if due_ms >= now_ms + CANCEL_MS_MIN]
        return [key for key in waiting if key not in self.cancelled]

    def expected(self, now_ms: int) -> set[str]:
        return {key for key, due_ms in self.due_ms.items() if due_ms <= now_ms} - self.cancelled


async def send_some(running: RunningBroker, model: Model) -> None:
    now_ms = running.clock.now_ms()
    count = model.chance.randint(1, 6)
    keys = [f"k{len(model.due_ms) + number}" for number in range(count)]
    # Some whole seconds, and some of the same moment.
    span = model.chance.choice([20, 1_500, DELAY_MS_MAX])
    times_ms = [now_ms + model.chance.randint(1, span) for _ in keys]
    times_ms = [
        time_ms // 1_000 * 1_000 + 1_000 if model.chance.random() < 0.3 else time_ms
        for time_ms in times_ms
    ]
    properties = {"UNIQ_KEY": keys, "TIMER_DELIVER_MS": [str(time_ms) for time_ms in times_ms]}
    block = wire_block("T", [key.encode() for key in keys], properties=properties)
    answer = await running.append_block("T", model.chance.randrange(QUEUES), block)
    assert answer.status.code == ResponseCode.SUCCESS
    model.due_ms |= dict(zip(keys, times_ms, strict=True))


async def cancel_one(running: RunningBroker, model: Model) -> None:
    waiting = model.cancellable(running.clock.now_ms())
    if not waiting:
        return
    key = model.chance.choice(waiting)
    properties = {
        "UNIQ_KEY": [key],
        "TIMER_DELIVER_MS": [str(model.due_ms[key])],
        "TIMER_DEL_UNIQKEY": [model.chance.choice([key, f"T+{key}"])],
    }
    answer = await running.append_block("T", 0, wire_block("T", [b"0"], properties=properties))
    assert answer.status.code == ResponseCode.SUCCESS
    model.cancelled.add(key)


async def delivered(running: RunningBroker) -> Counter[str]:
    found = [await bodies(running, "T", queue_id) for queue_id in range(QUEUES)]
    return Counter(body.decode() for part in found for body in part)


async def check(running: RunningBroker, model: Model) -> None:
    """Asserts that each delivered message is due, there once, and not cancelled."""
    found = await delivered(running)
    assert set(found.values()) <= {1}
    assert found.keys() <= model.expected(running.clock.now_ms())


async def all_come(running: RunningBroker, model: Model) -> None:
    """Waits until all due messages are delivered, while the clock stands still."""
    expected = model.expected(running.clock.now_ms())
    while not expected <= (await delivered(running)).keys():
        await passes(40)
    await check(running, model)


async def live(running: RunningBroker, model: Model) -> None:
    for _ in range(model.chance.randint(1, STEPS)):
        what = model.chance.random()
        if what < 0.45:
            await send_some(running, model)
        elif what < 0.6:
            await cancel_one(running, model)
        else:
            running.clock.advance(model.chance.choice([1, 10, 100, 1_000, 6_000]))
            if model.chance.random() < 0.5:
                await all_come(running, model)
            await passes(model.chance.randint(0, 30))
    await check(running, model)


def left_for_rocketmq(folder: Path) -> Counter[str]:
    """Returns what RocketMQ takes for pending: everything after the offset of timercheck."""
    checkpoint = TimerCheckpointFile(folder / "config" / "timercheck").load()
    assert checkpoint is not None
    assert checkpoint.last_timer_queue_offset == checkpoint.master_timer_queue_offset
    return stored(folder, TIMER_QUEUE, checkpoint.last_timer_queue_offset)


def left_over(folder: Path, model: Model) -> Counter[str]:
    """Returns the messages that are neither delivered nor cancelled, once each."""
    found = sum((stored(folder, QueueKey("T", queue)) for queue in range(QUEUES)), Counter())
    return Counter(model.due_ms.keys() - found.keys() - model.cancelled)


def stored(folder: Path, queue: QueueKey, begin: int = 0) -> Counter[str]:
    """Returns the bodies of a queue of a stopped store, from an offset on."""
    store = store_in(folder, segment_bytes=1 << 20, queue_file_bytes=20_000)
    store.open()
    try:
        offsets = np.arange(begin, store.range_of(queue).max_offset)
        block = store.random_reader.read(queue, offsets, 1 << 20).block
        return Counter(body.decode() for body in bodies_of(block.data.tobytes(), block.sizes))
    finally:
        store.close()


@pytest.mark.parametrize("flush", list(FlushDiskType))
@pytest.mark.parametrize("seed", range(4))
async def test_d04_over_stops_and_kills_each_message_comes_once_and_never_early(
    start_broker: StartBroker,
    start_crashed: StartBroker,
    tmp_path: Path,
    flush: FlushDiskType,
    seed: int,
) -> None:
    model = Model(random.Random(seed))
    clock = ManualClock()
    for number in range(LIVES):
        is_clean = model.chance.random() < 0.5
        start = start_broker if is_clean else start_crashed
        async with start(flush, clock=ManualClock(clock.now_ms())) as running:
            clock = running.clock
            if number == 0:
                await running.create_topic("T", QUEUES)
            await live(running, model)
        if is_clean:
            assert left_for_rocketmq(tmp_path) == left_over(tmp_path, model)
        clock.advance(model.chance.choice([0, 500, 3_000]))
    async with start_broker(flush, clock=ManualClock(clock.now_ms())) as running:
        running.clock.advance(2 * DELAY_MS_MAX)
        await all_come(running, model)
        await passes(100)
        await check(running, model)
    assert model.due_ms
