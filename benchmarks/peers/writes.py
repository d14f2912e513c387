"""Lines that write rows, each turn into a topic of its own that ends with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame

from benchmarks.peers.connectors import Bench, Connector
from benchmarks.peers.options import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    NO_OPTIONS,
    TUNED_READ,
    TUNED_WRITE,
    Options,
)
from benchmarks.peers.reads import filled_topic
from benchmarks.peers.rounds import Done, Line, Turn, repeated
from rocketpy_broker.store.config import FlushDiskType

ASYNC, SYNC = FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH


@dataclass(frozen=True, slots=True)
class Case:
    """A write by our sink. Kafka's sink delivers at least once, and its broker does not flush."""

    delivery: Options
    flush: FlushDiskType
    goal: float
    body_bytes: int = 100

    @property
    def name(self) -> str:
        """The name of the line."""
        size = "1 KiB" if self.body_bytes == 1024 else f"{self.body_bytes} B"
        return f"write {self.delivery['delivery']}, {self.flush.value}, {size}"


CASES = (
    Case(AT_LEAST_ONCE, ASYNC, 1.05),
    Case(AT_LEAST_ONCE, SYNC, 0.9),
    Case(EXACTLY_ONCE, ASYNC, 0.85),
    Case(EXACTLY_ONCE, SYNC, 0.75),
    Case(AT_LEAST_ONCE, ASYNC, 1.1, 1024),
    Case(EXACTLY_ONCE, SYNC, 0.9, 1024),
)


def lines(bench: Bench) -> Iterator[Line]:
    """Yields the lines, each with an empty broker of ours."""
    kafka = bench.kafka()
    for case in CASES:
        rows = bench.setting.rows_of(case.body_bytes)
        frame = bench.rows(rows, case.body_bytes)
        with bench.ours(case.flush) as ours:
            yield Line(
                case.name,
                save_turn(ours, frame, case.delivery, rows),
                save_turn(kafka, frame, NO_OPTIONS, rows),
                {"ours": ours.programs, "theirs": kafka.programs},
                tuned=save_turn(kafka, frame, TUNED_WRITE, rows),
                goal=case.goal,
            )
    with bench.ours() as ours:
        yield copy_line(bench, ours, kafka)


def save_turn(side: Connector, frame: DataFrame, options: Options, rows: int) -> Turn:
    """Returns the turn that writes a frame again and again."""
    return into_new_topic(side, lambda topic: side.save(frame, topic, options), rows)


def copy_line(bench: Bench, ours: Connector, kafka: Connector) -> Line:
    """Returns the line of a stream from topic to topic."""
    rows = bench.setting.rows
    frame = bench.rows(rows, 100)

    def turn(side: Connector, source: str, read: Options, write: Options) -> Turn:
        return into_new_topic(side, partial(copy, bench, side, source, read, write), rows)

    from_ours = filled_topic(ours, frame, AT_LEAST_ONCE)
    from_kafka = filled_topic(kafka, frame, TUNED_WRITE)
    return Line(
        "topic to topic, exactly-once, ASYNC_FLUSH, 100 B",
        turn(ours, from_ours, {"columns": "body"}, EXACTLY_ONCE),
        turn(kafka, from_kafka, NO_OPTIONS, NO_OPTIONS),
        {"ours": ours.programs, "theirs": kafka.programs},
        tuned=turn(kafka, from_kafka, TUNED_READ, TUNED_WRITE),
        goal=0.9,
    )


def copy(
    bench: Bench, side: Connector, source: str, read: Options, write: Options, target: str
) -> None:
    """Runs an AvailableNow query between two topics."""
    frame = side.stream(source, read).select(side.body)
    writer = side.sink(frame, target, write).option("checkpointLocation", bench.checkpoint())
    writer.trigger(availableNow=True).start().awaitTermination()


def into_new_topic(side: Connector, job: Callable[[str], object], rows: int) -> Turn:
    """Returns a turn of a job that gets a topic, which is deleted afterwards."""

    def turn(seconds_min: float) -> Done:
        topic = side.new_topic()
        done = repeated(lambda: job(topic), rows)(seconds_min)
        side.topics.delete_topic(topic)
        return done

    return turn
