"""`QueryMetrics`, the listener for events of streaming queries.

Spark calls it from threads of its own, in the driver, or under Spark Connect in the client. It must
not raise: Spark Connect drops all listeners of a client when one raises. So the listener counts and
logs unreadable events. Its numbers end with the process.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry
from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import RocketpyError
from pyspark_rocketpy.metrics.progress import BatchProgress, printable
from pyspark_rocketpy.metrics.series import OTHERS, Series

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_log = logging.getLogger(__name__)
# Prefix of the connector's errors, deep in Spark's error texts.
_OUR_CODE = re.compile(r"\b(ROCKETPY[A-Z_]*): ")
_OTHER_ERROR = "other"


class QueryMetrics(StreamingQueryListener):
    """A listener that exports lag, rows and batch times of each running streaming query.

    A query's label is its name, or its id if it has none. At most `queries_max` queries have
    series, and each of them for at most `topics_max` topics; the rest is counted. A `registry`
    accepts one listener only: a second one raises ValueError. `now_ms` returns the time in
    milliseconds since 1970.
    """

    def __init__(
        self,
        registry: CollectorRegistry = REGISTRY,
        *,
        queries_max: int = 100,
        topics_max: int = 100,
        now_ms: Callable[[], int] = clock.now_ms,
    ) -> None:
        super().__init__()
        if queries_max < 1 or topics_max < 1:
            raise ValueError(
                f"queries_max is {queries_max} and topics_max {topics_max}; set each to 1 or more"
            )
        try:
            self._series = Series(registry, topics_max)
        except ValueError as error:
            raise ValueError(
                f"{error}; if the series belong to another QueryMetrics, use that one, or call "
                "its close() first"
            ) from error
        self._queries_max = queries_max
        self._now_ms = now_ms
        self._lock = threading.Lock()
        # Runs with series, and runs beyond the limit.
        self._runs: dict[str, _Run] = {}
        self._left_out: dict[str, _Run] = {}
        self._failures: set[tuple[str, str]] = set()

    def close(self) -> None:
        """Removes the series from the registry; called after the listener was removed."""
        with self._lock:
            self._series.close()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Starts the series of a query."""
        with self._lock:
            self._label(str(event.runId), str(event.id), event.name or "")

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Adds a batch to the series of its query."""
        with self._lock:
            try:
                progress = BatchProgress.parse(event.progress.json)
            except (TypeError, ValueError, RocketpyError) as error:
                self._series.refused.inc()
                _log.warning("a query's progress report is not counted in its metrics: %s", error)
                return
            # The listener may have been added after the query's start.
            label = self._label(progress.run_id, progress.query_id, progress.name)
            if label is not None:
                self._series.alive(label, self._now_seconds())
                self._series.advance(label, progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Updates the time of a query that found nothing to do."""
        with self._lock:
            run = self._runs.get(str(event.runId))
            if run is not None:
                self._series.alive(run.label, self._now_seconds())

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Removes the series of a query, unless it has been restarted already."""
        run_id, query_id = str(event.runId), str(event.id)
        with self._lock:
            shown = self._runs.pop(run_id, None)
            run = shown or self._left_out.pop(run_id, None) or _Run(query_id, query_id)
            if event.exception is not None:
                self._fail(run.label, _error(event.exception, event.errorClassOnException))
            if shown is not None and shown not in self._runs.values():
                self._series.end(shown.label)
            self._count()

    def _now_seconds(self) -> float:
        return self._now_ms() / 1000

    def _label(self, run_id: str, query_id: str, name: str) -> str | None:
        """Returns the label of a run and starts a new run's series; None beyond the limit."""
        if run_id not in self._runs:
            run = self._run(query_id, name)
            running = set(self._runs.values())
            if run not in running and len(running) >= self._queries_max:
                self._left_out[run_id] = run
                self._count()
                return None
            self._left_out.pop(run_id, None)
            self._runs[run_id] = run
            self._series.begin(run.label, self._now_seconds())
            self._count()
        return self._runs[run_id].label

    def _run(self, query_id: str, name: str) -> _Run:
        """Returns a run, labelled by its id if a query of another session has the same name."""
        taken = {run.label for run in self._runs.values() if run.query_id != query_id}
        label = printable(name)
        return _Run(query_id, label if label and label not in taken else query_id)

    def _fail(self, label: str, error: str) -> None:
        failure = (label, error)
        if failure not in self._failures and len(self._failures) >= self._queries_max:
            failure = (OTHERS, _OTHER_ERROR)
        self._failures.add(failure)
        self._series.failures.labels(*failure).inc()

    def _count(self) -> None:
        self._series.left_out.set(len(self._left_out))
        self._series.active.set(len(self._left_out) + len(self._runs))


@dataclass(frozen=True, slots=True)
class _Run:
    """A running query and its label."""

    query_id: str
    label: str


def _error(text: str, error_class: str | None) -> str:
    """Returns the connector's code for an error, else Spark's class of it."""
    ours = _OUR_CODE.search(text)
    return ours[1] if ours else printable(error_class or _OTHER_ERROR)
