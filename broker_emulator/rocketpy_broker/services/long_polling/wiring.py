"""Wiring of long polling."""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.services.long_polling.waiters import LongPollWaiters
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.values import QueueKey


@dataclass(frozen=True, slots=True)
class LongPolling:
    """The waiters of clients' calls and of the broker's own tasks."""

    calls: LongPollWaiters
    tasks: LongPollWaiters


def build(context: BrokerContext, topics: TopicConfigManager) -> LongPolling:
    """Returns the waiters of one broker; dispatched queues and changed topics wake them."""
    config = context.config
    short_polling_time_ms = None if config.long_polling_enable else config.short_polling_time_ms
    calls = LongPollWaiters(context.call_clock, short_polling_time_ms=short_polling_time_ms)
    tasks = LongPollWaiters(context.clock)

    def arrived(queue: QueueKey) -> None:
        calls.notify_queue(queue)
        tasks.notify_queue(queue)

    context.store.on_dispatch(arrived)
    topics.changed.add(calls.notify_topics)
    context.lifecycle.stops.extend([calls.stop, tasks.stop])
    return LongPolling(calls, tasks)
