"""The counter of a broker's events: messages, calls, registrations and flushes.

The store, the services and the server call its listeners, once a block or a call. RocketMQ's
statistics and the metrics are views of its tables. In memory only; a restart begins at zero.
Histograms with RocketMQ's name have RocketMQ's buckets.
Source: docs/design/broker_behaviour.md sections 6.3, 9.5 and 9.6.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Concatenate, ParamSpec

import numpy as np

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.services.groups.clients.members import ClientRole
from rocketpy_broker.services.observability.counters.histogram import Histogram, Labels
from rocketpy_broker.services.observability.counters.labels import (
    flag,
    in_labels,
    is_retry_or_dlq,
)
from rocketpy_broker.services.observability.counters.names import Key, Kind
from rocketpy_broker.services.observability.counters.table import CounterTable
from rocketpy_broker.services.observability.counters.windows import Window
from rocketpy_broker.services.pull.outcome import Pulled
from rocketpy_broker.services.retry.service import SentBackMessages
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.services.transactions.messages import HalfMessage, Operation
from rocketpy_broker.store.statistics import Put
from rocketpy_broker.store.values import PutCause, QueueKey
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.model import SCHEDULE_TOPIC
from rocketpy_proto.model.codes import RequestCode, ResponseCode
from rocketpy_proto.record import RecordBlock

logger = logging.getLogger(__name__)
P = ParamSpec("P")
GROUP_CHARACTERS_MAX = 255
# RocketMQ's group name in the statistics of delay level deliveries.
SCHEDULE_CONSUMER = "SCHEDULE_CONSUMER"
# Gauges are set to 0 at the end of a period. Two samples show the keys that were set in between.
GAUGE_PERIOD = Window("five minutes", 300_000, 2)
# Pulled offsets; about 200 bytes of memory each.
PULLED_MAX = 100_000
# Limit of topics with own histograms; the label `OTHERS` sums up all further topics.
TOPICS_MAX = 1_000
OTHERS = "_others"
KIB, MIB = 1 << 10, 1 << 20
SIZES = (KIB, 4 * KIB, 512 * KIB, MIB, 2 * MIB, 4 * MIB)
RPC_MS = (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000)
CREATION_MS = (10, 100, 1_000, 3_000, 5_000)
FLUSH_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
LOOP_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5)
# The numbers of the two kinds of codes differ.
KNOWN_CODES = {
    **{int(code): code.name.lower() for code in ResponseCode},
    **{number: name.lower() for name, number in v2.Code.items() if number},
    int(v2.OK): ResponseCode.SUCCESS.name.lower(),
}
OTHER_CODE = -1
FAILED_CODES = frozenset({int(ResponseCode.SYSTEM_ERROR), int(v2.INTERNAL_SERVER_ERROR)})
# Methods with long polling.
HOLDING = frozenset(
    {"pull", "query_offsets", "receive_message", "pull_message", "lite_pull_message"}
    | {"pop_message", "notification"}
)
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


def never_raises(
    listener: Callable[Concatenate[EventCounter, P], None],
) -> Callable[Concatenate[EventCounter, P], None]:
    """Returns a listener that never raises, since its caller sends, flushes or deletes.

    An error is counted each time, and logged once per listener.
    """
    name = listener.__name__

    @wraps(listener)
    def call(counter: EventCounter, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            listener(counter, *args, **kwargs)
        except Exception:
            counter.uncounted += 1
            if name not in counter.failed:
                counter.failed.add(name)
                logger.exception("could not count %r; this is logged once", name)

    return call


class EventCounter:
    """The tables of one broker's counters, and the listeners that add to them.

    `sums` and `gauges` are RocketMQ's statistics. A gauge is a group's lag as of its last pull. The
    histograms are for the metrics alone.
    """

    def __init__(
        self,
        topics: TopicConfigManager,
        clock: Clock,
        cluster_name: str,
        sums: CounterTable | None = None,
        gauges: CounterTable | None = None,
    ) -> None:
        self._topics = topics
        self._clock = clock
        self._cluster = cluster_name
        self.sums = CounterTable() if sums is None else sums
        self.gauges = CounterTable([GAUGE_PERIOD]) if gauges is None else gauges
        self._pulled: OrderedDict[tuple[str, QueueKey], int] = OrderedDict()
        self._own_series: set[str] = set()
        self._message_size = Histogram("rocketmq_message_size", *SIZES)
        self._rollbacks = Histogram("rocketmq_rollback_messages")
        self.finish_seconds = Histogram(
            "rocketmq_finish_message_latency_milliseconds", 5, 60, 600, 3_600, 43_200, 86_400
        )
        self.delay_seconds = Histogram(
            "rocketmq_delay_message_latency_seconds", 60, 600, 3_600, 43_200, 86_400
        )
        self._rpc_ms = Histogram("rocketmq_rpc_latency_milliseconds", *RPC_MS)
        self._topic_change_ms = Histogram(
            "rocketmq_topic_create_execution_time_milliseconds", *CREATION_MS
        )
        self._group_change_ms = Histogram(
            "rocketmq_consumer_group_create_execution_time_milliseconds", *CREATION_MS
        )
        self._flush_seconds = Histogram("rocketpy_flush_seconds", *FLUSH_SECONDS)
        self._loop_lag_seconds = Histogram("rocketpy_event_loop_lag_seconds", *LOOP_SECONDS)
        # Both have a series before their first event.
        self._flush_seconds.of(())
        self._loop_lag_seconds.of(())
        self._by_topic = (
            self._message_size,
            self._rollbacks,
            self.finish_seconds,
            self.delay_seconds,
        )
        self.histograms = (
            *self._by_topic,
            self._rpc_ms,
            self._topic_change_ms,
            self._group_change_ms,
            self._flush_seconds,
            self._loop_lag_seconds,
        )
        self.uncounted = 0
        self.failed: set[str] = set()

    # --- Messages ---

    @never_raises
    def put(self, put: Put) -> None:
        """Counts a stored block, and the mean message size of a sent one."""
        if put.cause is PutCause.OWN:
            return
        topic = put.queue.topic
        if put.cause is not PutCause.SENT_BACK:
            self._count_broker(Kind.BROKER_PUT, Kind.BROKER_PUT_WITHOUT_SYSTEM, topic, put.count)
        is_scheduled = topic == SCHEDULE_TOPIC
        if put.cause is PutCause.SENT or (put.cause is PutCause.SENT_BACK and is_scheduled):
            self.sums.add(Key(Kind.TOPIC_PUT, topic), put.count, put.bytes, int(put.latency_ms))
        if is_scheduled:
            key = Key(Kind.QUEUE_PUT, topic, queue_id=put.queue.queue_id)
            self.sums.add(key, put.count, put.bytes)
        if put.cause is PutCause.SENT and not is_retry_or_dlq(topic):
            labels = (self._label(topic), *in_labels(self._topics, topic))
            self._message_size.observe(labels, put.bytes / put.count)

    @never_raises
    def pulled(self, pulled: Pulled) -> None:
        """Counts an answer to a pull; it has no messages if the filter rejects all."""
        (topic, queue_id), group, count = pulled.queue, pulled.group, pulled.count
        if count:
            self._count_broker(Kind.BROKER_GET, Kind.BROKER_GET_WITHOUT_SYSTEM, topic, count)
        # The group is any text that a client sends.
        if not group or len(group) > GROUP_CHARACTERS_MAX:
            return
        if count:
            key = Key(Kind.GROUP_GET, topic, group)
            self.sums.add(key, count, pulled.bytes, pulled.latency_ms)
        key = Key(Kind.GROUP_GET_FALL, topic, group, queue_id)
        self.gauges.set(key, pulled.behind_bytes, pulled.behind_ms if count else None)
        self._pulled[group, pulled.queue] = pulled.next_offset
        self._pulled.move_to_end((group, pulled.queue))
        if len(self._pulled) > PULLED_MAX:
            self._pulled.popitem(last=False)

    def pulled_offset(self, group: str, queue: QueueKey) -> int:
        """Returns the offset after the last pulled message; 0 if it is unknown.

        New offsets replace the oldest ones at the limit.
        """
        return self._pulled.get((group, queue), 0)

    @never_raises
    def delivered(self, queue: QueueKey, count: int, size_bytes: int) -> None:
        """Counts messages that a delay level has delivered."""
        topic, queue_id = queue
        self.sums.add(Key(Kind.QUEUE_GET, topic, SCHEDULE_CONSUMER, queue_id), count, size_bytes)
        self.sums.add(Key(Kind.GROUP_GET, topic, SCHEDULE_CONSUMER), count, size_bytes)

    @never_raises
    def released(self, topic: str, waiting: RecordBlock) -> None:
        """Counts delivered delayed messages and their delays."""
        waited_ms = self._clock.now_ms() - waiting.header["store_timestamp"].astype(np.int64)
        self.delay_seconds.observe_all((self._label(topic),), np.maximum(waited_ms, 0) / 1000)

    @never_raises
    def sent_back(self, messages: SentBackMessages) -> None:
        """Counts stored messages that a group has sent back."""
        for topic, count in messages.topics.items():
            self.sums.add(Key(Kind.SENT_BACK, topic, messages.group), count)
            if messages.is_dead:
                self.sums.add(Key(Kind.DEAD_LETTERS, topic, messages.group), count)

    @never_raises
    def transaction_ended(self, half: HalfMessage, operation: Operation) -> None:
        """Counts a rollback, or a commit with its latency."""
        labels = (self._label(half.real_queue.topic),)
        if operation is Operation.COMMIT:
            age_ms = max(self._clock.now_ms() - half.record.born_timestamp_ms, 0)
            self.finish_seconds.observe(labels, age_ms / 1000)
        else:
            self._rollbacks.observe(labels, 1)

    def _count_broker(self, kind: Kind, without_system: Kind, topic: str, count: int) -> None:
        self.sums.add(Key(kind, self._cluster), count)
        if not self._topics.is_system(topic):
            self.sums.add(Key(without_system, self._cluster), count)

    def _label(self, topic: str) -> str:
        """Returns the topic, or `OTHERS` for a topic above the limit or a missing topic."""
        if topic in self._own_series:
            return topic
        is_there = self._topics.find(topic) is not None or self._topics.is_system(topic)
        if len(self._own_series) >= TOPICS_MAX or not is_there:
            return OTHERS
        self._own_series.add(topic)
        return topic

    # --- Groups, calls and the broker ---

    @never_raises
    def registered(self, role: ClientRole, latency_ms: float) -> None:
        """Counts a client's registration in a group, or its heartbeat."""
        kind = Kind.CONSUMER_REGISTER if role is ClientRole.CONSUMER else Kind.PRODUCER_REGISTER
        self.sums.add(Key(kind, self._cluster), 1, latency_ms=int(latency_ms))

    @never_raises
    def called(self, method: str, code: int, latency_ms: float) -> None:
        """Counts a call and its latency."""
        # Hooks may return any code.
        labels = _rpc_labels(method, code if code in KNOWN_CODES else OTHER_CODE)
        self._rpc_ms.observe(labels, latency_ms)

    def appended(self, code: int, latency_ms: float) -> None:
        """Counts a block of an append stream and its latency."""
        self.called("Append", code, latency_ms)

    @never_raises
    def topic_changed(self, topic: str, latency_ms: float, is_success: bool) -> None:
        """Counts a topic's creation or change, successful or not, and its duration."""
        labels = (_status(is_success), flag(self._topics.is_system(topic)))
        self._topic_change_ms.observe(labels, latency_ms)

    @never_raises
    def group_changed(self, latency_ms: float, is_success: bool) -> None:
        """Counts a group's creation or change, successful or not, and its duration."""
        self._group_change_ms.observe((_status(is_success),), latency_ms)

    @never_raises
    def flushed(self, latency_ms: float) -> None:
        """Counts a flush of the commit log and its duration."""
        self._flush_seconds.observe((), latency_ms / 1000)

    @never_raises
    def loop_lagged(self, late_ms: float) -> None:
        """Counts a delay of the event loop."""
        self._loop_lag_seconds.observe((), late_ms / 1000)

    # --- Deletions ---

    @never_raises
    def forget_topic(self, topic: str) -> None:
        """Removes the histograms and pulled offsets of a deleted topic; takes some ms."""
        for histogram in self._by_topic:
            histogram.forget_topic(topic)
        self._own_series.discard(topic)
        self._forget_pulled([key for key in self._pulled if key[1].topic == topic])

    @never_raises
    def forget_group(self, group: str) -> None:
        """Removes the pulled offsets of a deleted consumer group; takes some ms."""
        self._forget_pulled([key for key in self._pulled if key[0] == group])

    def _forget_pulled(self, keys: list[tuple[str, QueueKey]]) -> None:
        for key in keys:
            del self._pulled[key]


def _status(is_success: bool) -> str:
    return "success" if is_success else "failure"


@lru_cache(1_024)
def _rpc_labels(method: str, code: int) -> Labels:
    protocol = "remoting" if method in RequestCode.__members__ else "grpc"
    name = _WORD.sub("_", method.rpartition("/")[2]).lower()
    response = KNOWN_CODES.get(code, "other")
    result = "process_request_failed" if code in FAILED_CODES else "success"
    return (protocol, name, response, flag(name in HOLDING), result)
