# Databricks notebook source
# MAGIC %md
# MAGIC # A thin client, by Spark Connect
# MAGIC
# MAGIC Thermometers in a machine hall send to a topic. The analyst's laptop has no Java and does
# MAGIC not reach the brokers; a server with Spark does. By Spark Connect the laptop sends plans,
# MAGIC and gets rows and progress back.
# MAGIC
# MAGIC Requirements:
# MAGIC
# MAGIC - the server has the connector, and reaches the brokers. Nothing is registered there;
# MAGIC - the client has `pyspark-client`, or PySpark with `[connect]`, and the connector where it
# MAGIC   uses its metrics.
# MAGIC
# MAGIC It runs unchanged with `python notebooks/spark_connect.py` and on Databricks. The widget
# MAGIC `remote`, elsewhere the variable `ROCKETPY_REMOTE`, names a Spark Connect server
# MAGIC (`sc://host:port`). `endpoint` names a broker (host:port) that both this machine and the
# MAGIC server reach. Without them the notebook starts its own.

# COMMAND ----------

# MAGIC %pip install 'pyspark-rocketpy[broker]' 'pyspark[connect]' prometheus-client matplotlib

# COMMAND ----------

# MAGIC %restart_python

# COMMAND ----------

import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from prometheus_client import CollectorRegistry
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark users know)

from pyspark_rocketpy.metrics import QueryMetrics
from surroundings import Surroundings

here = Surroundings(globals())
spark = here.connect_session()
READINGS = int(here.parameter("readings", "20000"))
CHARTS = Path(here.parameter("charts", "."))
WAIT_SECONDS_MAX = 100
print(f"a session of {type(spark).__module__}, Spark {spark.version}")

broker = here.broker()
for topic in ("temperatures", "alarms"):
    broker.create_topic(topic, queues=4)


def options(topic: str) -> dict[str, str]:
    """Returns the options of the server's connector for a topic."""
    return {"endpoints": broker.endpoint, "topic": topic}


# COMMAND ----------

# MAGIC %md
# MAGIC ## Readings
# MAGIC
# MAGIC A plan goes to the server, which makes the rows and writes them. No row passes this
# MAGIC machine. The readings of a machine stay in one queue, in order. Machine 7 runs hot in the
# MAGIC afternoon.

# COMMAND ----------

spark.range(READINGS).selectExpr(
    "concat('machine-', id % 10) as machine",
    f"cast(id as double) * 24 / {READINGS} as hour",
).selectExpr(
    "machine",
    "hour",
    "round(40 + 6 * sin((hour - 8) * pi() / 12) + rand(7) * 2"
    " + if(machine = 'machine-7' and hour between 13 and 18, 35, 0), 1) as celsius",
).selectExpr("to_json(struct(*)) as body", "machine as messageGroup").write.format(
    "rocketpy"
).options(**options("temperatures")).mode("append").save()

# COMMAND ----------

# MAGIC %md
# MAGIC ## The day's readings
# MAGIC
# MAGIC The server reads and aggregates. Ten rows come back.

# COMMAND ----------

READING = "machine string, hour double, celsius double"


def decoded(messages: DataFrame) -> DataFrame:
    """Returns the JSON bodies of messages as columns."""
    body = F.from_json(F.col("body").cast("string"), READING)
    return messages.select(body.alias("reading")).select("reading.*")


def read(topic: str) -> DataFrame:
    """Returns all messages of a topic, read as a batch."""
    return decoded(spark.read.format("rocketpy").options(**options(topic)).load())


readings = read("temperatures")
here.show(
    readings.groupBy("machine")
    .agg(F.count("*").alias("readings"), F.max("celsius").alias("hottest"))
    .orderBy("machine")
)
assert readings.count() == READINGS

# COMMAND ----------

# MAGIC %md
# MAGIC ## Alarms, watched from here
# MAGIC
# MAGIC The query runs on the server, and its checkpoint is there: the widget `checkpoints` names a
# MAGIC folder that the server can write to. Listeners run in the client, so Prometheus scrapes the
# MAGIC query's lag here.

# COMMAND ----------

checkpoints = here.parameter("checkpoints", "")
if not checkpoints:
    checkpoints = here.enter_context(TemporaryDirectory(prefix="spark-connect-"))
registry = CollectorRegistry()
listener = QueryMetrics(registry)
spark.streams.addListener(listener)
here.callback(spark.streams.removeListener, listener)


def metric(name: str, **labels: str) -> float | None:
    """Returns the value of a Prometheus metric of the query."""
    return registry.get_sample_value(f"rocketpy_query_{name}", {"query": "alarms", **labels})


stream = spark.readStream.format("rocketpy").options(**options("temperatures"))
stream = stream.option("startingOffsets", "earliest").option(
    "maxOffsetsPerTrigger", max(READINGS // 8, 1)
)
too_hot = decoded(stream.load()).where("celsius > 60")
query = (
    too_hot.select(F.to_json(F.struct("*")).alias("body"), F.col("machine").alias("messageGroup"))
    .writeStream.format("rocketpy")
    .options(**options("alarms"))
    .option("checkpointLocation", checkpoints)
    .queryName("alarms")
    .start()
)
here.callback(query.stop)
end = time.monotonic() + WAIT_SECONDS_MAX
while metric("input_rows_total") != READINGS:
    assert time.monotonic() < end, f"only {metric('input_rows_total')} readings are read"
    query.awaitTermination(1)
print(f"{metric('input_rows_total'):,.0f} readings are read")
print(f"{metric('lag_messages', topic='temperatures'):,.0f} readings are unread")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The picture
# MAGIC
# MAGIC The server sends means by half hours, as pandas. The lag comes from the query's progress.

# COMMAND ----------

alarms = read("alarms")
expected = readings.where("celsius > 60")
assert alarms.count() == expected.count() > 0
here.show(alarms.groupBy("machine").agg(F.count("*").alias("alarms"), F.max("celsius")))
half_hour = (F.floor(F.col("hour") * 2) / 2).alias("half_hour")
means = readings.groupBy("machine", half_hour).agg(F.avg("celsius").alias("celsius"))
by_machine = means.toPandas().pivot_table("celsius", "half_hour", "machine")
progress = [each for each in query.recentProgress if each.numInputRows]
query.stop()


def temperatures(axes: Axes) -> None:
    """Draws the mean by half hour, with the hot machine in front."""
    cool = by_machine.columns != "machine-7"
    axes.plot(by_machine.index, by_machine.loc[:, cool], color="lightgray")
    axes.plot(by_machine.index, by_machine["machine-7"], color="tab:red", label="machine-7")
    axes.axhline(60, color="gray", linestyle=":", label="alarm")
    axes.set(title="Temperatures of ten machines", xlabel="hour", ylabel="°C")
    axes.legend()


def lag(axes: Axes) -> None:
    """Draws the number of unread readings after each batch."""
    lags = [json.loads(each.sources[0].latestOffset)["lag"] for each in progress]
    unread = [sum(each["temperatures"].values()) for each in lags]
    axes.bar(range(len(unread)), unread)
    axes.set(title="Lag of the query", xlabel="batch", ylabel="unread readings")


def picture() -> Figure:
    """Draws both charts."""
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    for draw, axes in zip((temperatures, lag), figure.subplots(1, 2), strict=True):
        draw(axes)
        axes.grid(alpha=0.3)
    return figure


here.plot(picture(), CHARTS / "temperatures.png")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The end
# MAGIC
# MAGIC The notebook stops its own servers and deletes its topics.

# COMMAND ----------

alarm_count = alarms.count()
here.close()
print(f"{READINGS} readings, {alarm_count} alarms.")
