"""Metrics of the store: RocketMQ's gauges, and this broker's own metrics.

Source: docs/design/broker_behaviour.md section 9.6.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from itertools import accumulate

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.services.delay.wiring import Delay
from rocketpy_broker.services.observability.metrics.families import counter, gauge
from rocketpy_broker.services.transactions.open_transactions import TransactionListing
from rocketpy_broker.store.delay_levels import SCHEDULE_TOPIC
from rocketpy_broker.store.files.timer_checkpoint import TIMER_QUEUE
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.statistics import STEP_BOUNDS_MS
from rocketpy_broker.store.values import QueueKey

ON_DISK = {"storage_type": "local", "storage_medium": "disk"}
# Bucket bounds of a put in ms, a subset of STEP_BOUNDS_MS.
PUT_BOUNDS_MS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 10_000)
assert set(PUT_BOUNDS_MS) <= set(STEP_BOUNDS_MS)


class StorageState:
    """The source of one store's metrics."""

    def __init__(
        self, store: MessageStore, delay: Delay, transactions: TransactionListing, clock: Clock
    ) -> None:
        self._store = store
        self._delay = delay
        self._transactions = transactions
        self._clock = clock

    async def families(self) -> AsyncGenerator[Metric, None]:
        """Yields all families in one scheduler slot, since they are few."""
        for family in (*self._of_rocketmq(), *self._of_waiting(), *self._of_ours()):
            yield family

    def _of_rocketmq(self) -> Sequence[Metric]:
        positions = self._store.positions()
        disk = os.statvfs(self._store.config.folder)
        stored_ms = self._store.messages.store_timestamp_ms(positions.log_begin)
        age_ms = 0 if stored_ms is None else max(self._clock.now_ms() - stored_ms, 0)
        return (
            gauge(
                "rocketmq_storage_size_bytes",
                "Bytes in use of the file system that holds the store.",
                (disk.f_blocks - disk.f_bfree) * disk.f_frsize,
                ON_DISK,
            ),
            gauge(
                "rocketmq_storage_flush_behind_bytes",
                "Bytes of the commit log that are not flushed.",
                positions.log_end - positions.flushed_end,
                ON_DISK,
            ),
            gauge(
                "rocketmq_storage_dispatch_behind_bytes",
                "Bytes of the commit log that no consume queue shows yet.",
                positions.log_end - positions.dispatched_end,
                ON_DISK,
            ),
            gauge(
                "rocketmq_storage_message_reserve_time_milliseconds",
                "Age of the oldest message.",
                age_ms,
                ON_DISK,
            ),
        )

    def _of_waiting(self) -> Sequence[Metric]:
        timer = self._delay.timer
        queue_end = self._store.next_offset(TIMER_QUEUE)
        waiting = GaugeMetricFamily(
            "rocketpy_delayed_messages",
            "Messages that wait to be delivered, by delay level; 0: by a time of their own.",
            labels=["level"],
        )
        waiting.add_metric(["0"], timer.waiting_count)
        for level in range(1, len(self._delay.levels) + 1):
            queue = QueueKey(SCHEDULE_TOPIC, level - 1)
            end = self._store.range_of(queue).max_offset
            if end:
                waiting.add_metric([str(level)], end - self._delay.progress.next_offset(level))
        return (
            gauge(
                "rocketmq_timer_enqueue_lag",
                "Messages with a delivery time that were not looked at yet.",
                queue_end - timer.read_offset,
                ON_DISK,
            ),
            waiting,
            gauge(
                "rocketmq_half_messages",
                "Half messages whose transactions are open.",
                self._transactions.open_count,
            ),
        )

    def _of_ours(self) -> Sequence[Metric]:
        counted, positions = self._store.statistics, self._store.positions()
        is_writable = self._store.refusal is None and self._store.growth.refusal is None
        return (
            self._put_latency(),
            counter(
                "rocketpy_put_failures", "Blocks that were not stored.", counted.put_failed_count
            ),
            counter(
                "rocketpy_corrupt_records",
                "Damaged records that were met.",
                counted.corrupt_record_count,
            ),
            gauge("rocketpy_store_writable", "1 while the store takes messages.", is_writable),
            gauge("rocketpy_log_begin_offset", "Where the commit log begins.", positions.log_begin),
            gauge("rocketpy_log_end_offset", "Where the commit log ends.", positions.log_end),
            gauge(
                "rocketpy_staged_bytes",
                "Bytes of batches that are staged and not committed.",
                self._store.staging.used_bytes,
            ),
        )

    def _put_latency(self) -> Metric:
        """Returns append latencies of the store; the wait for a flush is in the call's latency."""
        counts = list(accumulate(self._store.statistics.put_step_counts))
        below = dict(zip(STEP_BOUNDS_MS, counts, strict=False))
        buckets = [(f"{bound / 1000:g}", float(below[bound])) for bound in PUT_BOUNDS_MS]
        family = HistogramMetricFamily(
            "rocketpy_put_seconds",
            "How long it took to append a block; to the millisecond below.",
        )
        family.add_metric([], [*buckets, ("+Inf", float(counts[-1]))], sum_value=None)
        return family
