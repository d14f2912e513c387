"""Progress report of a query, parsed from Spark's JSON.

The JSON is the same in a classic session and under Spark Connect. Values that Spark leaves out are
missing here as well, such as the rates of a very quick batch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_rocketpy.json_values import NUMBER_MAX
from pyspark_rocketpy.offsets import lag_in


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """Results of one batch. Rates are rows per second, of all sources of the query together.

    `lag` is by topic, of the sources with format rocketpy; None if no source reports it.
    """

    query_id: str
    run_id: str
    name: str
    batch_id: int
    input_rows: int
    batch_seconds: float | None
    input_rows_per_second: float | None
    processed_rows_per_second: float | None
    lag: Mapping[str, int] | None

    @classmethod
    def parse(cls, text: str) -> BatchProgress:
        """Reads Spark's JSON. Raises ValueError, TypeError, OffsetError."""
        try:
            content = json.loads(text)
        except RecursionError as error:
            raise ValueError("the progress is nested too deeply") from error
        if not isinstance(content, Mapping):
            raise TypeError(f"the progress is {type(content).__name__}, not a JSON object")
        milliseconds = _measured(content, "batchDuration")
        return cls(
            query_id=_id(content, "id"),
            run_id=_id(content, "runId"),
            name=str(content.get("name") or ""),
            batch_id=_count(content, "batchId"),
            input_rows=_count(content, "numInputRows"),
            batch_seconds=None if milliseconds is None else milliseconds / 1000,
            input_rows_per_second=_measured(content, "inputRowsPerSecond"),
            processed_rows_per_second=_measured(content, "processedRowsPerSecond"),
            lag=_lag(content.get("sources") or []),
        )


def _lag(sources: object) -> dict[str, int] | None:
    """Returns the lag of all sources; a topic that two sources read counts in both."""
    if not isinstance(sources, list):
        raise TypeError(f"sources is {type(sources).__name__}, not a list")
    found: dict[str, int] = {}
    reports = [
        lag_in(source.get("latestOffset")) for source in sources if isinstance(source, Mapping)
    ]
    for report in reports:
        for topic, lag in (report or {}).items():
            label = printable(topic)
            found[label] = found.get(label, 0) + lag
    return None if all(report is None for report in reports) else found


def _id(content: Mapping[str, object], name: str) -> str:
    value = content.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is {_shown(value)}, not an id")
    return value


def _count(content: Mapping[str, object], name: str) -> int:
    value = content.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= NUMBER_MAX:
        raise ValueError(f"{name} is {_shown(value)}, not a count")
    return value


def _measured(content: Mapping[str, object], name: str) -> float | None:
    """Returns a number that Spark measured; None if it could not. Raises ValueError."""
    value = content.get(name)
    if value is None:
        return None
    try:
        assert isinstance(value, int | float)
        measured = float(value)
    except (AssertionError, OverflowError) as error:
        raise ValueError(f"{name} is {_shown(value)}, not a number") from error
    return measured if math.isfinite(measured) and measured >= 0 else None


def _shown(value: object) -> str:
    return f"{value!r:.100}"


def printable(text: str) -> str:
    """Returns a label that can be exported; a lone surrogate would fail every scrape."""
    return text.encode("utf-8", "replace").decode("utf-8")
