# Databricks notebook source
# MAGIC %md
# MAGIC # The life of an order
# MAGIC
# MAGIC Orders that come later, that fail and are tried again, that are given up and sent anew, and
# MAGIC orders in a transaction: committed, rolled back, and one that the broker has to ask after. A
# MAGIC stream bills them all.
# MAGIC
# MAGIC It runs as it stands, on Databricks or with `python notebooks/order_lifecycle.py`. The
# MAGIC broker listens on the driver's loopback, so a cluster has to be of a single node. The widget
# MAGIC `endpoint`, elsewhere the variable `ROCKETPY_ENDPOINT`, names another broker (host:port).

# COMMAND ----------

# MAGIC %pip install 'pyspark-rocketpy[broker]'

# COMMAND ----------

# MAGIC %restart_python

# COMMAND ----------

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark users know)

import pyspark_rocketpy
from rocketpy_broker.client import groups, retries, transactions
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.messages import OutgoingMessage
from rocketpy_broker.client.transactions import Transaction
from surroundings import Surroundings

here = Surroundings(globals())
spark = here.session()
folder = Path(here.enter_context(TemporaryDirectory(prefix="order-lifecycle-")))
broker = here.broker()
broker.create_topic("orders", queues=2)
endpoint = {"endpoints": broker.endpoint}
connection = here.enter_context(BrokerConnection(broker.endpoint))
# A consumer group keeps its retries and dead letters; this one is new each time.
BILLING = folder.name
WAIT_SECONDS_MAX = 100

# COMMAND ----------

# MAGIC %md
# MAGIC ## Orders in a transaction
# MAGIC
# MAGIC The shop sends an order before it has taken the money: a half message, which nobody reads.
# MAGIC Then it commits it, or rolls it back. Of the third one it says nothing. The broker will ask
# MAGIC in half a minute; the shop tells it that it listens, and we come back to that.

# COMMAND ----------

notices = here.enter_context(groups.listening(connection, "shop-1"))
groups.heartbeat(connection, "shop-1", producer_groups=["shop"])


def prepare(order: str) -> Transaction:
    """Send a half message."""
    return transactions.prepare(connection, "orders", "shop", OutgoingMessage(order.encode()))


paid, unpaid, forgotten = prepare("paid"), prepare("unpaid"), prepare("forgotten")
transactions.end(connection, paid, commit=True)
transactions.end(connection, unpaid, commit=False)


def bodies(topic: str) -> DataFrame:
    """What readers of a topic see."""
    rows = spark.read.format("rocketpy").options(**endpoint, topic=topic).load()
    return rows.select(F.col("body").cast("string").alias("body"), "properties")


assert [row.body for row in bodies("orders").collect()] == ["paid"]

# COMMAND ----------

# MAGIC %md
# MAGIC ## Orders that come later
# MAGIC
# MAGIC `delayLevel` 1 is a second, 18 are two hours; `deliverAt` is a time. Until then the broker
# MAGIC keeps the order from its readers.

# COMMAND ----------

spark.sql(
    """
    select 'at once' as body, 0 as delayLevel, cast(null as timestamp) as deliverAt
    union all select 'in a second', 1, null
    union all select 'at its time', 0, current_timestamp() + interval 3 seconds
    """
).write.format("rocketpy").options(**endpoint, topic="orders").mode("append").save()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Orders that fail
# MAGIC
# MAGIC What cannot be billed is sent back: it comes again when its level is over, in the group's
# MAGIC own topic, which `withRetries` reads along. The first order below fails once. The second one
# MAGIC fails until it is mended; after one retry (`maxReconsumeTimes`) it is given up.

# COMMAND ----------

billed: list[tuple[str, int]] = []
given_up: list[int] = []
broken_ones = ["broken"]


def bill(batch: DataFrame, _batch_id: int) -> None:
    """Note what can be billed, with the number of its retries, and send back the rest."""
    batch.persist()
    body, retried = F.col("body").cast("string"), F.col("reconsumeTimes")
    fails = body.isin(broken_ones) | ((body == "flaky") & (retried == 0))
    sent = pyspark_rocketpy.send_back(
        batch.where(fails), **endpoint, consumerGroup=BILLING, delayLevel=1, maxReconsumeTimes=1
    )
    given_up.append(sent.dead_letters)
    rows = batch.where(~fails).select(body.alias("order"), retried.alias("retried")).collect()
    billed.extend((row.order, row.retried) for row in rows)
    batch.unpersist()


orders = spark.readStream.format("rocketpy").options(**endpoint, topic="orders")
orders = orders.option("consumerGroup", BILLING).option("withRetries", "true")
query = (
    orders.option("startingOffsets", "earliest")
    .load()
    .writeStream.foreachBatch(bill)
    .option("checkpointLocation", (folder / "checkpoint").as_uri())
    .start()
)
here.callback(query.stop)


def wait_until(is_so: Callable[[], bool]) -> None:
    """Let the query go on until something is so."""
    end = time.monotonic() + WAIT_SECONDS_MAX
    while not is_so():
        assert time.monotonic() < end, f"only these are billed: {billed}"
        query.awaitTermination(1)


def wait_for(*expected: tuple[str, int]) -> None:
    """Wait until these orders are billed, after so many retries."""
    wait_until(lambda: set(expected) <= set(billed))
    print("billed:", ", ".join(order for order, _ in expected))


wait_for(("paid", 0), ("at once", 0), ("in a second", 0), ("at its time", 0))

# COMMAND ----------

frame = spark.createDataFrame([("flaky",), ("broken",)], "body string")
frame.write.format("rocketpy").options(**endpoint, topic="orders").mode("append").save()
wait_for(("flaky", 1))

# COMMAND ----------

# MAGIC %md
# MAGIC ## A dead letter
# MAGIC
# MAGIC What was given up is in a topic of the group, and says where it comes from. Mended, it is
# MAGIC sent anew, to the topic that it was first sent to. `rocketpy dlq` does both from the shell.

# COMMAND ----------

wait_until(lambda: sum(given_up) == 1)
letters = bodies(f"%DLQ%{BILLING}").selectExpr("body", "properties['RETRY_TOPIC'] as topic")
here.show(letters)
assert [tuple(letter) for letter in letters.collect()] == [("broken", "orders")]

broken_ones.clear()
dead_letters = retries.dead_letters(connection, BILLING)
for letter, topic, _ in retries.resend(connection, BILLING, dead_letters):
    print(f"{letter.text!r} is sent to {topic!r} again")
wait_for(("broken", 0))

# COMMAND ----------

# MAGIC %md
# MAGIC ## The broker asks
# MAGIC
# MAGIC One transaction is still open. The broker asks a producer of the group that listens: had
# MAGIC this one died, another one would answer. Until then nobody sees the order.

# COMMAND ----------

(still_open,) = transactions.list_open(connection, "shop")
assert still_open.transaction.transaction_id == forgotten.transaction_id

question = next(
    notice.check_transaction for notice in notices if notice.HasField("check_transaction")
)
assert question.transaction_id == forgotten.transaction_id
print(f"asked after {question.transaction_id}: it was paid")
transactions.end(connection, forgotten, commit=True, from_check=True)
wait_for(("forgotten", 0))
assert transactions.list_open(connection, "shop") == []

# COMMAND ----------

# MAGIC %md
# MAGIC ## The end
# MAGIC
# MAGIC Each order was billed once, and the one without money never.

# COMMAND ----------

query.stop()
assert sorted(billed) == [
    ("at its time", 0),
    ("at once", 0),
    ("broken", 0),
    ("flaky", 1),
    ("forgotten", 0),
    ("in a second", 0),
    ("paid", 0),
]
here.close()
print(f"{len(billed)} orders, each billed once.")
