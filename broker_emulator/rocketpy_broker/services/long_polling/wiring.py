"""Builds the room of held calls. Holds no state."""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.services.context import Ground
from rocketpy_broker.services.long_polling.waiters import HeldCalls
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.values import QueueKey


@dataclass(frozen=True, slots=True)
class Holding:
    """Who waits for something to arrive: calls of clients, and the broker's own tasks."""

    calls: HeldCalls
    tasks: HeldCalls


def build(ground: Ground, topics: TopicConfigManager) -> Holding:
    """Those who wait at one broker. What is dispatched wakes those that wait for it."""
    config = ground.config
    short_polling_time_ms = None if config.long_polling_enable else config.short_polling_time_ms
    calls = HeldCalls(ground.call_clock, short_polling_time_ms=short_polling_time_ms)
    tasks = HeldCalls(ground.clock)

    def arrived(queue: QueueKey) -> None:
        calls.wake(queue)
        tasks.wake(queue)

    ground.store.on_dispatch(arrived)
    topics.on_change(calls.wake_for_topics)
    ground.lifecycle.stops.extend([calls.stop, tasks.stop])
    return Holding(calls, tasks)
