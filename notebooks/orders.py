# Databricks notebook source
# MAGIC %md
# MAGIC # Every order billed once
# MAGIC
# MAGIC A shop puts its orders into a topic, and a stream bills them. The card service sometimes
# MAGIC refuses a payment. A preorder must not be billed before its day. A few orders cannot be
# MAGIC billed until an operator corrects them. A program that stops at the first failure delays
# MAGIC all other customers; a program that skips failures loses money.
# MAGIC
# MAGIC RocketMQ has delayed messages, retries and dead letters for this. The notebook uses them
# MAGIC from Spark, and ends with a dashboard on which each order is billed once.
# MAGIC
# MAGIC It runs unchanged on Databricks, or with `python notebooks/orders.py`, in a minute. The
# MAGIC broker listens on the driver's loopback, so a Databricks cluster needs a single node. The
# MAGIC widget `endpoint` names another broker (host:port); elsewhere the variable
# MAGIC `ROCKETPY_ENDPOINT` does.

# COMMAND ----------

# MAGIC %pip install 'pyspark-rocketpy[broker]' matplotlib

# COMMAND ----------

# MAGIC %restart_python

# COMMAND ----------

import json
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark users know)

import pyspark_rocketpy
from rocketpy_broker.client import groups
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.messages import transactions
from rocketpy_broker.client.messages.model import OutgoingMessage
from rocketpy_broker.client.messages.transactions import Transaction
from surroundings import Surroundings

here = Surroundings(globals())
spark = here.session()
ORDERS = int(here.parameter("orders", "600"))
CHARTS = Path(here.parameter("charts", "."))
WAIT_SECONDS_MAX = 100

folder = Path(here.enter_context(TemporaryDirectory(prefix="orders-")))
broker = here.broker()
broker.create_topic("orders", queues=4)
options = {"endpoints": broker.endpoint, "topic": "orders"}
# A consumer group keeps its retries and dead letters, so each run has a new group.
BILLING = folder.name

# COMMAND ----------

# MAGIC %md
# MAGIC ## Orders in a transaction
# MAGIC
# MAGIC The shop's own books and the topic must agree. So the shop sends an order as a half
# MAGIC message, which readers do not see. It writes its books, and then commits the order or rolls
# MAGIC it back. For the third order below it does neither, as after a crash. In half a minute the
# MAGIC broker checks that transaction; a later cell answers it.

# COMMAND ----------

connection = here.enter_context(BrokerConnection(broker.endpoint))
notices = here.enter_context(groups.listening(connection, "shop-1"))
groups.heartbeat(connection, "shop-1", producer_groups=["shop"])


def prepare(order: str) -> Transaction:
    """Sends a half message."""
    body = json.dumps({"order": order, "cents": 1999, "currency": "EUR"})
    return transactions.prepare(connection, "orders", "shop", OutgoingMessage(body.encode()))


booked, refused, forgotten = prepare("t-booked"), prepare("t-refused"), prepare("t-forgotten")
transactions.end(connection, booked, commit=True)
transactions.end(connection, refused, commit=False)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The orders of the day
# MAGIC
# MAGIC Each eighth order is a preorder: `deliverAt` is the time from which readers see it. A few
# MAGIC orders come from a till with a misspelt currency, which is not noticed yet.

# COMMAND ----------

spark.range(ORDERS).selectExpr(
    "format_string('o-%05d', id) as order",
    "500 + id * 377 % 20000 as cents",
    "if(id % 75 = 7, 'ERU', 'EUR') as currency",
    "if(id % 8 = 5, current_timestamp() + interval 12 seconds, null) as billAt",
).selectExpr(
    "to_json(struct(order, cents, currency, billAt)) as body",
    "order as keys",
    "billAt as deliverAt",
).write.format("rocketpy").options(**options).mode("append").save()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Billing, with failures
# MAGIC
# MAGIC The card service below refuses one order in five at the first try, and one in twenty at the
# MAGIC second try as well. Failed orders are sent back. The broker delivers them again after their
# MAGIC delay (level 1 is one second) in the group's own topic, which `includeRetryTopic` adds to
# MAGIC the query. Other orders do not wait. After three retries an order becomes a dead letter.
# MAGIC
# MAGIC A batch that Spark runs again overwrites its rows, so an order is in the books once.

# COMMAND ----------

ORDER = "order string, cents long, currency string, billAt timestamp"


def decoded(messages: DataFrame) -> DataFrame:
    """Returns messages with the columns of their orders."""
    order = F.from_json(F.col("body").cast("string"), ORDER)
    return messages.select("*", order.alias("decoded")).select("*", "decoded.*")


def is_refused() -> Column:
    """Returns whether the card service or the books refuse an order, by its earlier tries."""
    dice = F.crc32(F.col("order").cast("binary")) % 100
    refusals = F.when(dice < 5, 2).when(dice < 20, 1).otherwise(0)
    return (F.col("reconsumeTimes") < refusals) | (F.col("currency") != "EUR")


def bill(batch: DataFrame, batch_id: int) -> None:
    """Books the accepted orders, and sends back the refused ones."""
    orders = decoded(batch).withColumn("at", F.current_timestamp()).persist()
    columns = ("order", "cents", "reconsumeTimes", "bornTimestamp", "billAt", "at")
    for name, rows in (("billed", ~is_refused()), ("failed", is_refused())):
        path = f"{(folder / name).as_uri()}/batch={batch_id}"
        orders.where(rows).select(*columns).write.mode("overwrite").parquet(path)
    pyspark_rocketpy.send_back(
        orders.where(is_refused()).select("topic", "commitLogOffset"),
        endpoints=broker.endpoint,
        consumerGroup=BILLING,
        delayLevel=1,
        maxReconsumeTimes=3,
    )
    orders.unpersist()


query = (
    spark.readStream.format("rocketpy")
    .options(**options, consumerGroup=BILLING, includeRetryTopic="true", startingOffsets="earliest")
    .option("maxOffsetsPerTrigger", max(ORDERS // 4, 1))
    .load()
    .writeStream.foreachBatch(bill)
    .option("checkpointLocation", (folder / "checkpoint").as_uri())
    .start()
)
here.callback(query.stop)

# COMMAND ----------

# MAGIC %md
# MAGIC The stream runs in the background. Soon all orders are billed except the misspelt ones and
# MAGIC the open transaction.

# COMMAND ----------


def table(name: str) -> DataFrame:
    """Returns the stream's rows in table `billed` or `failed`."""
    return spark.read.schema(
        "order string, cents long, reconsumeTimes int, bornTimestamp timestamp, "
        "billAt timestamp, at timestamp"
    ).parquet((folder / name).as_uri())


def wait_until(is_so: Callable[[], bool]) -> None:
    """Waits for a condition while the query runs."""
    end = time.monotonic() + WAIT_SECONDS_MAX
    while not is_so():
        assert time.monotonic() < end, f"only {table('billed').count()} orders are billed"
        query.awaitTermination(2)


MISSPELT = len(range(7, ORDERS, 75))
wait_until((folder / "billed").exists)
wait_until(lambda: table("billed").count() == ORDERS - MISSPELT + 1)
here.show(table("billed").groupBy("reconsumeTimes").count().orderBy("reconsumeTimes"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Dead letters
# MAGIC
# MAGIC Dead letters are in a topic of the group. Spark reads it as any topic, and a query shows
# MAGIC their common cause. `rocketpy dlq list` shows them in the shell.

# COMMAND ----------


def dead_letters() -> DataFrame:
    """Returns the orders that became dead letters."""
    options = {"endpoints": broker.endpoint, "topic": f"%DLQ%{BILLING}"}
    return decoded(spark.read.format("rocketpy").options(**options).load())


wait_until(lambda: table("failed").where("reconsumeTimes = 3").count() == MISSPELT)
letters = dead_letters()
here.show(letters.groupBy("currency").agg(F.count("*").alias("orders"), F.sum("cents")))
assert letters.count() == MISSPELT

# COMMAND ----------

# MAGIC %md
# MAGIC Corrected, they are orders again. If the program was wrong and not the order, `rocketpy dlq
# MAGIC resend` sends the messages again unchanged.

# COMMAND ----------

letters.select(
    F.regexp_replace(F.col("body").cast("string"), "ERU", "EUR").alias("body"),
    F.col("order").alias("keys"),
).write.format("rocketpy").options(**options).mode("append").save()
wait_until(lambda: table("billed").count() == ORDERS + 1)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The broker's check of the transaction
# MAGIC
# MAGIC One transaction is still open. The broker asks a producer of the shop's group about it. If
# MAGIC the first producer had died, another one would answer.

# COMMAND ----------

(still_open,) = transactions.list_open(connection, "shop")
assert still_open.transaction.transaction_id == forgotten.transaction_id
question = next(
    notice.check_transaction for notice in notices if notice.HasField("check_transaction")
)
assert question.transaction_id == forgotten.transaction_id
print("the broker checked the open order: it is in the shop's books, so it is committed")
transactions.end(connection, forgotten, commit=True, from_check=True)
wait_until(lambda: table("billed").count() == ORDERS + 2)
assert transactions.list_open(connection, "shop") == []

# COMMAND ----------

# MAGIC %md
# MAGIC ## The dashboard
# MAGIC
# MAGIC All figures come from the stream's tables and from its own progress.

# COMMAND ----------

query.stop()
progress = [json.loads(each.json) for each in query.recentProgress]
billed = table("billed").orderBy("at").toPandas()
failed = table("failed").orderBy("at").toPandas()
begin = billed["bornTimestamp"].min()


def over_time(axes: Axes) -> None:
    """Draws the numbers of billed orders and of failed tries over time."""
    for rows, label in ((billed, "billed"), (failed, "failed tries")):
        seconds = (rows["at"] - begin).dt.total_seconds()
        axes.step(seconds, range(1, len(rows) + 1), where="post", label=label)
    axes.axhline(ORDERS + 2, color="gray", linestyle=":", label="ordered")
    axes.set(title="Progress", xlabel="seconds since the first order", ylabel="orders")
    axes.set_xlim(left=0)
    axes.legend()


def by_retries(axes: Axes) -> None:
    """Draws the number of billed orders by their retries."""
    counts = billed["reconsumeTimes"].value_counts().sort_index()
    axes.bar_label(axes.bar([str(retries) for retries in counts.index], counts))
    axes.margins(y=0.1)
    axes.set(title="Retries until an order was billed", xlabel="retries", ylabel="orders")


def waits(axes: Axes) -> None:
    """Draws the time from an order's due time, or its send time, to its bill."""
    late = (billed["at"] - billed["billAt"].fillna(billed["bornTimestamp"])).dt.total_seconds()
    preorder, first = billed["billAt"].notna(), billed["reconsumeTimes"] == 0
    kinds = {"orders": ~preorder & first, "preorders": preorder & first, "retried": ~first}
    axes.hist([late[kind] for kind in kinds.values()], bins=20, stacked=True, label=list(kinds))
    axes.set(title="From due to billed", xlabel="seconds", ylabel="orders")
    axes.legend()


def lag(axes: Axes) -> None:
    """Draws the messages of each batch, and the unread messages after it."""
    batches = [each for each in progress if each["numInputRows"]]
    lags = [each["sources"][0]["latestOffset"]["lag"] for each in batches]
    unread = [sum(sum(queues.values()) for queues in topics.values()) for topics in lags]
    axes.bar(range(len(unread)), unread, color="lightgray", label="unread after it")
    axes.plot([each["numInputRows"] for each in batches], "o-", label="read")
    axes.set(title="Batches", xlabel="batch", ylabel="messages")
    axes.legend()


def dashboard() -> Figure:
    """Draws the four charts."""
    figure = Figure(figsize=(11, 7), layout="constrained")
    figure.suptitle(f"{len(billed)} orders, each billed once")
    for draw, axes in zip(
        (over_time, by_retries, waits, lag), figure.subplots(2, 2).flat, strict=True
    ):
        draw(axes)
        axes.grid(alpha=0.3)
    return figure


here.plot(dashboard(), CHARTS / "orders.png")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Comparison of the books
# MAGIC
# MAGIC Each order is billed once, none before its time, and the order that was rolled back never.

# COMMAND ----------

assert len(billed) == billed["order"].nunique() == ORDERS + 2
assert "t-refused" not in set(billed["order"])
preorders = billed[billed["billAt"].notna()]
assert (preorders["at"] >= preorders["billAt"]).all()
here.close()
print(f"{len(billed)} orders, each billed once.")
