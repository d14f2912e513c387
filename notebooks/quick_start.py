# Databricks notebook source
# MAGIC %md
# MAGIC # Quick start
# MAGIC
# MAGIC A broker inside this notebook, and Spark on both ends of a topic: write a frame, read it as
# MAGIC a batch, follow it as a stream, see how far behind the stream is.
# MAGIC
# MAGIC It runs as it stands, on Databricks or with `python notebooks/quick_start.py`. The broker
# MAGIC listens on the driver's loopback, so a cluster has to be of a single node. The widget
# MAGIC `endpoint`, elsewhere the variable `ROCKETPY_ENDPOINT`, names another broker (host:port).

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
# MAGIC `here.broker()` is a `LocalBroker`, a process of its own with a temporary store, or the
# MAGIC broker that `endpoint` names. The topic goes at the end.

# COMMAND ----------

broker = here.broker()
broker.create_topic("orders", queues=QUEUES)
options = {"endpoints": broker.endpoint, "topic": "orders"}

# COMMAND ----------

# MAGIC %md
# MAGIC ## Write a frame
# MAGIC
# MAGIC `body` is the message. Tags, keys and groups are columns of their own; the messages of a
# MAGIC group stay in one queue, in order.

# COMMAND ----------


def write_orders(begin: int, end: int) -> None:
    """Orders `begin` to `end` - 1, of ten customers."""
    spark.range(begin, end).selectExpr(
        "to_json(named_struct('order', id, 'cents', id * 7 % 10000)) as body",
        "if(id % 10 = 0, 'cancelled', 'paid') as tags",
        "concat('order-', id) as keys",
        "concat('customer-', id % 10) as messageGroup",
    ).write.format("rocketpy").options(**options).mode("append").save()


write_orders(0, ORDERS)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Read it as a batch
# MAGIC
# MAGIC From the first message to the last one that is there now.

# COMMAND ----------

messages = spark.read.format("rocketpy").options(**options).load()
here.show(messages.selectExpr("queueId", "queueOffset", "tags", "keys", "string(body)").limit(3))
here.show(messages.groupBy("tags").count().orderBy("tags"))
assert messages.count() == ORDERS
assert messages.where("tags = 'cancelled'").count() == len(range(0, ORDERS, 10))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Follow it as a stream
# MAGIC
# MAGIC The position is in Spark's checkpoint, and is reported to the broker for the group. This
# MAGIC query takes the topic in bites, and ends when it has read what is there.

# COMMAND ----------

folder = Path(here.enter_context(TemporaryDirectory(prefix="quick-start-")))


def follow() -> StreamingQuery:
    """Read on from the checkpoint until nothing is left."""
    stream = spark.readStream.format("rocketpy").options(**options)
    stream = stream.option("consumerGroup", "quick-start").option("startingOffsets", "earliest")
    rows = stream.option("maxOffsetsPerTrigger", max(ORDERS // 4, 1)).load()
    writer = rows.select("keys").writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", (folder / "checkpoint").as_uri())
    query = writer.start((folder / "seen").as_uri())
    query.awaitTermination()
    return query


def seen_count() -> int:
    """How many orders the stream has seen, each counted once."""
    seen = spark.read.parquet((folder / "seen").as_uri())
    assert seen.distinct().count() == seen.count(), "an order was seen twice"
    return seen.count()


query = follow()
assert seen_count() == ORDERS

# COMMAND ----------

# MAGIC %md
# MAGIC ## See the lag
# MAGIC
# MAGIC Each batch's progress says how many messages are still unread, by queue.

# COMMAND ----------


def lag(progress: StreamingQueryProgress) -> int:
    """Messages that were unread behind this batch."""
    queues = json.loads(progress.sources[0].latestOffset)["lag"]
    return sum(lag for topic in queues.values() for lag in topic.values())


for progress in query.recentProgress:
    print(f"batch {progress.batchId}: {progress.numInputRows} read, {lag(progress)} behind")
assert lag(query.recentProgress[-1]) == 0

# COMMAND ----------

# MAGIC %md
# MAGIC The broker knows it, too. New orders come while no query runs; `rocketpy lag` shows them.
# MAGIC Then the query goes on where it was, and reads those only.

# COMMAND ----------

NEW_ORDERS = 500


def print_lag() -> None:
    """What `rocketpy lag orders --group quick-start` says."""
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
# MAGIC The checkpoint is removed. A broker of the notebook's own stops, and its store is removed;
# MAGIC on another one, the topic is deleted.

# COMMAND ----------

here.close()
print(f"{ORDERS + NEW_ORDERS} orders written, each read once.")
