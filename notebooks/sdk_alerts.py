# Databricks notebook source
# MAGIC %md
# MAGIC # A service with RocketMQ's SDK, and Spark
# MAGIC
# MAGIC A shop's service knows no Spark: it writes its orders with RocketMQ's own SDK for Python.
# MAGIC Spark adds them up as a stream, for each customer and hour, and writes an alert for each
# MAGIC customer above a limit. The service reads the alerts, with its SDK again. One broker
# MAGIC serves both.
# MAGIC
# MAGIC It runs unchanged on Databricks, or with `python notebooks/sdk_alerts.py`. The broker
# MAGIC listens on the driver's loopback, so a Databricks cluster needs a single node. The widget
# MAGIC `endpoint` names another broker (host:port); elsewhere the variable `ROCKETPY_ENDPOINT`
# MAGIC does.

# COMMAND ----------

# MAGIC %pip install 'pyspark-rocketpy[broker]'

# COMMAND ----------

# MAGIC %restart_python

# COMMAND ----------

import json
import os
import subprocess
import venv
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark users know)

import surroundings
from surroundings import Surroundings

here = Surroundings(globals())
spark = here.session()
ORDERS = int(here.parameter("orders", "600"))
LIMIT_CENTS = 40_000

folder = Path(here.enter_context(TemporaryDirectory(prefix="sdk-alerts-")))
broker = here.broker()
# An SDK creates no topics.
broker.create_topic("orders", queues=4)
broker.create_topic("alerts", queues=1)

# COMMAND ----------

# MAGIC %md
# MAGIC ## An environment for the SDK
# MAGIC
# MAGIC The SDK and rocketpy both define the messages of RocketMQ's gRPC interface, and protobuf
# MAGIC accepts one definition in a process. So the service runs in processes of its own, here in a
# MAGIC virtual environment of its own, as a real service does. The widget `sdkPython`, elsewhere
# MAGIC the variable `ROCKETPY_SDKPYTHON`, names a Python that has the SDK already. Without it the
# MAGIC next cell installs the SDK with pip; the last cell removes it.

# COMMAND ----------

SDK = "rocketmq-python-client==5.1.2"
SERVICE = Path(surroundings.__file__).with_name("sdk_service.py")

sdk_python = here.parameter("sdkPython", "")
if not sdk_python:
    venv.create(folder / "sdk", with_pip=True)
    sdk_python = str(folder / "sdk" / "bin" / "python")
    quietly = ("--quiet", "--disable-pip-version-check")
    subprocess.run([sdk_python, "-m", "pip", "install", *quietly, SDK], check=True)


def service(*words: object) -> list[str]:
    """Runs a command of the service in the SDK's environment; returns the printed lines."""
    command = [sdk_python, str(SERVICE), *map(str, words)]
    # The SDK logs into the home folder. The path of this process's packages is not for it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["HOME"] = str(folder)
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, timeout=600, env=environment
    )
    return done.stdout.splitlines()


# COMMAND ----------

# MAGIC %md
# MAGIC The whole service:

# COMMAND ----------

print(SERVICE.read_text(encoding="utf-8"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Orders
# MAGIC
# MAGIC The service writes one order for each minute of its day. The orders of a customer are a
# MAGIC message group, so they stay in one queue, in order. First comes half of the day.

# COMMAND ----------

print(*service("orders", broker.endpoint, 0, ORDERS // 2))


def orders_of(messages: DataFrame) -> DataFrame:
    """Returns the orders in messages, each with the time that its service gave it."""
    content = F.from_json(F.col("body").cast("string"), "customer string, cents long, seconds long")
    return messages.select(content.alias("order")).select(
        "order.customer", "order.cents", F.timestamp_seconds("order.seconds").alias("time")
    )


options = {"endpoints": broker.endpoint, "topic": "orders"}
messages = spark.read.format("rocketpy").options(**options).load()
here.show(messages.select("queueId", "tags", "keys", "messageGroup", "msgId").limit(3))
here.show(orders_of(messages).groupBy("customer").sum("cents").orderBy("customer"))
assert messages.count() == ORDERS // 2

# COMMAND ----------

# MAGIC %md
# MAGIC ## Alerts
# MAGIC
# MAGIC The stream sums by customer and hour. An hour is over when an order comes that is 10 minutes
# MAGIC younger: then its sum is final, and an alert is written, exactly once. The checkpoint has
# MAGIC the sums of open hours. So the second run of the query, after the other half of the day,
# MAGIC completes an hour that the first run began.

# COMMAND ----------


def sums_of(orders: DataFrame) -> DataFrame:
    """Returns the sum of each customer and hour."""
    hours = orders.groupBy(F.window("time", "1 hour"), "customer").agg(
        F.sum("cents").alias("cents")
    )
    hour = F.date_format("window.start", "yyyy-MM-dd HH:mm")
    return hours.select("customer", hour.alias("hour"), "cents", F.col("window.end").alias("end"))


def write_alerts() -> None:
    """Reads the orders that are stored now, and writes the alerts of the hours that are over."""
    stream = spark.readStream.format("rocketpy").options(**options)
    orders = orders_of(stream.option("startingOffsets", "earliest").load())
    sums = sums_of(orders.withWatermark("time", "10 minutes"))
    alerts = sums.where(F.col("cents") > LIMIT_CENTS).selectExpr(
        "to_json(struct(customer, hour, cents)) as body",
        "'spending' as tags",
        "array(customer) as keys",
    )
    writer = alerts.writeStream.format("rocketpy").trigger(availableNow=True)
    writer = writer.options(endpoints=broker.endpoint, topic="alerts")
    writer = writer.option("checkpointLocation", (folder / "checkpoint").as_uri())
    writer.start().awaitTermination()


write_alerts()
print(*service("orders", broker.endpoint, ORDERS // 2, ORDERS - ORDERS // 2))
write_alerts()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Alerts in the service
# MAGIC
# MAGIC A simple consumer of the SDK receives them with tag and keys, and acknowledges each. They
# MAGIC are the ones that a batch finds in all orders.

# COMMAND ----------

received = [json.loads(line) for line in service("alerts", broker.endpoint)]
for alert in received[:3]:
    print(alert)

orders = orders_of(spark.read.format("rocketpy").options(**options).load())
(newest,) = orders.select(F.max("time") - F.expr("interval 10 minutes")).first() or (None,)
due = sums_of(orders).where((F.col("cents") > LIMIT_CENTS) & (F.col("end") <= F.lit(newest)))
expected = [(row.customer, row.hour, row.cents) for row in due.collect()]
found = [(alert["customer"], alert["hour"], alert["cents"]) for alert in received]
assert sorted(found) == sorted(expected)
assert len(found) == len(set(found)) > 0
assert all((alert["tag"], alert["keys"]) == ("spending", [alert["customer"]]) for alert in received)
assert service("alerts", broker.endpoint) == [], "an acknowledged alert came again"

# COMMAND ----------

# MAGIC %md
# MAGIC ## The end
# MAGIC
# MAGIC The notebook removes its checkpoint and the SDK's environment. Its own broker stops. On
# MAGIC another broker the notebook deletes its topics.

# COMMAND ----------

here.close()
print(f"{ORDERS} orders of the SDK, {len(received)} alerts for it.")
