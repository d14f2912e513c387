"""Names, labels and help texts of all metrics.

Source: docs/design/broker_behaviour.md section 9.6.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol, TypeAlias

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

TOPIC = ("topic",)
OUTCOME, TOPIC_OUTCOME = ("invocation_status",), ("invocation_status", "is_system")
IN = ("topic", "message_type", "is_system")
OUT = ("topic", "consumer_group", "is_system")
LAG = ("consumer_group", "topic", "is_retry", "is_system")
CONSUMERS = ("consumer_group", "consume_mode", "protocol_type", "is_system")
RPC = ("protocol_type", "request_code", "response_code", "is_long_polling", "result")
DISK = ("storage_type", "storage_medium")
# A family's name, the values of its labels, and the value: a number, or buckets and a sum.
Series: TypeAlias = tuple[Any, ...]


class MetricSource(Protocol):
    """A source of some of a broker's metrics."""

    def series(self) -> AsyncIterator[Series | None]:
        """Yields present series of FAMILIES; None is a place for a scheduler slot."""


GAUGES: dict[str, tuple[Sequence[str], str]] = {
    "rocketmq_broker_permission": ((), "4: read, 2: write, together 6."),
    "rocketmq_topic_number": ((), "Topics, including the broker's own."),
    "rocketmq_consumer_group_number": ((), "Consumer groups, including the broker's own."),
    "rocketmq_producer_connections": (("protocol_type",), "Clients in producer groups."),
    "rocketmq_consumer_connections": (CONSUMERS, "Clients in a consumer group."),
    "rocketmq_consumer_lag_messages": (LAG, "Messages that the group has not committed."),
    "rocketmq_consumer_inflight_messages": (LAG, "Messages that were pulled, but not committed."),
    "rocketmq_consumer_ready_messages": (LAG, "Messages that were not pulled."),
    "rocketmq_consumer_lag_latency_milliseconds": (LAG, "Age of the oldest uncommitted message."),
    "rocketmq_consumer_queueing_latency_milliseconds": (
        LAG,
        "Age of the oldest message that was not pulled.",
    ),
    "rocketmq_storage_size_bytes": (DISK, "Bytes in use of the store's file system."),
    "rocketmq_storage_flush_behind_bytes": (DISK, "Bytes of the log that are not flushed."),
    "rocketmq_storage_dispatch_behind_bytes": (DISK, "Bytes that no consume queue shows."),
    "rocketmq_storage_message_reserve_time_milliseconds": (DISK, "Age of the oldest message."),
    "rocketmq_timer_enqueue_lag": (DISK, "Timed messages that the timer has not read."),
    "rocketmq_half_messages": ((), "Half messages of open transactions."),
    "rocketpy_delayed_messages": (("level",), "Messages that wait, by delay level; 0: for a time."),
    "rocketpy_omitted_consumer_lags": ((), "Pairs of group and topic without a shown lag."),
    "rocketpy_held_calls": ((), "Calls that wait in the broker."),
    "rocketpy_running_calls": ((), "Calls that the broker is running."),
    "rocketpy_slaves": ((), "Connected slaves; only with a port for slaves."),
    "rocketpy_replication_connected": ((), "1 while a slave follows its master; only of a slave."),
    "rocketpy_replication_lag_bytes": ((), "Bytes of the master's log that a slave lacks."),
    "rocketpy_slave_lag_bytes": ((), "Bytes of the log that the nearest slave lacks."),
    "rocketpy_store_writable": ((), "1 while the store takes messages."),
    "rocketpy_log_begin_offset": ((), "Start offset of the commit log."),
    "rocketpy_log_end_offset": ((), "End offset of the commit log."),
    "rocketpy_staged_bytes": ((), "Bytes of batches that are staged and not committed."),
}
COUNTERS: dict[str, tuple[Sequence[str], str]] = {
    "rocketmq_messages_in": (IN, "Messages that clients have sent."),
    "rocketmq_throughput_in": (IN, "Bytes of messages that clients have sent."),
    "rocketmq_messages_out": (OUT, "Messages that consumer groups have pulled."),
    "rocketmq_throughput_out": (OUT, "Bytes of messages that consumer groups have pulled."),
    "rocketmq_send_to_dlq_messages": (OUT, "Messages that became dead letters."),
    "rocketmq_commit_messages": (TOPIC, "Transactions that were committed."),
    "rocketmq_rollback_messages": (TOPIC, "Transactions that were rolled back."),
    "rocketmq_timer_dequeue": (TOPIC, "Delayed messages that were delivered."),
    "rocketpy_put_failures": ((), "Blocks that were not stored."),
    "rocketpy_corrupt_records": ((), "Damaged records that were found."),
    "rocketpy_uncounted_events": ((), "Events that a fault left uncounted."),
}
HISTOGRAMS: dict[str, tuple[Sequence[str], str]] = {
    "rocketmq_message_size": (IN, "Bytes of a stored message; the mean of a block."),
    "rocketmq_finish_message_latency_milliseconds": (TOPIC, "Seconds to a commit, not ms."),
    "rocketmq_delay_message_latency_seconds": (TOPIC, "Waiting times of delivered messages."),
    "rocketmq_rpc_latency_milliseconds": (RPC, "Time from a request to its first answer."),
    "rocketmq_topic_create_execution_time_milliseconds": (TOPIC_OUTCOME, "Times of topic changes."),
    "rocketmq_consumer_group_create_execution_time_milliseconds": (
        OUTCOME,
        "Times of group changes.",
    ),
    "rocketpy_put_seconds": ((), "Durations of appends of a block, in whole milliseconds."),
    "rocketpy_flush_seconds": ((), "Durations of flushes of the commit log."),
    "rocketpy_event_loop_lag_seconds": ((), "Lateness of the event loop's callbacks."),
}
# prometheus_client's class, labels and help text by name.
FAMILIES: dict[str, tuple[Callable[..., Any], Sequence[str], str]] = {
    name: (make, *described)
    for make, described_of in (
        (GaugeMetricFamily, GAUGES),
        (CounterMetricFamily, COUNTERS),
        (HistogramMetricFamily, HISTOGRAMS),
    )
    for name, described in described_of.items()
}
