"""Lines that read a full topic into Spark's noop sink."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, functions

from benchmarks.peers.connectors import Bench, Connector
from benchmarks.peers.options import AT_LEAST_ONCE, NO_OPTIONS, TUNED_READ, TUNED_WRITE, Options
from benchmarks.peers.rounds import Line, Turn, repeated
from benchmarks.spark.bench_source import drain

# The counterparts of Kafka's columns; timestampType has none, and is a number as sysFlag is.
KAFKA_COLUMNS = "keys,body,topic,queueId,queueOffset,storeTimestamp,sysFlag"
JSON_BODY = (
    "to_json(named_struct('id', id, 'user', concat('user-', id % 1000), 'amount', id / 4,"
    " 'note', lpad(cast(id as string), 40, 'x'))) as body"
)
JSON_JOB = "from_json(cast({body} as string), 'id bigint, user string, amount double') as parsed"


@dataclass(frozen=True, slots=True)
class Case:
    """A read: the columns that our source is asked for, and the expression that is selected."""

    name: str
    goal: float
    body_bytes: int = 100
    columns: str = ""
    select: str = ""
    is_stream: bool = False
    is_json: bool = False


CASES = (
    Case("batch read, default columns, 100 B", 1.3),
    Case("stream read, default columns, 100 B", 1.3, is_stream=True),
    Case("batch read, the 7 columns that Kafka has, 100 B", 1.7, columns=KAFKA_COLUMNS),
    Case("batch read, body only, 100 B", 2.4, columns="body", select="{body}"),
    Case('batch read, select("body") without `columns`, 100 B', 1.5, select="{body}"),
    Case("batch read, body only, 1 KiB", 1.8, 1024, columns="body", select="{body}"),
    Case("batch read, default columns, 1 KiB", 1.3, 1024),
    Case("JSON job: parse and sum by user, 100 B", 1.6, select=JSON_JOB, is_json=True),
)


def lines(bench: Bench) -> Iterator[Line]:
    """Yields the lines while their topics are full."""
    kafka = bench.kafka()
    with bench.ours() as ours:
        topics: dict[tuple[int, bool], dict[str, str]] = {}
        for case in CASES:
            kind = case.body_bytes, case.is_json
            if kind not in topics:
                frame = content(bench, case)
                topics[kind] = {
                    ours.name: filled_topic(ours, frame, AT_LEAST_ONCE),
                    kafka.name: filled_topic(kafka, frame, TUNED_WRITE),
                }
            columns = {"columns": case.columns} if case.columns else NO_OPTIONS
            filled = topics[kind]
            yield Line(
                case.name,
                turn_of(bench, ours, filled, case, columns),
                turn_of(bench, kafka, filled, case, NO_OPTIONS),
                {"ours": ours.programs, "theirs": kafka.programs},
                tuned=turn_of(bench, kafka, filled, case, TUNED_READ),
                goal=case.goal,
            )
        for filled in topics.values():
            kafka.topics.delete_topic(filled[kafka.name])


def content(bench: Bench, case: Case) -> DataFrame:
    """Returns the rows of a topic."""
    count = bench.setting.rows_of(case.body_bytes)
    if case.is_json:
        return bench.spark.range(0, count, 1, 2).selectExpr(JSON_BODY)
    return bench.rows(count, case.body_bytes)


def filled_topic(side: Connector, frame: DataFrame, options: Options) -> str:
    """Creates a topic and writes a frame into it; returns its name."""
    topic = side.new_topic()
    side.save(frame, topic, options)
    assert side.batch(topic).count() == frame.count()
    return topic


def turn_of(
    bench: Bench, side: Connector, topics: Mapping[str, str], case: Case, options: Options
) -> Turn:
    """Returns the turn that reads the topic again and again."""
    topic, rows = topics[side.name], bench.setting.rows_of(case.body_bytes)

    def job() -> None:
        frame = (side.stream if case.is_stream else side.batch)(topic, options)
        if case.select:
            frame = frame.selectExpr(case.select.format(body=side.body))
        if case.is_json:
            frame = frame.groupBy("parsed.user").agg(functions.sum("parsed.amount"))
        if not case.is_stream:
            frame.write.format("noop").mode("append").save()
        elif (read := drain(frame, Path(bench.checkpoint()))) != rows:
            raise RuntimeError(f"read {read} rows instead of {rows}")

    return repeated(job, rows)
