# Databricks notebook source
# MAGIC %md
# MAGIC # A broker here, a cluster there
# MAGIC
# MAGIC The same code writes, reads and follows a topic of a broker inside this notebook, or of an
# MAGIC Apache RocketMQ cluster: the widget `nameServer` decides (`host:port`, several with
# MAGIC semicolons; elsewhere the variable `ROCKETPY_NAMESERVER`). On a cluster the topic of widget
# MAGIC `topic` has to be there; the notebook reads its own messages of it alone.
# MAGIC
# MAGIC It runs as it stands, on Databricks or with `python notebooks/clusters.py`.

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
# MAGIC ## The way there
# MAGIC
# MAGIC This is the only difference. `tls`, `accessKey` and `secretKey` are further options of a
# MAGIC cluster, where it asks for them.

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
# MAGIC A broker of rocketpy takes each batch once. A cluster cannot: there messages of a task that
# MAGIC is run again come again, so `delivery` has to be `at-least-once`. The tag tells this run's
# MAGIC messages from others'.

# COMMAND ----------

RUN = uuid.uuid4().hex


def write_orders(begin: int, end: int) -> None:
    """Orders `begin` to `end` - 1."""
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
# MAGIC A query that stops goes on from its checkpoint, whichever way it reads.

# COMMAND ----------

folder = Path(here.enter_context(TemporaryDirectory(prefix="clusters-")))


def follow() -> int:
    """Read on from the checkpoint; how many orders were seen by now, each counted once."""
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
# MAGIC The checkpoint is removed, and a broker of the notebook's own. Messages stay on a cluster.

# COMMAND ----------

here.close()
print(f"{2 * ORDERS} orders written, and read from where they are.")
