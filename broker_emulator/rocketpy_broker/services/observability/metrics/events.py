"""Metrics of events: the rows and histograms of the counter as series.

A row without additions for a day is dropped; its counter restarts at zero.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import accumulate

from prometheus_client.utils import floatToGoString

from rocketpy_broker.services.groups.manager import is_system_group
from rocketpy_broker.services.observability.counters.event_counter import EventCounter
from rocketpy_broker.services.observability.counters.histogram import Histogram
from rocketpy_broker.services.observability.counters.labels import (
    flag,
    in_labels,
    is_retry_or_dlq,
)
from rocketpy_broker.services.observability.counters.names import Key, Kind
from rocketpy_broker.services.observability.metrics.families import Series
from rocketpy_broker.services.topics.manager import TopicConfigManager

# The families of a kind of row, in the order of its columns: messages, then bytes.
ROWS = {
    Kind.TOPIC_PUT: ("rocketmq_messages_in", "rocketmq_throughput_in"),
    Kind.GROUP_GET: ("rocketmq_messages_out", "rocketmq_throughput_out"),
    Kind.DEAD_LETTERS: ("rocketmq_send_to_dlq_messages",),
}


class EventMetrics:
    """The source of metrics of a broker's events."""

    def __init__(self, counter: EventCounter, topics: TopicConfigManager) -> None:
        self._counter = counter
        self._topics = topics

    async def series(self) -> AsyncIterator[Series | None]:
        """Yields a series for each row and each histogram."""
        counter = self._counter
        # Prevents a second series of a row that is dropped and recreated meanwhile.
        shown: set[Key] = set()
        for row, key in enumerate(counter.sums.keys):
            yield None
            if key is None or not _is_shown(key) or key in shown:
                continue
            shown.add(key)
            labels, values = self._labels(key), counter.sums.counters[row].item()
            for name, value in zip(ROWS[key.kind], values, strict=False):
                yield name, labels, value
        for histogram in counter.histograms:
            for each in _series(histogram):
                yield each
        for name, counted in (
            ("rocketmq_commit_messages", counter.finish_seconds),
            ("rocketmq_timer_dequeue", counter.delay_seconds),
        ):
            for labels, found in [*counted.series.items()]:
                yield name, labels, sum(found.counts)
        yield "rocketpy_uncounted_events", (), counter.uncounted

    def _labels(self, key: Key) -> tuple[str, ...]:
        if key.kind is Kind.TOPIC_PUT:
            return (key.topic, *in_labels(self._topics, key.topic))
        is_system = self._topics.is_system(key.topic) or is_system_group(key.group)
        return key.topic, key.group, flag(is_system)


def _is_shown(key: Key) -> bool:
    return key.kind in ROWS and not (key.kind is Kind.TOPIC_PUT and is_retry_or_dlq(key.topic))


def _series(histogram: Histogram) -> Iterator[Series]:
    texts = [*map(floatToGoString, histogram.bounds), "+Inf"]
    for labels, found in [*histogram.series.items()]:
        buckets = [*zip(texts, accumulate(found.counts), strict=True)]
        values = (buckets, found.sum) if histogram.bounds else (found.sum,)
        yield histogram.name, labels, *values
