"""Time series of queries in a registry of prometheus_client.

A query's series exist while it runs. Each query has a label, and series of at most `topics_max`
topics; the lag of its other topics is one sum. The numbers are in memory only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import MappingProxyType

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.registry import Collector

from pyspark_rocketpy.metrics.progress import BatchProgress

# No topic has this name, since topic names have no parentheses.
OTHERS = "(others)"
BATCH_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_QUERY = ("query",)
_GAUGES: Mapping[str, str] = MappingProxyType(
    {
        "last_batch_id": "Number of the query's last batch",
        "input_rows_per_second": "Rows per second that arrived, of the last batch",
        "processed_rows_per_second": "Rows per second that were processed, of the last batch",
        "last_progress_timestamp_seconds": "Time at which the query last ended a batch or was idle",
    }
)


def _gauge(name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
    return Gauge(f"rocketpy_{name}", text, labels, registry=None)


def _counter(name: str, text: str, labels: Sequence[str] = ()) -> Counter:
    return Counter(f"rocketpy_{name}", text, labels, registry=None)


class Series:
    """All series that one listener exports; not thread-safe.

    Raises ValueError if the registry already has one of their names; the registry stays unchanged.
    """

    def __init__(self, registry: CollectorRegistry, topics_max: int) -> None:
        self._registry = registry
        self._topics_max = topics_max
        # The topics of each running query with a shown lag.
        self._topics: dict[str, set[str]] = {}
        # The gauges of each running query that have a value.
        self._shown: dict[str, set[str]] = {}
        self._lag = _gauge(
            "query_lag_messages",
            "Messages of a topic that the query's last batch left unread",
            ("query", "topic"),
        )
        self._rows = _counter("query_input_rows", "Rows that the query has read", _QUERY)
        self._batch_seconds = Histogram(
            "rocketpy_query_batch_duration_seconds",
            "Time from a batch's trigger to its commit",
            _QUERY,
            buckets=BATCH_SECONDS,
            registry=None,
        )
        self._gauges = {
            name: _gauge(f"query_{name}", text, _QUERY) for name, text in _GAUGES.items()
        }
        self.failures = _counter(
            "query_failures",
            "Queries that ended with an error; the series stays after the query's end",
            ("query", "error"),
        )
        self.active = _gauge("queries_active", "Queries that run")
        self.left_out = _gauge("queries_left_out", "Running queries without their own series")
        self.refused = _counter("progress_refused", "Progress reports that cannot be read")
        self._registered = ExitStack()
        with ExitStack() as registered:
            for metric in self._all():
                registry.register(metric)
                registered.callback(registry.unregister, metric)
            self._registered = registered.pop_all()

    def _all(self) -> Iterator[Collector]:
        yield from (self._lag, self._rows, self._batch_seconds, *self._gauges.values())
        yield from (self.failures, self.active, self.left_out, self.refused)

    def begin(self, query: str, now_seconds: float) -> None:
        """Starts the series of a query, so that it is visible before its first batch."""
        self._topics.setdefault(query, set())
        self._rows.labels(query)
        self._batch_seconds.labels(query)
        self.alive(query, now_seconds)

    def alive(self, query: str, now_seconds: float) -> None:
        """Sets the time of a query's last event, in seconds since 1970."""
        self._set(query, "last_progress_timestamp_seconds", now_seconds)

    def advance(self, query: str, progress: BatchProgress) -> None:
        """Adds a batch."""
        self._rows.labels(query).inc(progress.input_rows)
        if progress.batch_seconds is not None:
            self._batch_seconds.labels(query).observe(progress.batch_seconds)
        for name, value in {
            "last_batch_id": progress.batch_id,
            "input_rows_per_second": progress.input_rows_per_second,
            "processed_rows_per_second": progress.processed_rows_per_second,
        }.items():
            if value is not None:
                self._set(query, name, value)
        if progress.lag is not None:
            self._set_lag(query, self._bounded(progress.lag))

    def _set(self, query: str, gauge: str, value: float) -> None:
        self._gauges[gauge].labels(query).set(value)
        self._shown.setdefault(query, set()).add(gauge)

    def _bounded(self, lag: Mapping[str, int]) -> Mapping[str, int]:
        """Returns the topics with the greatest lag, and the sum of the rest."""
        if len(lag) <= self._topics_max:
            return lag
        ordered = sorted(lag, key=lambda topic: (-lag[topic], topic))
        shown, rest = ordered[: self._topics_max], ordered[self._topics_max :]
        return {**{topic: lag[topic] for topic in shown}, OTHERS: sum(lag[each] for each in rest)}

    def _set_lag(self, query: str, lag: Mapping[str, int]) -> None:
        for topic in self._topics[query] - lag.keys():
            self._lag.remove(query, topic)
        for topic, messages in lag.items():
            self._lag.labels(query, topic).set(messages)
        self._topics[query] = set(lag)

    def end(self, query: str) -> None:
        """Removes the series of a query."""
        for topic in self._topics.pop(query):
            self._lag.remove(query, topic)
        for metric in (self._rows, self._batch_seconds):
            metric.remove(query)
        for name in self._shown.pop(query):
            self._gauges[name].remove(query)

    def close(self) -> None:
        """Removes everything from the registry. A second call does nothing."""
        self._registered.close()
