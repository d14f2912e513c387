# Databricks notebook source
# MAGIC %md
# MAGIC # Quick start
# MAGIC
# MAGIC A broker inside this notebook, and Spark at both ends of a topic: write a frame, read it as
# MAGIC a batch, follow it as a stream, and see the stream's lag.
# MAGIC
# MAGIC It runs unchanged on Databricks, or with `python notebooks/quick_start.py`. The broker
# MAGIC listens on the driver's loopback, so a Databricks cluster needs a single node. The widget
# MAGIC `endpoint` names another broker (host:port); elsewhere the variable `ROCKETPY_ENDPOINT`
# MAGIC does.

# COMMAND ----------

# MAGIC %pip install 'pyspark-rocketpy[broker]'

# COMMAND ----------

# MAGIC %restart_python

# COMMAND ----------

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from surroundings import Surroundings

here = Surroundings(globals())
spark = here.session()
ORDERS = int(here.parameter("orders", "10000"))
QUEUES = int(here.parameter("queues", "4"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## A broker and a topic
# MAGIC
# MAGIC `here.broker()` returns a `LocalBroker`, a process of its own with a temporary store, or
# MAGIC the broker that `endpoint` names. The notebook deletes the topic at the end.

# COMMAND ----------

broker = here.broker()
broker.create_topic("orders", queues=QUEUES)
options = {"endpoints": broker.endpoint, "topic": "orders"}

# COMMAND ----------

# MAGIC %md
# MAGIC ## A batch write
# MAGIC
# MAGIC `body` is the message. Tags, keys and groups are columns of their own. The messages of a
# MAGIC group stay in one queue, in order.

# COMMAND ----------


def write_orders(begin: int, end: int) -> None:
    """Writes orders `begin` to `end` - 1, of ten customers."""
    spark.range(begin, end).selectExpr(
        "to_json(named_struct('order', id, 'cents', id * 7 % 10000)) as body",
        "if(id % 10 = 0, 'cancelled', 'paid') as tags",
        "concat('order-', id) as keys",
        "concat('customer-', id % 10) as messageGroup",
    ).write.format("rocketpy").options(**options).mode("append").save()


write_orders(0, ORDERS)

# COMMAND ----------

# MAGIC %md
# MAGIC ## A batch read
# MAGIC
# MAGIC A batch reads from the first message to the last one that is stored now.

# COMMAND ----------

messages = spark.read.format("rocketpy").options(**options).load()
here.show(messages.selectExpr("queueId", "queueOffset", "tags", "keys", "string(body)").limit(3))
here.show(messages.groupBy("tags").count().orderBy("tags"))
assert messages.count() == ORDERS
assert messages.where("tags = 'cancelled'").count() == len(range(0, ORDERS, 10))

# COMMAND ----------

# MAGIC %md
# MAGIC ## A stream
# MAGIC
# MAGIC Spark's checkpoint has the position. The source also reports it to the broker, for the
# MAGIC group. This query reads the topic in small batches, and ends at the topic's current end.

# COMMAND ----------

folder = Path(here.enter_context(TemporaryDirectory(prefix="quick-start-")))


def follow() -> StreamingQuery:
    """Reads from the checkpoint to the topic's current end."""
    stream = spark.readStream.format("rocketpy").options(**options)
    stream = stream.option("consumerGroup", "quick-start").option("startingOffsets", "earliest")
    rows = stream.option("maxOffsetsPerTrigger", max(ORDERS // 4, 1)).load()
    writer = rows.select("keys").writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", (folder / "checkpoint").as_uri())
    query = writer.start((folder / "seen").as_uri())
    query.awaitTermination()
    return query


def seen_count() -> int:
    """Returns the number of orders that the stream has read; checks that none is there twice."""
    seen = spark.read.parquet((folder / "seen").as_uri())
    assert seen.distinct().count() == seen.count(), "an order was seen twice"
    return seen.count()


query = follow()
assert seen_count() == ORDERS

# COMMAND ----------

# MAGIC %md
# MAGIC ## The lag
# MAGIC
# MAGIC Each batch's progress has the number of unread messages, by queue.

# COMMAND ----------


def lag(progress: StreamingQueryProgress) -> int:
    """Returns the number of messages that were unread after this batch."""
    queues = json.loads(progress.sources[0].latestOffset)["lag"]
    return sum(lag for topic in queues.values() for lag in topic.values())


for progress in query.recentProgress:
    print(f"batch {progress.batchId}: {progress.numInputRows} read, {lag(progress)} unread")
assert lag(query.recentProgress[-1]) == 0

# COMMAND ----------

# MAGIC %md
# MAGIC The broker has the lag as well. New orders arrive while no query runs, and `rocketpy lag`
# MAGIC shows them. The query then continues from its checkpoint, and reads only the new orders.

# COMMAND ----------

NEW_ORDERS = 500


def print_lag() -> None:
    """Prints the output of `rocketpy lag orders --group quick-start`."""
    command = [sys.executable, "-m", "rocketpy_broker", "lag", "orders"]
    command += ["--group", "quick-start", "--endpoint", broker.endpoint]
    print(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


write_orders(ORDERS, ORDERS + NEW_ORDERS)
print_lag()
query = follow()
print_lag()
assert sum(progress.numInputRows for progress in query.recentProgress) == NEW_ORDERS
assert seen_count() == ORDERS + NEW_ORDERS

# COMMAND ----------

# MAGIC %md
# MAGIC ## The end
# MAGIC
# MAGIC The notebook removes its checkpoint. Its own broker stops and removes its store. On another
# MAGIC broker the notebook deletes its topic.

# COMMAND ----------

here.close()
print(f"{ORDERS + NEW_ORDERS} orders written, each read once.")
