"""Metrics of events: message sizes, latencies, transaction ends, calls and flushes.

Lower services and the server call its listeners. Lives in memory; a restart begins at zero. Metrics
with RocketMQ's name have RocketMQ's buckets.
Source: docs/design/broker_behaviour.md section 9.6.
"""

from __future__ import annotations

import re
from typing import TypeVar

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Histogram

from rocketpy_broker.response_code import ResponseCode
from rocketpy_broker.services.observability.metrics.bulk_histogram import BulkHistogram
from rocketpy_broker.services.observability.metrics.labels import (
    TopicLabels,
    flag,
    is_retry_or_dlq,
    message_type,
)
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.services.transactions.messages import HalfMessage, Operation
from rocketpy_broker.store.statistics import Put
from rocketpy_broker.store.values import PutCause
from rocketpy_proto.record import RecordBlock

KIB, MIB = 1 << 10, 1 << 20
SIZES = (KIB, 4 * KIB, 512 * KIB, MIB, 2 * MIB, 4 * MIB)
RPC_MS = (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000)
CREATION_MS = (10, 100, 1_000, 3_000, 5_000)
TRANSACTION_SECONDS = (5, 60, 600, 3_600, 43_200, 86_400)
DELAY_SECONDS = (60, 600, 3_600, 43_200, 86_400)
FLUSH_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
MetricT = TypeVar("MetricT", Counter, Histogram)
LOOP_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5)
KNOWN_CODES, OTHER_CODE = {int(code): code.name.lower() for code in ResponseCode}, -1
# Methods with long polling.
HOLDING = frozenset({"pull", "query_offsets"})
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


class Events:
    """The event metrics of one broker, all in `registry`."""

    def __init__(self, topics: TopicConfigManager, topic_labels: TopicLabels) -> None:
        self._topics = topics
        self._topic_labels = topic_labels
        self.registry = CollectorRegistry()
        self._make_messages()
        self._make_operations()
        self._size_of_topic: dict[str, Histogram] = {}
        self._rpc_of: dict[tuple[str, int], Histogram] = {}

    def _make_messages(self) -> None:
        by_topic = ("topic", "message_type", "is_system")
        self._message_size = Histogram(
            "rocketmq_message_size",
            "Bytes of a stored message, headers included; of a block the mean.",
            by_topic,
            registry=self.registry,
            buckets=SIZES,
        )
        self._ended = {
            Operation.COMMIT: self._counter(
                "rocketmq_commit_messages", "Transactions that were committed."
            ),
            Operation.ROLLBACK: self._counter(
                "rocketmq_rollback_messages", "Transactions that were rolled back."
            ),
        }
        self._finish_latency = Histogram(
            "rocketmq_finish_message_latency_milliseconds",
            "Seconds from a half message to its commit. RocketMQ has this name for it.",
            ("topic",),
            registry=self.registry,
            buckets=TRANSACTION_SECONDS,
        )
        self._dequeued = self._counter(
            "rocketmq_timer_dequeue",
            "Messages that have waited, by level or time, and were delivered.",
        )
        self._delay_latency = BulkHistogram(
            "rocketmq_delay_message_latency_seconds",
            "How long delivered messages have waited.",
            "topic",
            DELAY_SECONDS,
        )
        self.registry.register(self._delay_latency)

    def _counter(self, name: str, documentation: str) -> Counter:
        """Returns a counter by topic."""
        return Counter(name, documentation, ("topic",), registry=self.registry)

    def _make_operations(self) -> None:
        self._rpc_latency = Histogram(
            "rocketmq_rpc_latency_milliseconds",
            "From a request to its answer, held time included; of an append for each block.",
            ("protocol_type", "request_code", "response_code", "is_long_polling", "result"),
            registry=self.registry,
            buckets=RPC_MS,
        )
        self._topic_creation = Histogram(
            "rocketmq_topic_create_execution_time_milliseconds",
            "How long creations and changes of topics took.",
            ("invocation_status", "is_system"),
            registry=self.registry,
            buckets=CREATION_MS,
        )
        self._group_creation = Histogram(
            "rocketmq_consumer_group_create_execution_time_milliseconds",
            "How long creations and changes of consumer groups took.",
            ("invocation_status",),
            registry=self.registry,
            buckets=CREATION_MS,
        )
        self._flush = Histogram(
            "rocketpy_flush_seconds",
            "How long flushes of the commit log took.",
            registry=self.registry,
            buckets=FLUSH_SECONDS,
        )
        self._loop_lag = Histogram(
            "rocketpy_event_loop_lag_seconds",
            "How much later than due the event loop called back; looked at each half second.",
            registry=self.registry,
            buckets=LOOP_SECONDS,
        )

    # --- Messages ---

    def put(self, put: Put) -> None:
        """Observes the mean message size of a sent and stored block."""
        if put.cause is not PutCause.SENT:
            return
        topic = put.queue.topic
        series = self._size_of_topic.get(topic)
        if series is None:
            if is_retry_or_dlq(topic):
                return
            series = self._size_series(topic)
        series.observe(put.bytes / put.count)

    def _size_series(self, topic: str) -> Histogram:
        label = self._topic_labels.of(topic)
        is_system = flag(self._topics.is_system(topic))
        labels = (label, message_type(self._topics, topic), is_system)
        series: Histogram = self._message_size.labels(*labels)
        if label == topic:
            self._topic_labels.note(topic, self._message_size, labels)
            self._size_of_topic[topic] = series
        return series

    def transaction_ended(self, half: HalfMessage, operation: Operation, now_ms: int) -> None:
        """Counts a commit or rollback; observes the latency of a commit."""
        topic = half.real_queue.topic
        self._of(self._ended[operation], topic).inc()
        if operation is Operation.COMMIT:
            age_ms = max(now_ms - half.record.born_timestamp_ms, 0)
            self._of(self._finish_latency, topic).observe(age_ms / 1000)

    def released(self, topic: str, waiting: RecordBlock, now_ms: int) -> None:
        """Counts delivered delayed messages and observes their delays."""
        self._of(self._dequeued, topic).inc(len(waiting))
        waited_ms = now_ms - waiting.header["store_timestamp"].astype(np.int64)
        label = self._topic_labels.of(topic)
        self._topic_labels.note(label, self._delay_latency, (label,))
        self._delay_latency.observe(label, np.maximum(waited_ms, 0) / 1000)

    def _of(self, metric: MetricT, topic: str) -> MetricT:
        label = self._topic_labels.of(topic)
        self._topic_labels.note(label, metric, (label,))
        return metric.labels(label)

    def forget_topic(self, topic: str) -> None:
        """Removes the series of a deleted topic."""
        self._size_of_topic.pop(topic, None)
        self._topic_labels.forget(topic)

    # --- The broker ---

    def called(self, method: str, code: int, latency_ms: float) -> None:
        """Observes the latency of a call, or of a block of an append stream."""
        # Hooks may return any code.
        key = method, code if code in KNOWN_CODES else OTHER_CODE
        series = self._rpc_of.get(key)
        if series is None:
            series = self._rpc_of[key] = self._rpc_series(*key)
        series.observe(latency_ms)

    def appended(self, code: int, latency_ms: float) -> None:
        """Observes the latency of a block of an append stream."""
        self.called("Append", code, latency_ms)

    def _rpc_series(self, method: str, code: int) -> Histogram:
        name = _WORD.sub("_", method.rpartition("/")[2]).lower()
        response = KNOWN_CODES.get(code, "other")
        result = "success" if code != ResponseCode.SYSTEM_ERROR else "process_request_failed"
        return self._rpc_latency.labels("grpc", name, response, flag(name in HOLDING), result)

    def topic_changed(self, topic: str, latency_ms: float, is_success: bool) -> None:
        """Observes the time of a topic's creation or change, successful or not."""
        status, is_system = "success" if is_success else "failure", self._topics.is_system(topic)
        self._topic_creation.labels(status, flag(is_system)).observe(latency_ms)
        # The message type may have changed.
        self._size_of_topic.pop(topic, None)

    def group_changed(self, latency_ms: float, is_success: bool) -> None:
        """Observes the time of a group's creation or change, successful or not."""
        self._group_creation.labels("success" if is_success else "failure").observe(latency_ms)

    def flushed(self, latency_ms: float) -> None:
        """Observes the latency of a commit log flush."""
        self._flush.observe(latency_ms / 1000)

    def loop_was_late(self, late_ms: float) -> None:
        """Observes a delay of the event loop."""
        self._loop_lag.observe(late_ms / 1000)
