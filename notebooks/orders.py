# Databricks notebook source
# MAGIC %md
# MAGIC # Every order billed once
# MAGIC
# MAGIC A shop puts its orders into a topic, and a stream bills them. Then life begins: the card
# MAGIC service refuses now and then, a preorder must not be billed before its day, and a few orders
# MAGIC cannot be billed at all until somebody has mended them. Who stops at the first failure holds
# MAGIC up all other customers; who skips it loses money.
# MAGIC
# MAGIC RocketMQ has the parts for it: messages that come later, messages that are tried again, and
# MAGIC dead letters. This notebook uses them from Spark, and ends with a dashboard on which each
# MAGIC order is billed once.
# MAGIC
# MAGIC It runs as it stands, on Databricks or with `python notebooks/orders.py`, in a minute. The
# MAGIC broker listens on the driver's loopback, so a cluster has to be of a single node. The widget
# MAGIC `endpoint`, elsewhere the variable `ROCKETPY_ENDPOINT`, names another broker (host:port).

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
# A consumer group keeps its retries and dead letters; this one is new each time.
BILLING = folder.name

# COMMAND ----------

# MAGIC %md
# MAGIC ## Orders that are sure
# MAGIC
# MAGIC The shop's own books and the topic must agree. So the shop sends an order as a half message,
# MAGIC which nobody reads, writes its books, and then commits the order or rolls it back. Of the
# MAGIC third order below it says nothing, as if it had crashed in between. In half a minute the
# MAGIC broker will ask after it, and we come back to that.

# COMMAND ----------

connection = here.enter_context(BrokerConnection(broker.endpoint))
notices = here.enter_context(groups.listening(connection, "shop-1"))
groups.heartbeat(connection, "shop-1", producer_groups=["shop"])


def prepare(order: str) -> Transaction:
    """Send a half message."""
    body = json.dumps({"order": order, "cents": 1999, "currency": "EUR"})
    return transactions.prepare(connection, "orders", "shop", OutgoingMessage(body.encode()))


booked, refused, forgotten = prepare("t-booked"), prepare("t-refused"), prepare("t-forgotten")
transactions.end(connection, booked, commit=True)
transactions.end(connection, refused, commit=False)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The orders of the day
# MAGIC
# MAGIC Each eighth is a preorder: `deliverAt` says when readers may see it. A few come from a till
# MAGIC with a misspelt currency, which nobody has noticed yet.

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
# MAGIC The card service below refuses one order in five at the first try, one in twenty at the
# MAGIC second try, too. What fails is sent back: it comes again when its delay level is over (level
# MAGIC 1 is a second), in the group's own topic, which `withRetries` reads along. Nobody waits for
# MAGIC it. After three retries it is given up and becomes a dead letter.
# MAGIC
# MAGIC A batch that Spark runs again overwrites what it billed, so an order is in the books once.

# COMMAND ----------

ORDER = "order string, cents long, currency string, billAt timestamp"


def decoded(messages: DataFrame) -> DataFrame:
    """Messages with the columns of their orders."""
    order = F.from_json(F.col("body").cast("string"), ORDER)
    return messages.select("*", order.alias("decoded")).select("*", "decoded.*")


def is_refused() -> Column:
    """What the card service and the books say of an order, by how often it was tried before."""
    dice = F.crc32(F.col("order").cast("binary")) % 100
    refusals = F.when(dice < 5, 2).when(dice < 20, 1).otherwise(0)
    return (F.col("reconsumeTimes") < refusals) | (F.col("currency") != "EUR")


def bill(batch: DataFrame, batch_id: int) -> None:
    """Book what can be billed, and send back the rest."""
    orders = decoded(batch).withColumn("at", F.current_timestamp()).persist()
    columns = ("order", "cents", "reconsumeTimes", "bornTimestamp", "billAt", "at")
    for name, rows in (("billed", ~is_refused()), ("failed", is_refused())):
        path = f"{(folder / name).as_uri()}/batch={batch_id}"
        orders.where(rows).select(*columns).write.mode("overwrite").parquet(path)
    pyspark_rocketpy.send_back(
        orders.where(is_refused()).select("topic", "offsetMsgId"),
        endpoints=broker.endpoint,
        consumerGroup=BILLING,
        delayLevel=1,
        maxReconsumeTimes=3,
    )
    orders.unpersist()


query = (
    spark.readStream.format("rocketpy")
    .options(**options, consumerGroup=BILLING, withRetries="true", startingOffsets="earliest")
    .option("maxOffsetsPerTrigger", max(ORDERS // 4, 1))
    .load()
    .writeStream.foreachBatch(bill)
    .option("checkpointLocation", (folder / "checkpoint").as_uri())
    .start()
)
here.callback(query.stop)

# COMMAND ----------

# MAGIC %md
# MAGIC The stream goes on in the background. Soon all are billed but the misspelt ones, and the one
# MAGIC that the shop has forgotten.

# COMMAND ----------


def table(name: str) -> DataFrame:
    """What the stream has noted by now: `billed` or `failed`."""
    return spark.read.schema(
        "order string, cents long, reconsumeTimes int, bornTimestamp timestamp, "
        "billAt timestamp, at timestamp"
    ).parquet((folder / name).as_uri())


def wait_until(is_so: Callable[[], bool]) -> None:
    """Let the query go on until something is so."""
    end = time.monotonic() + WAIT_SECONDS_MAX
    while not is_so():
        assert time.monotonic() < end, f"only {table('billed').count()} orders are billed"
        query.awaitTermination(1)


MISSPELT = len(range(7, ORDERS, 75))
wait_until((folder / "billed").exists)
wait_until(lambda: table("billed").count() == ORDERS - MISSPELT + 1)
here.show(table("billed").groupBy("reconsumeTimes").count().orderBy("reconsumeTimes"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Dead letters
# MAGIC
# MAGIC What was given up is in a topic of the group. Spark reads it like any other, so a look tells
# MAGIC what they have in common. `rocketpy dlq list` shows them in the shell.

# COMMAND ----------


def dead_letters() -> DataFrame:
    """The orders that were given up."""
    options = {"endpoints": broker.endpoint, "topic": f"%DLQ%{BILLING}"}
    return decoded(spark.read.format("rocketpy").options(**options).load())


wait_until(lambda: table("failed").where("reconsumeTimes = 3").count() == MISSPELT)
letters = dead_letters()
here.show(letters.groupBy("currency").agg(F.count("*").alias("orders"), F.sum("cents")))
assert letters.count() == MISSPELT

# COMMAND ----------

# MAGIC %md
# MAGIC Mended, they are orders again. (Where the program was wrong and not the order, `rocketpy dlq
# MAGIC resend` sends them anew as they are.)

# COMMAND ----------

letters.select(
    F.regexp_replace(F.col("body").cast("string"), "ERU", "EUR").alias("body"),
    F.col("order").alias("keys"),
).write.format("rocketpy").options(**options).mode("append").save()
wait_until(lambda: table("billed").count() == ORDERS + 1)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The broker asks
# MAGIC
# MAGIC One order is still in nobody's sight. The broker asks a producer of the shop's group: had
# MAGIC this one died, another one would answer.

# COMMAND ----------

(still_open,) = transactions.list_open(connection, "shop")
assert still_open.transaction.transaction_id == forgotten.transaction_id
question = next(
    notice.check_transaction for notice in notices if notice.HasField("check_transaction")
)
assert question.transaction_id == forgotten.transaction_id
print("asked after the forgotten order: it is in the shop's books, so it is committed")
transactions.end(connection, forgotten, commit=True, from_check=True)
wait_until(lambda: table("billed").count() == ORDERS + 2)
assert transactions.list_open(connection, "shop") == []

# COMMAND ----------

# MAGIC %md
# MAGIC ## The dashboard
# MAGIC
# MAGIC All of it comes from what the stream has noted, and from its own progress.

# COMMAND ----------

query.stop()
progress = [json.loads(each.json) for each in query.recentProgress]
billed = table("billed").orderBy("at").toPandas()
failed = table("failed").orderBy("at").toPandas()
begin = billed["bornTimestamp"].min()


def over_time(axes: Axes) -> None:
    """How many orders were billed, and how many tries failed, by second."""
    for rows, label in ((billed, "billed"), (failed, "failed tries")):
        seconds = (rows["at"] - begin).dt.total_seconds()
        axes.step(seconds, range(1, len(rows) + 1), where="post", label=label)
    axes.axhline(ORDERS + 2, color="gray", linestyle=":", label="ordered")
    axes.set(title="Progress", xlabel="seconds since the first order", ylabel="orders")
    axes.set_xlim(left=0)
    axes.legend()


def by_retries(axes: Axes) -> None:
    """How many orders were billed after how many retries."""
    counts = billed["reconsumeTimes"].value_counts().sort_index()
    axes.bar_label(axes.bar([str(retries) for retries in counts.index], counts))
    axes.margins(y=0.1)
    axes.set(title="Retries until an order was billed", xlabel="retries", ylabel="orders")


def waits(axes: Axes) -> None:
    """How long after it was due an order was billed: at its time, or when it was sent."""
    late = (billed["at"] - billed["billAt"].fillna(billed["bornTimestamp"])).dt.total_seconds()
    preorder, first = billed["billAt"].notna(), billed["reconsumeTimes"] == 0
    kinds = {"orders": ~preorder & first, "preorders": preorder & first, "retried": ~first}
    axes.hist([late[kind] for kind in kinds.values()], bins=20, stacked=True, label=list(kinds))
    axes.set(title="From due to billed", xlabel="seconds", ylabel="orders")
    axes.legend()


def lag(axes: Axes) -> None:
    """Messages that were unread behind each batch, of orders and of retries."""
    batches = [each for each in progress if each["numInputRows"]]
    lags = [each["sources"][0]["latestOffset"]["lag"] for each in batches]
    unread = [sum(sum(queues.values()) for queues in topics.values()) for topics in lags]
    axes.bar(range(len(unread)), unread, color="lightgray", label="unread behind it")
    axes.plot([each["numInputRows"] for each in batches], "o-", label="read")
    axes.set(title="Batches", xlabel="batch", ylabel="messages")
    axes.legend()


def dashboard() -> Figure:
    """The four of them."""
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
# MAGIC ## Do the books agree?
# MAGIC
# MAGIC Each order is there once, none before its time, and the one that was rolled back never.

# COMMAND ----------

assert len(billed) == billed["order"].nunique() == ORDERS + 2
assert "t-refused" not in set(billed["order"])
preorders = billed[billed["billAt"].notna()]
assert (preorders["at"] >= preorders["billAt"]).all()
here.close()
print(f"{len(billed)} orders, each billed once.")
