# Databricks notebook source
# MAGIC %md
# MAGIC # A cluster, here or there
# MAGIC
# MAGIC The same code writes, reads and follows a topic of an Apache RocketMQ cluster, by its name
# MAGIC servers. The widget `nameServer` names them (`host:port`, several with semicolons).
# MAGIC Elsewhere the variable `ROCKETPY_NAMESERVER` does. The topic of widget `topic` must exist
# MAGIC there. The notebook reads only its own messages. Without name servers it starts a broker
# MAGIC that has one and needs no Java.
# MAGIC
# MAGIC It runs unchanged on Databricks, or with `python notebooks/clusters.py`.

# COMMAND ----------

# MAGIC %pip install 'pyspark-rocketpy[broker]'

# COMMAND ----------

# MAGIC %restart_python

# COMMAND ----------

import uuid
from pathlib import Path
from tempfile import TemporaryDirectory

from rocketpy_broker import LocalBroker
from surroundings import Surroundings

here = Surroundings(globals())
spark = here.session()
NAME_SERVER = here.parameter("nameServer", "")
TOPIC = here.parameter("topic", "orders")
ORDERS = int(here.parameter("orders", "1000"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## The connection
# MAGIC
# MAGIC A cluster may also need the options `tls`, `accessKey` and `secretKey`.

# COMMAND ----------

if not NAME_SERVER:
    broker = here.enter_context(LocalBroker())
    broker.create_topic(TOPIC, queues=4)
    NAME_SERVER = broker.name_server
options = {"nameServer": NAME_SERVER, "topic": TOPIC}

# COMMAND ----------

# MAGIC %md
# MAGIC ## A batch write
# MAGIC
# MAGIC By name server the sink delivers `at-least-once`: a task that runs again stores its messages
# MAGIC twice. With `delivery` `effectively-once` it skips them. The tag marks this run's messages.

# COMMAND ----------

RUN = uuid.uuid4().hex


def write_orders(begin: int, end: int) -> None:
    """Writes orders `begin` to `end` - 1."""
    spark.range(begin, end).selectExpr(
        "concat('order ', id) as body", f"'{RUN}' as tags", "concat('o-', id) as keys"
    ).write.format("rocketpy").options(**options).mode("append").save()


write_orders(0, ORDERS)

# COMMAND ----------

# MAGIC %md
# MAGIC ## A batch read
# MAGIC
# MAGIC A queue of a cluster is a broker and a number.

# COMMAND ----------

batch = spark.read.format("rocketpy").options(**options, filter=RUN).load()
here.show(batch.groupBy("brokerName", "queueId").count().orderBy("brokerName", "queueId"))
assert batch.select("body").distinct().count() == ORDERS

# COMMAND ----------

# MAGIC %md
# MAGIC ## A stream
# MAGIC
# MAGIC A stopped query continues from its checkpoint.

# COMMAND ----------

folder = Path(here.enter_context(TemporaryDirectory(prefix="clusters-")))


def follow() -> int:
    """Reads from the checkpoint; returns the number of distinct orders that were read so far."""
    stream = spark.readStream.format("rocketpy").options(**options, filter=RUN)
    rows = stream.option("startingOffsets", "earliest").load().selectExpr("string(body)")
    writer = rows.writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", (folder / "checkpoint").as_uri())
    writer.start((folder / "seen").as_uri()).awaitTermination()
    return spark.read.parquet((folder / "seen").as_uri()).distinct().count()


assert follow() == ORDERS
write_orders(ORDERS, 2 * ORDERS)
assert follow() == 2 * ORDERS

# COMMAND ----------

# MAGIC %md
# MAGIC ## The end
# MAGIC
# MAGIC The notebook removes the checkpoint and its own broker. Messages stay on a cluster.

# COMMAND ----------

here.close()
print(f"{2 * ORDERS} orders written and read.")
