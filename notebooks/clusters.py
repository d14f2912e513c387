# Databricks notebook source
# MAGIC %md
# MAGIC # A broker here, a cluster there
# MAGIC
# MAGIC The same code writes, reads and follows a topic of a broker inside this notebook, or of an
# MAGIC Apache RocketMQ cluster. The widget `nameServer` decides (`host:port`, several with
# MAGIC semicolons); elsewhere the variable `ROCKETPY_NAMESERVER` does. On a cluster the topic of
# MAGIC widget `topic` must exist. The notebook reads only its own messages of it.
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
# MAGIC This is the only difference. A cluster may also need the options `tls`, `accessKey` and
# MAGIC `secretKey`.

# COMMAND ----------

if NAME_SERVER:
    options = {"nameServer": NAME_SERVER, "topic": TOPIC}
else:
    broker = here.broker()
    broker.create_topic(TOPIC, queues=4)
    options = {"endpoints": broker.endpoint, "topic": TOPIC}

# COMMAND ----------

# MAGIC %md
# MAGIC ## Write
# MAGIC
# MAGIC A broker of rocketpy stores each batch once. A cluster cannot: a task that runs again
# MAGIC stores its messages again, so `delivery` must be `at-least-once`. The tag marks this run's
# MAGIC messages.

# COMMAND ----------

RUN = uuid.uuid4().hex


def write_orders(begin: int, end: int) -> None:
    """Writes orders `begin` to `end` - 1."""
    spark.range(begin, end).selectExpr(
        "concat('order ', id) as body", f"'{RUN}' as tags", "concat('o-', id) as keys"
    ).write.format("rocketpy").options(**options, delivery="at-least-once").mode("append").save()


write_orders(0, ORDERS)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Read
# MAGIC
# MAGIC A queue of a cluster is a broker and a number.

# COMMAND ----------

batch = spark.read.format("rocketpy").options(**options, filter=RUN).load()
here.show(batch.groupBy("brokerName", "queueId").count().orderBy("brokerName", "queueId"))
assert batch.select("body").distinct().count() == ORDERS

# COMMAND ----------

# MAGIC %md
# MAGIC ## Follow
# MAGIC
# MAGIC A stopped query continues from its checkpoint, at a broker and at a cluster.

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
