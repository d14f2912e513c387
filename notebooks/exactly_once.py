# Databricks notebook source
# MAGIC %md
# MAGIC # Exactly once, from topic to topic
# MAGIC
# MAGIC A stream reads payments and books them to a second topic. It is stopped half way, resumes,
# MAGIC and is made to write a batch again. Each payment is booked once all the same.
# MAGIC
# MAGIC A task of the sink stores its messages invisibly. When all tasks are done, Spark's driver
# MAGIC commits the batch, and the broker shows it. The broker remembers the last batch of each
# MAGIC query, and ignores a batch that it has shown before.
# MAGIC
# MAGIC It runs unchanged on Databricks, or with `python notebooks/exactly_once.py`. The broker
# MAGIC listens on the driver's loopback, so a Databricks cluster needs a single node. The widget
# MAGIC `endpoint` names another broker (host:port); elsewhere the variable `ROCKETPY_ENDPOINT`
# MAGIC does.

# COMMAND ----------

# MAGIC %pip install 'pyspark-rocketpy[broker]'

# COMMAND ----------

# MAGIC %restart_python

# COMMAND ----------

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark users know)
from pyspark.sql.streaming.query import StreamingQuery

from surroundings import Surroundings

here = Surroundings(globals())
spark = here.session()
PAYMENTS = int(here.parameter("payments", "20000"))
PER_BATCH = max(PAYMENTS // 10, 1)

folder = Path(here.enter_context(TemporaryDirectory(prefix="exactly-once-")))
broker = here.broker()
endpoint = broker.endpoint
for topic in ("payments", "bookings", "large", "all"):
    broker.create_topic(topic, queues=4)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Payments
# MAGIC
# MAGIC A batch write is all or nothing: readers see it when it is complete.

# COMMAND ----------


def options(topic: str) -> dict[str, str]:
    """Returns the connector's options for a topic."""
    return {"endpoints": endpoint, "topic": topic}


spark.range(PAYMENTS).selectExpr(
    "to_json(named_struct('payment', id, 'cents', id * 37 % 100000)) as body",
    "concat('account-', id % 50) as messageGroup",
).write.format("rocketpy").options(**options("payments")).mode("append").save()


def payments_in(topic: str) -> DataFrame:
    """Returns the visible payments of a topic."""
    messages = spark.read.format("rocketpy").options(**options(topic), columns="body").load()
    body = F.from_json(F.col("body").cast("string"), "payment long, cents long, fee double")
    return messages.select(body.alias("event")).select("event.*")


def assert_once(topic: str, expected: int) -> None:
    """Checks that the topic has each expected payment once."""
    found = payments_in(topic).agg(F.count("payment"), F.countDistinct("payment")).collect()[0]
    print(f"{topic}: {found[0]} messages, {found[1]} payments")
    assert tuple(found) == (expected, expected)


assert_once("payments", PAYMENTS)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The pipeline
# MAGIC
# MAGIC `delivery` is `exactly-once` by default. It needs only the checkpoint.

# COMMAND ----------


def start_booking(**trigger: Any) -> StreamingQuery:
    """Starts the query that writes payments with their fee to topic `bookings`."""
    stream = spark.readStream.format("rocketpy").options(**options("payments"))
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", PER_BATCH)
    payment = F.from_json(F.col("body").cast("string"), "payment long, cents long")
    booked = stream.load().select(payment.alias("event"), "messageGroup")
    bookings = booked.select(
        F.to_json(F.struct("event.*", (F.col("event.cents") * 0.02).alias("fee"))).alias("body"),
        "messageGroup",
    )
    writer = bookings.writeStream.format("rocketpy").options(**options("bookings"))
    writer = writer.option("checkpointLocation", (folder / "booking").as_uri())
    return writer.trigger(**trigger).start()


query = start_booking(processingTime="0 seconds")
while query.isActive and len(query.recentProgress) < 2:
    query.awaitTermination(1)
query.stop()
stopped_at = payments_in("bookings").count()
print(f"stopped after {stopped_at} of {PAYMENTS}")

# COMMAND ----------

# MAGIC %md
# MAGIC The stopped batch may have stored messages; readers do not see them. The query continues
# MAGIC from its checkpoint, and writes that batch again.

# COMMAND ----------

start_booking(availableNow=True).awaitTermination()
assert_once("bookings", PAYMENTS)

# COMMAND ----------

# MAGIC %md
# MAGIC ## A batch that is written again
# MAGIC
# MAGIC A driver may die after the broker has shown a batch and before Spark has recorded it. Then
# MAGIC Spark runs the batch again. We remove Spark's record of the last batch, and start the
# MAGIC query.

# COMMAND ----------


def forget_last_batch(checkpoint: Path) -> int:
    """Removes Spark's record of the last batch, as if the driver had died before writing it."""
    done = sorted(
        int(path.name) for path in (checkpoint / "commits").iterdir() if path.suffix == ""
    )
    for path in (checkpoint / "commits").glob(f"*{done[-1]}*"):
        path.unlink()
    return done[-1]


def batches_run(query: StreamingQuery) -> list[int]:
    """Returns the numbers of the batches that the query has run."""
    query.awaitTermination()
    return [progress.batchId for progress in query.recentProgress]


again = forget_last_batch(folder / "booking")
assert again in batches_run(start_booking(availableNow=True))
print(f"batch {again} was run again")
assert_once("bookings", PAYMENTS)

# COMMAND ----------

# MAGIC %md
# MAGIC ## foreachBatch
# MAGIC
# MAGIC A function in `foreachBatch` runs a batch job, and may write to several topics. `txnAppId`
# MAGIC names the writer, with one name for each checkpoint and target. `txnVersion` is the batch's
# MAGIC number.

# COMMAND ----------

LARGE_CENTS = 90_000


def write_once(frame: DataFrame, topic: str, batch_id: int) -> None:
    """Saves a batch under its number."""
    writer = frame.write.format("rocketpy").options(**options(topic))
    writer = writer.option("txnAppId", f"{folder.name}-{topic}").option("txnVersion", batch_id)
    writer.mode("append").save()


def split(frame: DataFrame, batch_id: int) -> None:
    """Writes all payments to one topic, and the large ones also to a second one."""
    cents = F.get_json_object(F.col("body").cast("string"), "$.cents").cast("long")
    write_once(frame, "all", batch_id)
    write_once(frame.where(cents >= LARGE_CENTS), "large", batch_id)


def start_split(handle: Callable[[DataFrame, int], None]) -> StreamingQuery:
    """Starts a query that handles all payments batch by batch."""
    stream = spark.readStream.format("rocketpy").options(**options("payments"))
    stream = stream.option("startingOffsets", "earliest").option(
        "maxOffsetsPerTrigger", 4 * PER_BATCH
    )
    bodies = stream.option("columns", "body").load()
    writer = bodies.writeStream.foreachBatch(handle).trigger(availableNow=True)
    return writer.option("checkpointLocation", (folder / "split").as_uri()).start()


start_split(split).awaitTermination()
again = forget_last_batch(folder / "split")
assert again in batches_run(start_split(split))
print(f"batch {again} was run again")
assert_once("all", PAYMENTS)
assert_once("large", payments_in("payments").where(F.col("cents") >= LARGE_CENTS).count())

# COMMAND ----------

here.close()
print(f"{PAYMENTS} payments, each booked once.")
