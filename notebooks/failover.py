# Databricks notebook source
# MAGIC %md
# MAGIC # Failover of a stream
# MAGIC
# MAGIC A stream reads orders from a broker, which is killed before the stream has read all of
# MAGIC them. Its slave has a copy: the stream reads on there, the slave is promoted, takes new
# MAGIC orders, and the same query reads them, too. Each acknowledged order arrives once.
# MAGIC
# MAGIC It runs unchanged on Databricks, or with `python notebooks/failover.py`. The brokers listen
# MAGIC on the driver's loopback, so a Databricks cluster needs a single node. See
# MAGIC [slaves](../docs/replication.md) for the commands and their limits.

# COMMAND ----------

# MAGIC %pip install 'pyspark-rocketpy[broker]'

# COMMAND ----------

# MAGIC %restart_python

# COMMAND ----------

import json
import subprocess
import sys
import time
from collections.abc import Callable

from rocketpy_broker import LocalBroker, LocalBrokerError
from surroundings import Surroundings

here = Surroundings(globals())
spark = here.session()
ORDERS = int(here.parameter("orders", "600"))
PER_CALL = 20
SECONDS_MAX = 600


def until(is_so: Callable[[], bool]) -> None:
    """Waits until a condition holds; a broker that starts again refuses calls meanwhile."""
    end = time.monotonic() + SECONDS_MAX
    while time.monotonic() < end:
        try:
            if is_so():
                return
        except LocalBrokerError:
            pass
        time.sleep(0.1)
    raise TimeoutError(f"not so within {SECONDS_MAX} s")


# COMMAND ----------

# MAGIC %md
# MAGIC ## Master and slave
# MAGIC
# MAGIC With two in-sync replicas, the master acknowledges a message when the slave has it, too. The
# MAGIC slave copies topics every ten seconds. Its `ha_port` lets slaves follow it later.

# COMMAND ----------

master = here.enter_context(LocalBroker(broker_role="SYNC_MASTER", in_sync_replicas=2, ha_port=0))
slave = here.enter_context(
    LocalBroker(broker_role="SLAVE", master=master.remoting_endpoint, ha_port=0)
)
master.create_topic("orders", queues=4)
until(lambda: "orders" in slave.topics())
print("The slave follows the master.")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The stream
# MAGIC
# MAGIC `endpoints` names both brokers, the master first. A limit for each batch leaves the stream
# MAGIC some orders to read when the master dies.

# COMMAND ----------

stream = (
    spark.readStream.format("rocketpy")
    .option("endpoints", f"{master.endpoint},{slave.endpoint}")
    .option("topic", "orders")
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", max(ORDERS // 5, 1))
    .load()
)
orders = stream.selectExpr("cast(cast(body as string) as int) as number")
query = orders.writeStream.format("memory").queryName("arrived").start()


def arrived() -> list[int]:
    """Returns the numbers of the orders that the stream has read, sorted; raises its failure."""
    if failure := query.exception():
        raise failure
    return sorted(row.number for row in spark.table("arrived").collect())


# COMMAND ----------

# MAGIC %md
# MAGIC ## Orders, and the death of the master
# MAGIC
# MAGIC A send that fails has no acknowledgement: its orders may or may not be stored. This sender
# MAGIC does not send them again.

# COMMAND ----------

acknowledged: list[int] = []
unsure: list[int] = []


def send(broker: LocalBroker, begin: int, end: int) -> None:
    """Sends orders `begin` to `end` - 1, and notes which are acknowledged."""
    for first in range(begin, end, PER_CALL):
        numbers = range(first, min(first + PER_CALL, end))
        try:
            broker.send("orders", [str(number) for number in numbers])
        except LocalBrokerError:
            unsure.extend(numbers)
        else:
            acknowledged.extend(numbers)


send(master, 0, ORDERS // 2)
until(lambda: arrived() != [])
send(master, ORDERS // 2, ORDERS)
master.kill()
print(f"The master is dead: {len(acknowledged)} orders acknowledged, {len(arrived())} arrived.")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The rest, from the slave
# MAGIC
# MAGIC The slave takes no orders yet, but it has all of them.

# COMMAND ----------

until(lambda: set(arrived()) >= set(acknowledged))
print(f"Read from the slave: {len(arrived())} orders arrived.")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The promotion
# MAGIC
# MAGIC An operator promotes the slave. The broker starts again as a master, in its process and at
# MAGIC the same addresses. With `--force` it need not have noticed that its master is gone.

# COMMAND ----------


def rocketpy(*words: str) -> str:
    """Runs the command `rocketpy` and returns its output."""
    command = [sys.executable, "-m", "rocketpy_broker", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def role() -> str:
    """Returns the role of the broker that was the slave."""
    with_role = rocketpy("broker", "status", "--json", "--endpoint", slave.endpoint)
    return str(json.loads(with_role)["brokerRole"])


print(f"Before: {role()}")
print(rocketpy("broker", "promote", "--force", "--endpoint", slave.endpoint).rstrip())
slave.send("orders", str(ORDERS))
acknowledged.append(ORDERS)
print(f"After: {role()}")

# COMMAND ----------

# MAGIC %md
# MAGIC ## New orders, and the same query
# MAGIC
# MAGIC Nothing was restarted on Spark's side.

# COMMAND ----------

send(slave, ORDERS + 1, ORDERS + ORDERS // 2)
until(lambda: set(arrived()) >= set(acknowledged))
numbers = arrived()
assert query.isActive
assert set(numbers) >= set(acknowledged), "an acknowledged order is lost"
assert len(numbers) == len(set(numbers)), "an order arrived twice"
assert set(numbers) <= {*acknowledged, *unsure}, "an order arrived that was not sent"
print(f"{len(acknowledged)} orders acknowledged, {len(numbers)} arrived.")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The old master as a slave
# MAGIC
# MAGIC It is a slave now. `rocketpy store align` removes what only the old master had, which is
# MAGIC nothing here, and makes its store a slave's.

# COMMAND ----------

print(rocketpy("store", "align", str(master.data), "--master", slave.remoting_endpoint).rstrip())
old = here.enter_context(
    LocalBroker(master.data, broker_role="SLAVE", master=slave.remoting_endpoint)
)
until(lambda: len(old.messages("orders")) == len(slave.messages("orders")))
print(f"The old master has all {len(old.messages('orders'))} orders.")

# COMMAND ----------

query.stop()
here.close()
print("No acknowledged order was lost, and none arrived twice.")
