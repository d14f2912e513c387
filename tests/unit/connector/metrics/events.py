"""Events of streaming queries, as Spark passes them to a listener."""

from __future__ import annotations

import copy
import json
import uuid
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)

TIME = "2026-01-01T00:00:00.000Z"
# As PySpark 4.3 reports a query that reads one topic.
PROGRESS: dict[str, Any] = {
    "name": "orders",
    "timestamp": TIME,
    "batchId": 3,
    "batchDuration": 948,
    "numInputRows": 40,
    "inputRowsPerSecond": 8.4,
    "processedRowsPerSecond": 42.2,
    "durationMs": {"addBatch": 577, "triggerExecution": 948},
    "stateOperators": [],
    "sources": [
        {
            "description": "PythonMicroBatchStream@31901aac",
            "startOffset": {"v": 1, "offsetTable": {"T@group": {"0": 20, "1": 20}}},
            "endOffset": {"v": 1, "offsetTable": {"T@group": {"0": 40, "1": 40}}},
            "latestOffset": {
                "offsetTable": {"T@group": {"0": 50, "1": 50}},
                "lag": {"T": {"0": 10, "1": 10}},
            },
            "numInputRows": 40,
        }
    ],
    "sink": {"description": "MemorySink", "numOutputRows": 40},
}


class Told:
    """A progress as a listener reads it: its JSON."""

    def __init__(self, text: str) -> None:
        self.json = text


class Query:
    """One run of a query, and its events."""

    def __init__(self, name: str | None = "orders", query_id: uuid.UUID | None = None) -> None:
        self.name = name
        self.id = query_id or uuid.uuid4()
        self.run_id = uuid.uuid4()

    def started(self) -> QueryStartedEvent:
        return QueryStartedEvent(self.id, self.run_id, self.name, TIME, set())

    def idle(self) -> QueryIdleEvent:
        return QueryIdleEvent(self.id, self.run_id, TIME)

    def ended(self, exception: str | None = None, error: str | None = None) -> QueryTerminatedEvent:
        return QueryTerminatedEvent(self.id, self.run_id, exception, error)

    def progress(self, **changes: object) -> QueryProgressEvent:
        """Returns the event of a batch; `lag` changes the source's lag, a None removes a name."""
        content = copy.deepcopy(PROGRESS)
        content |= {"id": str(self.id), "runId": str(self.run_id), "name": self.name}
        if "lag" in changes:
            content["sources"][0]["latestOffset"]["lag"] = changes.pop("lag")
        merged = {name: value for name, value in (content | changes).items() if value is not None}
        return told(json.dumps(merged))


def told(text: str) -> QueryProgressEvent:
    """Returns an event with this text, which may be no progress."""
    return QueryProgressEvent(Told(text))  # type: ignore[arg-type]
