"""Metrics of a broker's state: topics, clients and the store.

Source: docs/design/broker_behaviour.md section 9.6.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from itertools import accumulate

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.services.delay.wiring import Delay
from rocketpy_broker.services.groups.clients.members import ClientRole
from rocketpy_broker.services.groups.manager import is_system_group
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.long_polling.wiring import LongPolling
from rocketpy_broker.services.observability.counters.labels import flag
from rocketpy_broker.services.observability.metrics.families import Series
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.services.transactions.open_transactions import TransactionListing
from rocketpy_broker.store.files.timer_checkpoint import TIMER_QUEUE
from rocketpy_broker.store.statistics import STEP_BOUNDS_MS
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model import SCHEDULE_TOPIC
from rocketpy_proto.model.consumers import ConsumeType

PROTOCOL = "grpc"
MODES = {
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_POP: "pop",
}
# Label values of `storage_type` and `storage_medium`.
ON_DISK = "local", "disk"
# Bucket bounds of a put in ms, a subset of STEP_BOUNDS_MS.
PUT_BOUNDS_MS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 10_000)
assert set(PUT_BOUNDS_MS) <= set(STEP_BOUNDS_MS)


class BrokerState:
    """The source of a broker's gauges, and of the store's own counters."""

    def __init__(
        self,
        context: BrokerContext,
        topics: TopicConfigManager,
        groups: Groups,
        long_polling: LongPolling,
        delay: Delay,
        transactions: TransactionListing,
    ) -> None:
        self.configure(context.config)
        context.config_changed.add(self.configure)
        self._clock = context.clock
        self._store = context.store
        self._topics = topics
        self._groups = groups
        self._held = long_polling.calls
        self._delay = delay
        self._transactions = transactions

    def configure(self, config: BrokerConfig) -> None:
        """Takes in a changed configuration."""
        self._config = config

    async def series(self) -> AsyncIterator[Series | None]:
        """Yields a series for each gauge, consumer group and delay level."""
        clients = self._groups.clients
        producers = clients.registration_count(ClientRole.PRODUCER)
        yield "rocketmq_broker_permission", (), self._config.broker_permission
        yield "rocketmq_topic_number", (), len(self._topics)
        yield "rocketmq_consumer_group_number", (), len(self._groups.configs)
        yield "rocketmq_producer_connections", (PROTOCOL,), producers
        yield "rocketmq_half_messages", (), self._transactions.open_count
        yield "rocketpy_held_calls", (), len(self._held)
        for each in (*self._of_store(), *self._of_waiting()):
            yield each
        for name in clients.consumers.names():
            group = clients.consumer_group(name)
            if group is not None:
                mode, is_system = MODES[group.latest.consume_type], flag(is_system_group(name))
                labels = (name, mode, PROTOCOL, is_system)
                yield "rocketmq_consumer_connections", labels, clients.member_count(name)

    def _of_store(self) -> Iterator[Series]:
        store, counted, positions = self._store, self._store.statistics, self._store.positions()
        disk = os.statvfs(store.config.folder)
        used_bytes = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
        unflushed_bytes = positions.log_end - positions.flushed_end
        undispatched_bytes = positions.log_end - positions.dispatched_end
        stored_ms = store.messages.store_timestamp_ms(positions.log_begin)
        age_ms = 0 if stored_ms is None else max(self._clock.now_ms() - stored_ms, 0)
        is_open = store.refusal is None or store.refusal == store.slave_refusal
        is_writable = is_open and store.queue_allocator.refusal is None
        yield "rocketmq_storage_size_bytes", ON_DISK, used_bytes
        yield "rocketmq_storage_flush_behind_bytes", ON_DISK, unflushed_bytes
        yield "rocketmq_storage_dispatch_behind_bytes", ON_DISK, undispatched_bytes
        yield "rocketmq_storage_message_reserve_time_milliseconds", ON_DISK, age_ms
        yield "rocketpy_put_seconds", (), self._put_buckets(), None
        yield "rocketpy_put_failures", (), counted.put_failed_count
        yield "rocketpy_corrupt_records", (), counted.corrupt_record_count
        yield "rocketpy_store_writable", (), is_writable
        yield "rocketpy_log_begin_offset", (), positions.log_begin
        yield "rocketpy_log_end_offset", (), positions.log_end
        yield "rocketpy_staged_bytes", (), store.staging.used_bytes

    def _of_waiting(self) -> Iterator[Series]:
        timer, progress = self._delay.timer, self._delay.progress
        unread = self._store.next_offset(TIMER_QUEUE) - timer.read_offset
        yield "rocketmq_timer_enqueue_lag", ON_DISK, unread
        yield "rocketpy_delayed_messages", ("0",), timer.waiting_count
        for level in range(1, len(self._delay.levels) + 1):
            end = self._store.range_of(QueueKey(SCHEDULE_TOPIC, level - 1)).max_offset
            if end:
                waiting = end - progress.next_offset(level)
                yield "rocketpy_delayed_messages", (str(level),), waiting

    def _put_buckets(self) -> list[tuple[str, float]]:
        """Returns append latencies of the store; the wait for a flush is in the call's latency."""
        counts = [*accumulate(self._store.statistics.put_step_counts)]
        below = dict(zip(STEP_BOUNDS_MS, counts, strict=False))
        return [(f"{bound / 1000:g}", below[bound]) for bound in PUT_BOUNDS_MS] + [
            ("+Inf", counts[-1])
        ]
